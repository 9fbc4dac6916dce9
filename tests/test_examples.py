"""The written-out round and the library's round are the same mathematics."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fedfibos import reopen, simulate
from fedfibos.common.statistics import Spread
from fedfibos.config.experiment import load_experiment
from fedfibos.config.study import load_study
from fedfibos.data.images import TensorData
from fedfibos.local import batch_indices
from fedfibos.methods import FedFIbOS
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.runs.stored import experiment_of, stored_below
from fedfibos.submodel import full
from fedfibos.training import LocalTraining
from fedfibos.types import Client

ROOT = Path(__file__).resolve().parent.parent


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_round_written_out_is_the_library_round():
    example = load("one_round")
    generator = torch.Generator().manual_seed(0)
    data = [
        TensorData(torch.randn(40, 6, generator=generator), torch.randint(3, (40,), generator=generator))
        for _ in example.CAPACITIES
    ]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model, method = model_of(module), FedFIbOS(prior="magnitude", ema_rate=example.EMA_RATE)
    local = LocalTraining(steps=example.LOCAL_STEPS, batch_size=example.BATCH, lr=example.CLIENT_LR)
    params = model.initial_params()
    state = method.init(params)
    x, score = params.flat, state.tensors["score"]
    for t in range(4):
        clients = [Client(n, c, t, 5, local, data[n]) for n, c in enumerate(example.CAPACITIES)]
        batches = [
            [(c.data.batch(i), c.data.labels[i]) for i in batch_indices(local, 40, c.stream("batches"), False)]
            for c in clients
        ]
        x, score = example.one_round(module, x, score, batches)
        state, params, _ = federated_round(method, model, state, params, clients)
        torch.testing.assert_close(params.flat, x, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(state.tensors["score"], score, rtol=1e-4, atol=1e-7)


def test_the_readme_shows_the_api_example_as_it_is():
    readme = (ROOT / "README.md").read_text()
    assert (ROOT / "examples" / "digits.py").read_text().strip() in readme


def test_the_api_example_runs_and_learns(capsys):
    load("digits")
    accuracies = [float(line.split(": ")[1].split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert len(accuracies) == 5
    assert accuracies[0] > 0.9
    assert min(accuracies) > 0.5
    code = [line for line in (ROOT / "examples" / "digits.py").read_text(encoding="utf-8").splitlines()[1:] if line]
    assert len(code) == 15


@pytest.mark.slow
def test_the_experiment_from_python_runs_as_it_is_written(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "from_python.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "simulate(" in block]
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=True)
    final = json.loads((tmp_path / "runs" / "from-python" / "final.json").read_text())
    assert done.stdout.split()[0] == final["params_sha256"]


def test_the_metric_of_ones_own_is_the_accuracy_on_record(tmp_path, monkeypatch, capsys):
    overrides = ["federation.rounds=2", "federation.clients=20", "federation.cohort=5"]
    experiment = load_experiment(ROOT / "experiments" / "digits" / "fedfibos.toml", overrides)
    simulate(experiment, tmp_path / "run", workers=1)
    example = load("class_accuracy")
    line = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()[-1]
    recorded = json.loads(line)["evaluation"]["global"]["submodels"]
    matrices = example.confusion(tmp_path / "run")
    assert len(matrices) == 5
    for capacity, matrix in matrices.items():
        assert matrix.sum() == 360
        assert float(matrix.trace() / matrix.sum()) == pytest.approx(recorded[str(capacity)], abs=1e-6)
    monkeypatch.setattr(sys, "argv", ["class_accuracy.py", str(tmp_path / "run")])
    example.main()
    shown = capsys.readouterr().out.splitlines()
    assert [len(text.split()) for text in shown] == [12] * 5
    assert shown[0].startswith("capacity 1 ")
    assert float(shown[0].split()[2]) == pytest.approx(
        100 * float(matrices[1.0][0, 0] / matrices[1.0][0].sum()), abs=0.06
    )
    world = reopen(tmp_path / "run").world
    assert re.fullmatch(
        r"World\(FedFIbOS\(.*\), [\d,]+ parameters, 20 clients, 1,437 training and 360 test .*\)", repr(world)
    )


@pytest.mark.slow
def test_a_slice_of_the_pretrained_network_is_the_network_without_the_other_channels():
    """EfficientNet-Lite0: depthwise convolutions pass channels on, blocks of a stage add to the same ones."""
    example = load("pretrained")
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model = model_of(example.efficientnet_lite0(100, (3, 32, 32), size=32), example=images)
    assert (len(model.axes.sizes), model.axes.sizes["network._blocks.15._expand_conv"]) == (24, 1152)
    held, flat = prefix(model, 0.25), model.initial_params().flat
    assert (model.layout.num_maskable, held.num_held) == (3_457_092, 883_721)
    cut = model.workspace(held).load(held.gather(flat)).eval()
    with torch.no_grad():
        got = cut(images).clone()
        zeroed = torch.zeros_like(flat).index_copy(0, held.index, held.gather(flat))
        wanted = model.workspace(full(model.layout)).load(zeroed).eval()(images)
    assert got.shape == (4, 100)
    assert got.abs().max() > 0.1
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)


def tool(name, monkeypatch):
    """A script of the tools folder as a module."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_the_numbers_of_the_first_runs_are_those_of_the_records(monkeypatch):
    first_runs = tool("first_runs", monkeypatch)
    page = first_runs.PAGE.read_text(encoding="utf-8")
    assert first_runs.generate(page, ROOT / "results") == page


