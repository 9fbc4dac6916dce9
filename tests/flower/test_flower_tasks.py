"""Other tasks than classification over Flower: the simulator's bytes, and metrics by their names."""

from __future__ import annotations

import numpy as np
import pytest
from local_grid import Deployment, lines_of

from fedfibos.config.experiment import load_experiment
from fedfibos.simulation import simulate
from fedfibos.simulation.world import load_split
from small_experiment import small_experiment

CHANGES = """
data = {{ name = {data}, partition = {{ scheme = "iid" }}{options} }}
task = {{ name = "{task}" }}
model = {model}
local = {{ steps = 2, batch_size = 4 }}
evaluation.every = 1
"""

TABLE = "a,b,price,wet,cold\n" + "".join(f"{n % 7},{n % 5},{n % 7 - n % 5},{n % 2},{n % 3 // 2}\n" for n in range(60))

MLP = '{ name = "mlp" }'

READER = """
from torch import nn
class Reader(nn.Module):
    def __init__(self, num_classes, input_shape):
        super().__init__()
        self.words, self.head = nn.Embedding(num_classes, 8), nn.Linear(8, num_classes)
    def forward(self, tokens):
        return self.head(self.words(tokens))
"""

CASES = {
    "regression": (
        MLP,
        ', options = { inputs = ["a", "b"], label = "price" }',
        {"mse": "lower", "mae": "lower", "r2": "higher"},
    ),
    "multilabel": (
        MLP,
        ', options = { inputs = ["a", "b"], label = ["wet", "cold"] }',
        {"macro_f1": "higher", "micro_f1": "higher", "exact_match": "higher"},
    ),
    "segmentation": (
        '{ name = "examples.segmentation:Mapper", options = { width = 4 } }',
        "",
        {"miou": "higher", "pixel_accuracy": "higher"},
    ),
    "language-modelling": (
        '{ name = "a_reader:Reader", options = {} }',
        "",
        {"perplexity": "lower", "token_accuracy": "higher"},
    ),
}


def experiment_of(folder, task):
    model, options, _ = CASES[task]
    if task in ("regression", "multilabel"):
        (folder / "table.csv").write_text(TABLE)
        data = f"csv:{folder / 'table.csv'}"
    else:
        tokens = np.random.default_rng(0).integers(0, 12, (40, 6))
        pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
        inputs, labels = (tokens, tokens) if task == "language-modelling" else (pixels, pixels // 128)
        arrays = {
            f"{half}_{what}": v for half in ("train", "test") for what, v in (("images", inputs), ("labels", labels))
        }
        np.savez(folder / "data.npz", **arrays)
        data = f"npz:{folder / 'data.npz'}"
    (folder / "a_reader.py").write_text(READER)
    changes = CHANGES.format(data=repr(data), task=task, model=model, options=options)
    (folder / "experiment.toml").write_text(small_experiment(changes))
    return load_experiment(folder / "experiment.toml")


@pytest.mark.parametrize("task", CASES)
def test_a_task_over_flower_gives_the_simulators_bytes_and_metrics(tmp_path, monkeypatch, task):
    monkeypatch.syspath_prepend(str(tmp_path))
    experiment = experiment_of(tmp_path, task)
    simulated = simulate(experiment, tmp_path / "simulated", workers=1)
    fleet = Deployment(experiment)
    deployed = fleet.run(tmp_path / "deployed", on=load_split(experiment, None, print))
    assert deployed["params_sha256"] == simulated["params_sha256"]
    for one, other in zip(lines_of(tmp_path / "simulated"), lines_of(tmp_path / "deployed"), strict=True):
        mine, theirs = one["evaluation"], other["evaluation"]
        assert {name: metric["better"] for name, metric in theirs["metrics"].items()} == CASES[task][2]
        for metric in ("global", *list(CASES[task][2])[1:]):
            assert theirs[metric]["full"] == mine[metric]["full"]
        assert (one["loss"], one["rejected"]) == (other["loss"], other["rejected"])
    assert f"global_{next(iter(CASES[task][2]))}" in deployed
