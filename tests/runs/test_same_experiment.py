"""With what a run may be gone on with."""

from dataclasses import replace

import pytest
from run_lines import line

from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.runs.reading import RecordError
from fedfibos.runs.record import RunDirectory

EVALUATION = {"global": {"full": 0.5, "submodels": {"mean": None}}, "local": {"mean": None, "by_capacity": {}}}


def test_more_rounds_are_the_same_experiment_to_go_on_with(tmp_path, experiment):
    """Nothing changes before it is known that there is a checkpoint; then the last round is no longer the last."""
    out = tmp_path / "run"
    directory = RunDirectory.open(out, to_toml(experiment), resume=False)
    for number in (1, 2, 3):
        directory.append_round(line(number, evaluation=EVALUATION) if number == 3 else line(number))
    directory.finish({"rounds": 3})
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    longer = load_experiment(tmp_path / "experiment.toml", ["federation.rounds=5"])
    with pytest.raises(RecordError, match=r"federation\.rounds is 3 there, got 5"):
        RunDirectory.open(out, to_toml(longer), resume=False)
    directory = RunDirectory.open(out, to_toml(longer), resume=True)
    with pytest.raises(RecordError, match="is finished and no sound checkpoint is left of it"):
        directory.go_on(0, to_toml(longer))
    (out / ".lock").unlink()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    warned = []
    directory.go_on(3, to_toml(longer), warned.append)
    assert len(warned) == 1
    assert warned[0].startswith("the evaluation of round 3 is no longer on record: it was made because the round was ")
    directory.go_on(3, to_toml(longer), warned.append)
    assert len(warned) == 1
    assert (out / "config.toml").read_text() == to_toml(longer)
    assert not (out / "final.json").exists()
    assert directory.rounds() == [line(1), line(2), line(3)]
    with pytest.raises(RecordError, match=r"federation\.rounds is 5 there, got 3"):
        RunDirectory.open(out, to_toml(experiment), resume=True)


@pytest.mark.parametrize(
    ("both", "more", "message"),
    [
        (["local.schedule=cosine"], [], "federation.rounds is 3 there, got 5"),  # every round's rate would be another
        ([], ["seed=1"], "seed is 0 there, got 1"),
    ],
)
def test_more_rounds_of_another_experiment_are_refused(tmp_path, experiment, both, more, message):
    path, out = tmp_path / "experiment.toml", tmp_path / "run"
    RunDirectory.open(out, to_toml(load_experiment(path, both)), resume=False).append_round(line(1))
    longer = to_toml(load_experiment(path, [*both, *more, "federation.rounds=5"]))
    with pytest.raises(RecordError) as caught:
        RunDirectory.open(out, longer, resume=True)
    assert message in str(caught.value)


def test_what_changes_no_round_may_be_another_when_a_run_is_gone_on_with(tmp_path, experiment):
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False).append_round(line(1))
    other = load_experiment(tmp_path / "experiment.toml", ["run.checkpoint_every=3", "evaluation.batch_size=7"])
    with pytest.raises(RecordError, match=r"holds another experiment: evaluation\.batch_size is 500 there, got 7"):
        RunDirectory.open(out, to_toml(other), resume=False)
    RunDirectory.open(out, to_toml(other), resume=True).go_on(1, to_toml(other))
    assert load_experiment(out) == other


def test_a_flower_run_goes_on_with_another_deadline_and_more_rounds(tmp_path):
    config = '[federation]\nrounds = {}\nmin_participants = {}\nevaluate_every = 2\n[local]\nschedule = "constant"\n'
    out = tmp_path / "run"
    directory = RunDirectory.open(out, config.format(3, 4), resume=False)
    for number in (1, 2, 3):
        directory.append_round(line(number, evaluation=EVALUATION) if number > 1 else line(number))
    del directory
    again = RunDirectory.open(out, config.format(5, 2), resume=True)
    again.go_on(3, config.format(5, 2))
    assert (out / "config.toml").read_text() == config.format(5, 2)
    assert again.rounds() == [line(1), line(2, evaluation=EVALUATION), line(3)]
    with pytest.raises(RecordError, match=r"federation\.rounds is 5 there, got 3"):
        RunDirectory.open(out, config.format(3, 2), resume=True)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("local.lr=0.1", "holds another experiment: local.lr is 0.05 there, got 0.1"),
        ("seed=1", "holds another experiment: seed is 0 there, got 1"),
        ("method.name=fedavg", "holds another experiment: method.name is 'fedfibos' there, got 'fedavg'"),
        ("local.steps=5", "holds another experiment: local.steps is not set there, got 5"),
        (
            "federation.capacities={1.0=1}",
            "holds another experiment: federation.capacities.1.0 is 0.2 there, got 1",
        ),
    ],
)
def test_another_experiment_is_refused_and_left_alone(tmp_path, experiment, override, message, resume):
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False).append_round(line(1))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = load_experiment(tmp_path / "experiment.toml", [override])
    with pytest.raises(RecordError) as caught:
        RunDirectory.open(out, to_toml(other), resume=resume)
    assert message in str(caught.value)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_run_from_before_a_setting_existed_goes_on(tmp_path, experiment):
    """What its file does not have was what it is by default; another value is another experiment."""
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False).append_round(line(1))
    text = (out / "config.toml").read_text()
    assert "held = []\n" in text
    (out / "config.toml").write_text(text.replace("held = []\n", ""))
    RunDirectory.open(out, to_toml(experiment), resume=True)
    other = replace(experiment, model=replace(experiment.model, held=("classifier",)))
    with pytest.raises(RecordError, match=r"model.held is \[\] there, got \['classifier'\]"):
        RunDirectory.open(out, to_toml(other), resume=True)


def test_a_run_is_not_gone_on_with_on_other_examples(tmp_path, experiment):
    """Another numpy may draw another partition from the same seed, and other files hold other examples."""
    out = tmp_path / "run"
    RunDirectory.open(out, to_toml(experiment), resume=False, began={"dealt_sha256": "aa"}).append_round(line(1))
    RunDirectory.open(out, to_toml(experiment), resume=True, began={"dealt_sha256": "aa"})
    before = (out / "environment.json").read_bytes()
    with pytest.raises(RecordError, match=r"holds a run whose clients had other examples: .* choose another --out"):
        RunDirectory.open(out, to_toml(experiment), resume=True, began={"dealt_sha256": "bb"})
    assert (out / "environment.json").read_bytes() == before
