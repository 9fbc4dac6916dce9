"""What runs on a CPU runs on another device, to the same numbers: nothing is left behind on the CPU by mistake.

The other device is compiled by ``conftest.py`` from ``device.cpp``.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import fedfibos.backend.workspace
from fedfibos.analysis.cost import cost
from fedfibos.backend.topk import top_k
from fedfibos.cli.audit import audit_run
from fedfibos.cli.diagnose import diagnose_run
from fedfibos.config.experiment import load_experiment
from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.simulation import simulate
from fedfibos.simulation.reopen import reopen
from fedfibos.training import LocalTraining

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
DIGITS = HERE.parents[1] / "experiments" / "digits" / "fedavg.toml"
BASE = [
    "model={name='cnn',norm='batch',options={channels=[8,16]}}",
    "federation={rounds=3,clients=20,cohort=5,capacities='uniform'}",
    "local={steps=4,batch_size=8,lr=0.05}",
    "data.partition={scheme='pathological',classes_per_client=2}",
    "evaluation.every=1",
    "run={checkpoint_every=1,score_home='memory'}",
]
FEDFIBOS = "method.name='fedfibos'"
VARIANTS = {
    "fedavg": ["method.name='fedavg'", "method.capacity=1.0"],
    "fedavg, narrow": ["method.name='fedavg'", "method.capacity=0.5"],
    "heterofl": ["method.name='heterofl'"],
    "heterofl, masked labels": ["method.name='heterofl'", "local.absent_labels='mask'"],
    "fedrolex": ["method.name='fedrolex'"],
    "fedbrb": ["method.name='fedbrb'"],
    "fiarse": ["method.name='fiarse'"],
    "fiarse, layer": ["method.name='fiarse'", "method.scope='layer'"],
    "fiarse, released": ["method.name='fiarse'", "method.preset='released'"],
    "fedfibos": [FEDFIBOS],
    "fedfibos, layer": [FEDFIBOS, "method.scope='layer'"],
    "algorithm1": [FEDFIBOS, "method.preset='algorithm1'"],
    "algorithm1, disk": [FEDFIBOS, "method.preset='algorithm1'", "run.score_home='disk'"],
    "held, per client": [FEDFIBOS, "method.sharing='client'", "method.fisher='held'"],
    "ssp, no prior": [FEDFIBOS, "method.criterion='ssp'", "method.prior='none'"],
    "ssp, blend, no prior": [FEDFIBOS, "method.criterion='ssp'", "method.prior='none'", "method.sharing='blend'"],
    "blend of the budget": [FEDFIBOS, "method.sharing='blend'", "method.blend_of='budget'", "method.scope='layer'"],
    "random": [FEDFIBOS, "method.criterion='random'"],
    "magnitude": [FEDFIBOS, "method.criterion='magnitude'"],
    "literal": [FEDFIBOS, "method.fisher='literal'", "method.average='participants'"],
    "dense now and then": [FEDFIBOS, "method.dense_every=2"],
    "estimates now and then": [FEDFIBOS, "method.estimate_every=2"],
    "per example": [FEDFIBOS, "method.fisher_from='per_example'", "model.norm='group'"],
    "adamw, clipping": [FEDFIBOS, "local.optimizer='adamw'", "local.lr=0.01", "local.clip_norm=0.5"],
    "momentum, epochs": [FEDFIBOS, "local={epochs=1,batch_size=8,lr=0.05,momentum=0.9,weight_decay=0.001}"],
}
ROUNDING = 2e-6
"""Largest difference of a parameter: kernels that vectorise otherwise round otherwise."""

CHOICES, DISCONTINUOUS = ("ssp, no prior", "adamw, clipping"), 1e-3
"""Scores and moments near zero, where rounding turns into another choice."""


class Watched:
    """A recorder that runs the step instead, on a device that refuses what a recording cannot hold."""

    def __init__(self) -> None:
        self.recordings = 0

    def __call__(self, function):
        def run() -> None:
            torch.ops.elsewhere.record(True)
            try:
                function()
            finally:
                torch.ops.elsewhere.record(False)

        run()
        self.recordings += 1
        runs_left_out = [True]  # recording ran it, which it must not: the first replay does nothing instead

        def replay() -> None:
            if runs_left_out:
                runs_left_out.pop()
            else:
                run()

        return replay


@pytest.fixture
def device() -> torch.device:
    return torch.device("elsewhere")


@pytest.fixture
def watched(monkeypatch) -> Watched:
    record = Watched()
    monkeypatch.setattr(fedfibos.backend.workspace, "recorder", lambda device: None if device.type == "cpu" else record)
    return record


def test_the_device_refuses_to_mix(device):
    ours, theirs = torch.ones(3, device=device), torch.ones(3)
    assert (ours * 2 + 1).cpu().tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="device"):
        ours + theirs
    with pytest.raises(RuntimeError, match="device"):
        theirs.add_(ours)
    with pytest.raises(RuntimeError, match="device"):
        ours.index_select(0, torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("what", "step"),
    [
        ("a copy between devices", lambda x: x + torch.ones(3).to(x.device)),
        ("a value is read", lambda x: x * float(x.sum())),
        ("a value is read", lambda x: bool(x.isfinite().all())),
        ("waits for values", lambda x: x[x > 0]),
        ("waits for values", lambda x: x.nonzero()),
        ("a copy between devices", lambda x: x[torch.tensor([0, 1])]),
    ],
)
def test_the_device_refuses_what_a_recording_cannot_hold(what, step, device, watched):
    x = torch.ones(3, device=device)
    step(x)
    with pytest.raises(RuntimeError, match=what):
        watched(lambda: step(x))
    watched(lambda: x.mul_(2.0))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_simulation_gives_the_same_numbers(variant, device, tmp_path, watched):
    experiment = load_experiment(DIGITS, [*BASE, *VARIANTS[variant]])
    recorded = load_experiment(DIGITS, [*BASE, *VARIANTS[variant], "run.cuda_graphs=true"])
    ends, finals, recordings = [], [], []
    for name, what, where in (("cpu", experiment, "cpu"), ("plain", experiment, device), ("side", recorded, device)):
        finals.append(simulate(what, tmp_path / name, workers=1, device=str(where)))
        ends.append(reopen(tmp_path / name).checkpoint.params.flat)
        recordings.append(watched.recordings)
    for end, final in zip(ends[1:], finals[1:], strict=True):
        assert torch.allclose(ends[0], end, rtol=0, atol=DISCONTINUOUS if variant in CHOICES else ROUNDING)
        assert finals[0]["bytes"] == final["bytes"]
    assert recordings[:2] == [0, 0]
    assert recordings[2] >= 3 * 5  # every client's step of every round
    again = simulate(recorded, tmp_path / "again", workers=1, device=str(device))
    assert again["params_sha256"] == finals[2]["params_sha256"]


@pytest.mark.parametrize("variant", ["fedfibos", "algorithm1", "algorithm1, disk", "fedrolex"])
def test_a_resumed_run_ends_with_the_same_bytes(variant, device, tmp_path):
    experiment = load_experiment(DIGITS, [*BASE, *VARIANTS[variant]])
    whole = simulate(experiment, tmp_path / "whole", device=str(device))

    class Stop(Exception):
        pass

    def stop(record):
        if record["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        simulate(experiment, tmp_path / "broken", device=str(device), on_round=stop)
    resumed = simulate(experiment, tmp_path / "broken", device=str(device), resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]


@pytest.mark.parametrize("variant", ["fedfibos", "algorithm1", "fiarse"])
def test_audit_and_diagnosis_give_the_same_numbers(variant, device, tmp_path):
    experiment = load_experiment(DIGITS, [*BASE, *VARIANTS[variant]])
    simulate(experiment, tmp_path / "run", workers=1)
    found = []
    for where in ("cpu", str(device)):
        audit_run(tmp_path / "run", 20, 3, None, where, Console(file=io.StringIO()))
        diagnose_run(tmp_path / "run", 2, (), None, where, Console(file=io.StringIO()))
        found.append([json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in ("audit", "diagnosis")])
    assert list(numbers(found[0])) == pytest.approx(list(numbers(found[1])), rel=1e-3, abs=1e-6)
    assert len(list(numbers(found[0]))) > 100


def numbers(found):
    if isinstance(found, dict | list):
        for value in found.values() if isinstance(found, dict) else found:
            yield from numbers(value)
    elif isinstance(found, int | float):
        yield float(found)


@pytest.mark.parametrize("name", METHODS)
def test_costs_are_the_same(name, device):
    found = []
    for where in (torch.device("cpu"), device):
        module = build("cnn", 4, (1, 8, 8), norm="batch", seed=1, channels=(8, 16))
        model = model_of(module, example=torch.zeros(2, 1, 8, 8), device=where)
        data = TensorData(torch.randn(8, 1, 8, 8), torch.arange(8) % 4)
        found.append(cost(METHODS[name](), model, 0.5, data, LocalTraining(steps=1, batch_size=4)))
    here, there = found
    assert replace(here, memory=0, tensors=0) == replace(there, memory=0, tensors=0)
    batch = 4 * (64 * 4 + 8)  # a copy of four images and labels lies on the device
    assert here.tensors <= there.tensors <= here.tensors + 2 * batch


def test_selection_is_exact(device):
    scores = torch.randn(300_000, generator=torch.Generator().manual_seed(0)).square()
    for k in (1, 7, 20_000, 70_000, 150_000, 299_999):
        assert torch.equal(top_k(scores.to(device), k).cpu(), top_k(scores, k))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-m", "slow"]))
