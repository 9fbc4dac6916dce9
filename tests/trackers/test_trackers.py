"""Trackers: TensorBoard's own file read back, the other libraries by what they are called with; none costs a run."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from fedfibos.common.extras import MissingExtraError
from fedfibos.config.experiment import load_experiment
from fedfibos.simulation import simulate
from fedfibos.trackers.numbers import numbers_in
from fedfibos.trackers.tracker import check_installed, tracked

CONFIG = 'seed = 3\n[method]\nname = "fedfibos"\n[federation]\ncapacities = { 1.0 = 1.0 }\n'
EVALUATION = {
    "global": {"full": 0.5, "submodels": {"0.5": 0.25, "mean": 0.25}},
    "local": {"mean": None, "by_capacity": {}},
    "metrics": {"accuracy": {"better": "higher", "share": True}},
    "kept_shares": {"0.5": {"w": 1.0}},
}
LINE = {
    "round": 2,
    "loss": 1.5,
    "rejected": {"3": "it failed"},
    "bytes": {"down": 7, "up": 9},
    "participants": [1, 3],
    "clients": {"1": {"loss": 2.0}},
    "evaluation": EVALUATION,
    "seconds": 0.5,
}
NUMBERS = {
    "loss": 1.5,
    "rejected": 1.0,
    "bytes/down": 7.0,
    "bytes/up": 9.0,
    "evaluation/global/full": 0.5,
    "evaluation/global/submodels/0.5": 0.25,
    "evaluation/global/submodels/mean": 0.25,
    "seconds": 0.5,
}


def test_numbers_of_a_line_are_curves_by_name():
    assert numbers_in(LINE) == NUMBERS


def events_in(folder):
    pytest.importorskip("tensorboard", reason="an extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_round_of_a_run(tmp_path):
    overrides = ("federation.rounds=3", "evaluation.every=2", "run.log=tensorboard")
    experiment = load_experiment("experiments/digits/fedfibos.toml", overrides)
    simulate(experiment, tmp_path / "run", workers=1)
    lines = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    events = events_in(tmp_path / "run/tensorboard")
    assert events["loss"] == [(line["round"], pytest.approx(line["loss"])) for line in lines]
    measured = [line for line in lines if "evaluation" in line]
    whole = [(line["round"], pytest.approx(line["evaluation"]["global"]["full"])) for line in measured]
    assert events["evaluation/global/full"] == whole
    assert len(whole) == 2


class Calls(list):
    def to(self, name, result=None):
        def call(*args, **kwargs):
            self.append((name, args, kwargs))
            return result

        return call


def fake(monkeypatch, name: str, calls: Calls) -> None:
    module = ModuleType(name)
    run = SimpleNamespace(log=calls.to("log"), finish=calls.to("finish"))
    module.init = calls.to("init", run)
    module.Settings = lambda **kwargs: kwargs
    monkeypatch.setitem(sys.modules, name, module)
    if name == "mlflow":
        experiment = SimpleNamespace(experiment_id="7")
        made = SimpleNamespace(info=SimpleNamespace(run_id="r1"))
        client = SimpleNamespace(
            get_experiment_by_name=calls.to("get", experiment),
            create_run=calls.to("create_run", made),
            log_param=calls.to("param"),
            log_metric=calls.to("metric"),
            set_terminated=calls.to("end"),
        )
        tracking = ModuleType("mlflow.tracking")
        tracking.MlflowClient = calls.to("client", client)
        monkeypatch.setitem(sys.modules, "mlflow.tracking", tracking)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_wandb_and_trackio_get_the_settings_and_every_round(tmp_path, monkeypatch, name):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    fake(monkeypatch, name, calls := Calls())
    with tracked([name], tmp_path / "run", CONFIG, 0) as log:
        log(LINE)
    assert [call[0] for call in calls] == ["init", "log", "finish"]
    init, logged = calls[0][2], calls[1]
    assert init["project"] == "fedfibos"
    assert init["name"] == "run"
    assert init["config"] == {"seed": 3, "method.name": "fedfibos", "federation.capacities.1.0": 1.0}
    assert logged[1:] == ((NUMBERS,), {"step": 2})
    if name == "wandb":
        assert init["mode"] == "offline"
        assert init["dir"] == str(tmp_path / "run")


def test_wandb_online_is_the_same_run_after_a_resumption(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    fake(monkeypatch, "wandb", calls := Calls())
    for finished in (0, 4):
        with tracked(["wandb"], tmp_path / "run", CONFIG, finished):
            pass
    first, second = (call[2] for call in calls if call[0] == "init")
    assert first["id"] == second["id"]
    assert first["resume"] == "allow"


def test_mlflow_gets_the_settings_and_every_round(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    fake(monkeypatch, "mlflow", calls := Calls())
    with tracked(["mlflow"], tmp_path / "run", CONFIG, 0) as log:
        log(LINE)
    assert calls[0] == ("client", (), {"tracking_uri": (tmp_path / "run/mlruns").as_uri()})
    assert ("param", ("r1", "seed", 3), {}) in calls
    assert [call[1:] for call in calls if call[0] == "metric"] == [
        (("r1", name, number), {"step": 2}) for name, number in NUMBERS.items()
    ]
    assert calls[-1] == ("end", ("r1",), {})


def test_a_tracker_that_fails_is_left_behind_and_the_others_go_on(tmp_path, monkeypatch):
    fake(monkeypatch, "trackio", calls := Calls())
    fake(monkeypatch, "wandb", Calls())

    def broken(*args, **kwargs):
        raise ConnectionResetError("the server is gone\nand more")

    monkeypatch.setattr(sys.modules["wandb"].init(), "log", broken)
    said = []
    with tracked(["wandb", "trackio"], tmp_path, CONFIG, 0, said.append) as log:
        log(LINE)
        log({**LINE, "round": 3})
    assert said == ["run.log: wandb takes no more rounds: ConnectionResetError: the server is gone"]
    assert [call[2]["step"] for call in calls if call[0] == "log"] == [2, 3]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_a_missing_package_is_one_line_with_the_command(monkeypatch, name, tmp_path):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"^{name} is not installed: pip install 'fedfibos\[{name}\]'$"):
        check_installed([name])
    experiment = load_experiment("experiments/digits/fedfibos.toml", (f"run.log={name}",))
    with pytest.raises(MissingExtraError):
        simulate(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("value", "said"),
    [("tensorbord", "did you mean 'tensorboard'"), ('["wandb", "wandb"]', "must be different trackers")],
)
def test_a_wrong_tracker_is_one_line(value, said):
    with pytest.raises(ValueError, match=said):
        load_experiment("experiments/digits/fedfibos.toml", (f"run.log={value}",))
