"""Whole runs: equal bytes for any number of workers, after any interruption; what goes wrong is said and survived."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfibos.config.experiment import load_experiment
from fedfibos.data import load
from fedfibos.models import MODELS
from fedfibos.round import NoUploadError
from fedfibos.simulation import CheckpointStore, Interrupted, simulate
from fedfibos.simulation import engine as engine_module
from fedfibos.simulation import world as world_module
from fedfibos.simulation.population import Parts
from fedfibos.simulation.world import build_world


@pytest.fixture
def toml(experiment_file) -> Path:
    return experiment_file("""
        seed = 3
        federation = { clients = 10, cohort = 4, rounds = 12, capacities = "uniform" }
        local.steps = 3
        evaluation.every = 4
        run.checkpoint_every = 3
    """)


def run(toml: Path, out: Path, *overrides: str, **options):
    return simulate(load_experiment(toml, overrides), out, **{"workers": 1, **options})


def records(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def without_times(lines: list[dict]) -> list[dict]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


CHANNELS = ("method.name=fedfibos-channels", "local.nested=0.5", "federation.capacities={1.0=0.5,0.5=0.5}")
PERSONAL = ("method.sharing=client", "method.prior=none", "evaluation.submodel_clients=1")


@pytest.mark.slow_where("overrides1", "overrides2")
@pytest.mark.parametrize("overrides", [(), PERSONAL, ("federation.assignment=dynamic", "federation.weighting=samples")])
def test_workers_do_not_matter(toml, tmp_path, overrides):
    one = run(toml, tmp_path / "one", *overrides)
    two = run(toml, tmp_path / "two", *overrides, workers=2)
    assert one["params_sha256"] == two["params_sha256"]
    assert without_times(records(tmp_path / "one")) == without_times(records(tmp_path / "two"))


def test_batch_norm_is_recalibrated_and_workers_do_not_matter(toml, tmp_path):
    overrides = ("model.name=cnn", "model.options={}", "model.norm=batch", "evaluation.recalibration_samples=100")
    one = run(toml, tmp_path / "one", *overrides)
    two = run(toml, tmp_path / "two", *overrides, workers=2)
    assert one["params_sha256"] == two["params_sha256"]
    assert one["global_accuracy"] == two["global_accuracy"]


@pytest.mark.slow_where("overrides1", "overrides2")
@pytest.mark.parametrize("overrides", [(), PERSONAL, CHANNELS])
def test_ctrl_c_finishes_the_round_and_resume_gives_the_same_bytes(toml, tmp_path, overrides):
    whole = run(toml, tmp_path / "whole", *overrides)

    def interrupt(record: dict) -> None:
        if record["round"] == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted) as stop:
        run(toml, tmp_path / "broken", *overrides, on_round=interrupt)
    assert stop.value.finished_rounds in (5, 6)
    assert not (tmp_path / "broken" / "final.json").exists()
    resumed = run(toml, tmp_path / "broken", *overrides, resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]
    assert without_times(records(tmp_path / "broken")) == without_times(records(tmp_path / "whole"))
    assert resumed["global_accuracy"] == whole["global_accuracy"]


def test_a_finished_run_goes_on_to_more_rounds_as_if_it_had_never_stopped(toml, tmp_path):
    """Parameters, accuracies and every line of the record but its seconds."""
    cadence = "evaluation.every=2"
    run(toml, tmp_path / "longer", "federation.rounds=3", cadence)
    longer = run(toml, tmp_path / "longer", "federation.rounds=7", cadence, resume=True)
    at_once = run(toml, tmp_path / "at once", "federation.rounds=7", cadence)
    assert {**longer, "seconds": 0} == {**at_once, "seconds": 0}
    of_both = [[{**line, "seconds": 0} for line in records(tmp_path / name)] for name in ("longer", "at once")]
    assert of_both[0] == of_both[1]
    assert (tmp_path / "longer" / "config.toml").read_text() == (tmp_path / "at once" / "config.toml").read_text()


@pytest.mark.slow_where("0.0", "0.4")
@pytest.mark.parametrize("delay", [0.0, 0.15, 0.4])
def test_sigkill_and_resume_give_the_same_bytes(toml, tmp_path, delay):
    overrides = ["federation.rounds=60", "run.checkpoint_every=2"]
    whole = run(toml, tmp_path / "whole", *overrides)
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "fedfibos", "run", str(toml), *overrides, "--out", str(out), "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoint/round-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, process.stderr.read()
    time.sleep(delay)
    process.kill()
    process.communicate()
    assert not (out / "final.json").exists()
    resumed = run(toml, out, *overrides, resume=True, workers=2)
    assert resumed["params_sha256"] == whole["params_sha256"]
    assert without_times(records(out)) == without_times(records(tmp_path / "whole"))


def test_a_damaged_checkpoint_costs_rounds_not_the_run(toml, tmp_path):
    whole = run(toml, tmp_path / "whole")
    out = tmp_path / "run"
    run(toml, out)
    (out / "final.json").unlink()
    newest = max((out / "checkpoint").glob("round-*"))
    with (newest / "params.safetensors").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\1\2\3")
    warnings: list[str] = []
    resumed = run(toml, out, resume=True, on_warning=warnings.append)
    assert any("is damaged" in text and newest.name in text for text in warnings)
    assert resumed["params_sha256"] == whole["params_sha256"]
    assert len(records(out)) == 12


def test_resuming_a_finished_run_changes_nothing(toml, tmp_path):
    first = run(toml, tmp_path / "run")
    lines = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    again = run(toml, tmp_path / "run", resume=True)
    assert again == first
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == lines


def poisoned(*arguments):
    """The digits, with pixels that are not numbers."""
    from dataclasses import replace

    split = load(*arguments)

    class Nan:
        def __init__(self, wrapped):
            self.wrapped, self.labels = wrapped, wrapped.labels

        def __len__(self):
            return len(self.wrapped)

        def batch(self, indices, augment=None):
            return self.wrapped.batch(indices, augment) * (1.0 if augment is None else float("nan"))  # in training

        def subset(self, indices):
            return Nan(self.wrapped.subset(indices))

    return replace(split, train=Nan(split.train))


def test_all_rejected_stops_with_every_name_and_keeps_the_checkpoint(toml, tmp_path, monkeypatch):
    out = tmp_path / "run"

    def interrupt(record: dict) -> None:
        if record["round"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(toml, out, on_round=interrupt)
    before = CheckpointStore(out).load_latest(_layout(toml), lambda text: None)
    monkeypatch.setattr(world_module, "load", poisoned)
    with pytest.raises(
        NoUploadError, match=r"^round 7: no usable upload in the round.*not finite.*\(3 rounds in turn\)$"
    ):
        run(toml, out, "federation.patience=3", resume=True)
    after = CheckpointStore(out).load_latest(_layout(toml), lambda text: None)
    assert (before.round, after.round) == (4, 6)  # the rounds that were skipped are on record
    assert torch.equal(after.params.flat, before.params.flat)


def _layout(toml: Path):
    world = build_world(load_experiment(toml, ()), device="cpu", data_dir=None, warn=lambda text: None)
    return world.model.layout


def test_dead_layers_and_unreachable_coordinates_are_warned_of(toml, tmp_path):
    warnings: list[str] = []
    overrides = ["federation.rounds=1", "federation.capacities={ 0.5 = 0.5, 0.002 = 0.5 }"]
    run(toml, tmp_path / "run", *overrides, on_warning=warnings.append)
    assert any(w.startswith("capacity 0.002: the submodel holds nothing of layer 'features.") for w in warnings)
    assert any("no client holds the whole model (largest capacity 0.5)" in w for w in warnings)
    assert all("\n" not in w for w in warnings)


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        (["method.sharing=client", "method.fisher=held", "method.prior=none"], True),
        (["method.sharing=client", "method.fisher=held", "method.dense_every=10"], False),
        (["method.sharing=client"], False),  # dense
        (["method.sharing=blend", "method.fisher=held"], False),  # the shared score learns from the full clients
    ],
)
def test_clients_that_never_learn_of_what_they_do_not_hold_are_warned_of(toml, tmp_path, settings, warned):
    warnings = []
    run(toml, tmp_path / "run", "federation.rounds=1", "method.name=fedfibos", *settings, on_warning=warnings.append)
    assert any("never learns of what it does not hold" in w for w in warnings) == warned


@pytest.mark.parametrize(("overrides", "warned"), [((), True), (("method.scaler=false",), False)])
def test_a_scaler_without_normalisation_is_warned_of(toml, tmp_path, overrides, warned):
    warnings: list[str] = []
    settings = ["federation.rounds=1", "federation.capacities={ 1.0 = 0.5, 0.5 = 0.5 }", "method.name=heterofl"]
    run(toml, tmp_path / "run", *settings, *overrides, on_warning=warnings.append)
    assert any("to undo the scaler, which works in training alone" in w for w in warnings) is warned


def test_small_clients_are_warned_of(toml, tmp_path):
    warnings: list[str] = []
    overrides = ["federation.rounds=1", "local.batch_size=500", "federation.clients=100", "federation.cohort=2"]
    run(toml, tmp_path / "run", *overrides, on_warning=warnings.append)
    assert any("fewer examples than the batch size of 500" in w for w in warnings)


@pytest.mark.parametrize(("norm", "warned"), [("batch", True), ("group", False)])
def test_clients_that_batch_normalisation_will_reject_are_warned_of(toml, norm, warned, monkeypatch):
    """One example is no batch to normalise over; other normalisations train on it."""
    sizes = [5, 1, 2, 1, 1, 3, 2, 2, 2, 2]
    dealt = Parts(list(torch.arange(sum(sizes)).split(sizes)))
    really = world_module.deal
    monkeypatch.setattr(world_module, "deal", lambda *arguments: replace(really(*arguments), parts=dealt))
    warnings: list[str] = []
    experiment = load_experiment(toml, ["model.name=cnn", f"model.norm={norm}", "model.options={channels=[8]}"])
    build_world(experiment, device="cpu", data_dir=None, warn=warnings.append)
    said = "3 of 10 clients (ids 1, 3, 4) have one training example and are rejected each time: batch normalisation"
    assert any(said in line for line in warnings) == warned


def test_workers_must_be_positive(toml, tmp_path):
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        run(toml, tmp_path / "run", workers=0)


def test_final_json_has_what_the_reports_need(toml, tmp_path):
    run(toml, tmp_path / "run")
    final = json.loads((tmp_path / "run" / "final.json").read_text())
    assert final["method"] == "fedfibos"
    assert (final["seed"], final["rounds"]) == (3, 12)
    assert len(final["params_sha256"]) == 64
    assert final["global_accuracy"]["full"].keys() == {"last", "last20", "best"}
    capacities = {"1.0", "0.5", "0.25", "0.125", "0.0625"}
    assert final["global_accuracy"]["submodels"].keys() == {*capacities, "mean"}
    assert final["local_accuracy"].keys() == {"mean", "by_capacity", "adjusted"}
    assert final["local_accuracy"]["adjusted"].keys() == {"mean", "by_capacity"}
    assert final["local_accuracy"]["by_capacity"].keys() == capacities
    assert final["bytes"]["down"] == sum(r["bytes"]["down"] for r in records(tmp_path / "run"))
    assert final["seconds"] > 0
    evaluated = [r for r in records(tmp_path / "run") if "evaluation" in r]
    assert [r["round"] for r in evaluated] == [4, 8, 12]
    assert final["global_accuracy"]["full"]["last"] == evaluated[-1]["evaluation"]["global"]["full"]
    assert set(evaluated[0]["evaluation"]["jaccard"]) == capacities - {"1.0"}
    assert evaluated[0]["evaluation"]["cv_f"] > 0


def test_validation_examples_are_kept_from_the_clients_and_stand_in_for_the_test_set(toml):
    test_set = build_world(load_experiment(toml), device="cpu", data_dir=None, warn=print).split
    tuning = load_experiment(toml, ["evaluation.validation=0.25"])
    world = build_world(tuning, device="cpu", data_dir=None, warn=print)
    held_out = round(0.25 * len(test_set.train))
    assert len(world.split.test) == held_out
    assert sum(len(part) for part in world.population.parts) == len(world.split.train)

    def images(*data):  # what they show, in an order of its own
        return torch.cat([d.batch(torch.arange(len(d))).flatten(1) for d in data]).sort(0).values

    assert torch.equal(images(world.split.train, world.split.test), images(test_set.train))


def test_the_environment_says_who_had_which_examples(toml, tmp_path):
    initial: list[str] = []

    def dealt(out: str, *overrides: str) -> str:
        run(toml, tmp_path / out, "federation.rounds=1", *overrides)
        made = json.loads((tmp_path / out / "environment.json").read_text())
        initial.append(made["initial_sha256"])
        return made["dealt_sha256"]

    first = dealt("fedfibos")
    assert dealt("fiarse", "method.name=fiarse", "local.steps=1") == first
    assert dealt("seed", "seed=4") != first
    assert dealt("alpha", "data.partition.alpha=0.4") != first
    assert [digest == initial[0] for digest in initial] == [True, True, False, True]


class ReadsStatistics(torch.nn.Module):
    """Training that depends on the running statistics, and so on the momentum that they are kept with."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 10)

    def forward(self, x):
        return self.last(self.norm(self.first(x.flatten(1))) + self.norm.running_mean)