def test_the_picture_is_that_of_the_records(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    picture = tool("picture", monkeypatch)
    study = picture.load_nested(ROOT / "results" / "small")
    assert picture.picture(study) == picture.PICTURE.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        assert picture.caption(study) in " ".join(page.read_text(encoding="utf-8").split())


def test_the_criterion_of_ones_own_is_that_of_its_exponents(tmp_path, monkeypatch):
    """SNIP's is f̄^½·|x̃|: the same bytes."""
    monkeypatch.syspath_prepend(ROOT)
    small = ["federation.rounds=2", "federation.cohort=3"]
    named = ["method.name=fedfibos", "method.criterion=power", "method.exponents=[0.5,1]"]
    path = ROOT / "examples" / "own_criterion.toml"
    own = simulate(load_experiment(path, small), tmp_path / "own", workers=1)
    ours = simulate(load_experiment(path, [*small, *named]), tmp_path / "named", workers=1)
    default = simulate(load_experiment(path, [*small, named[0]]), tmp_path / "default", workers=1)
    assert own["params_sha256"] == ours["params_sha256"] != default["params_sha256"]


def test_the_findings_are_those_of_the_records(monkeypatch):
    """The pages are written from the records, and a sentence that they contradict stops it."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    findings = tool("findings", monkeypatch)
    for name, text in findings.pages(ROOT / "results").items():
        assert text == (ROOT / "docs" / name).read_text(), name
    words = importlib.import_module("evidence.words")
    with pytest.raises(SystemExit, match="says what the records do not"):
        words.claim(False, "FedFIbOS is best everywhere")


def test_what_the_findings_say_of_a_difference(monkeypatch):
    """Three pairs of mean 2 and standard deviation 1: half of the interval is 4.303 / √3 = 2.48."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    words = importlib.import_module("evidence.words")
    assert words.interval(Spread(0.02, 0.01, 3)) == "+2.0 [−0.5, +4.5]"
    said = [words.verdict(Spread(mean, sd, 3)) for mean, sd in ((0.03, 0.01), (-0.03, 0.01), (0.002, 0.002))]
    assert said == ["ahead", "behind", "equal within 1"]
    assert words.verdict(Spread(0.02, 0.01, 3)) == "not settled"
    assert words.verdict(Spread(0.02, None, 1)) == "not settled (one pair)"


def test_the_records_of_the_studies_are_what_their_files_plan():
    """A default that moves on must not make a committed number another experiment's."""
    compared = 0
    studies = sorted((ROOT / "experiments" / "small").glob("*.toml"))
    for path in (*studies, ROOT / "experiments" / "as-published" / "heterofl-mnist.toml"):
        folder = ROOT / "results" / path.parent.name / path.stem
        planned = {run.folder: run.experiment for run in load_study(path).runs}
        for config in stored_below(folder, "config.toml"):
            assert experiment_of(config.parent) == planned[config.parent.relative_to(folder)], config.parent
            compared += 1
    assert compared > 200