def test_an_evaluation_leaves_no_trace_in_training(toml, tmp_path, monkeypatch):
    def reads(
        num_classes: int, input_shape: tuple[int, ...], norm: str = "batch", hidden: tuple[int, ...] = ()
    ) -> torch.nn.Module:
        return ReadsStatistics()

    monkeypatch.setitem(MODELS, "mlp", reads)
    ends = {run(toml, tmp_path / str(every), f"evaluation.every={every}")["params_sha256"] for every in (1, 5, 12)}
    assert len(ends) == 1

    def stop(record):
        if record["round"] == 8:
            raise SystemExit

    with pytest.raises(SystemExit):
        run(toml, tmp_path / "stopped", "evaluation.every=1", on_round=stop)
    assert run(toml, tmp_path / "stopped", "evaluation.every=1", resume=True)["params_sha256"] in ends


def test_a_failing_evaluation_costs_one_round(toml, tmp_path, monkeypatch):
    def failing(*args, **kwargs):
        raise RuntimeError("the disk of the test set is gone")

    whole = run(toml, tmp_path / "whole", "evaluation.every=5", "run.checkpoint_every=12")
    monkeypatch.setattr(engine_module, "evaluate", failing)
    with pytest.raises(RuntimeError, match="test set is gone"):
        run(toml, tmp_path / "failed", "evaluation.every=5", "run.checkpoint_every=12")
    assert CheckpointStore(tmp_path / "failed").load_latest(_layout(toml), print).round == 4
    monkeypatch.undo()
    resumed = run(toml, tmp_path / "failed", "evaluation.every=5", "run.checkpoint_every=12", resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]
    assert without_times(records(tmp_path / "failed")) == without_times(records(tmp_path / "whole"))


def test_graphs_on_a_cpu_change_nothing_and_that_is_said(toml, tmp_path):
    warnings: list[str] = []
    plain = run(toml, tmp_path / "plain", "federation.rounds=1")
    graphs = run(toml, tmp_path / "graphs", "federation.rounds=1", "run.cuda_graphs=true", on_warning=warnings.append)
    assert graphs["params_sha256"] == plain["params_sha256"]
    assert "run.cuda_graphs changes nothing on a CPU" in warnings
