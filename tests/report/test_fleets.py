"""Run directories of a Flower app in a report: beside each other, by seed; without evaluations they are only listed."""

import json
import shutil

import pytest

from fedfibos.cli import main
from fedfibos.report import build_report
from fedfibos.report.records import find_runs, read_record
from fedfibos.report.sorting import sort_records
from fedfibos.runs.archive import pack
from fedfibos.runs.reading import RecordError
from fedfibos.runs.summary import summarise

CONFIG = """seed = {seed}
[method]
name = "{method}"
[local]
steps = 20
lr = 0.1
[federation]
rounds = 2
cohort = 5
evaluate_every = 1
scores = "server"
device = "cpu"
wait = 120.0
[app]
data = "pump"
"""
ENVIRONMENT = {"commit": "0" * 40, "python": "3.11.7", "torch": "2.13.0", "cpu": "Some", "cores": 2, "device": "cpu"}


def write_fleet(folder, method, seed, accuracy, measured=True, scores=False):
    folder.mkdir(parents=True)
    rounds = []
    for number in (1, 2):
        line = {"round": number, "loss": 1.0, "participants": [0, 1, 2, 7], "rejected": {}, "seconds": 1.0}
        line |= {"bytes": {"down": 10, "up": 20}, "capacities": {"0": 1.0, "1": 0.25, "2": 0.25, "7": 0.0625}}
        if measured:
            submodels = {} if scores else {"1.0": accuracy, "0.25": accuracy - 0.1, "0.0625": accuracy - 0.2}
            mean = None if scores else accuracy - 0.1
            line["evaluation"] = {
                "global": {"full": accuracy, "submodels": {**submodels, "mean": mean}},
                "local": {"mean": None, "by_capacity": {}},
            }
        rounds.append(line)
    final = {"rounds": 2, "params_sha256": f"{seed}{method}", **(summarise(rounds) if measured else {})}
    (folder / "config.toml").write_text(CONFIG.format(seed=seed, method=method))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))
    (folder / "final.json").write_text(json.dumps(final))


def content(folder):
    return sort_records([read_record(path, name) for path, name in find_runs([folder]).items()])


@pytest.fixture
def fleet(tmp_path):
    for seed in (0, 1):
        write_fleet(tmp_path / "fleet" / f"fiarse-{seed}", "fiarse", seed, 0.5)
        write_fleet(tmp_path / "fleet" / f"heterofl-{seed}", "heterofl", seed, 0.4)
    return tmp_path / "fleet"


def test_a_fleet_is_a_problem_whose_methods_are_compared(fleet):
    (problem,) = content(fleet).problems
    assert problem.label == "Flower fleet, by owner, 25 % at 1, 50 % at 0.25, 25 % at 0.0625"
    assert problem.scale == "the app's model, 4 clients, 4 a round, 2 rounds"
    assert [(group.label, len(group.records)) for group in problem.groups] == [("HeteroFL", 2), ("FIARSE", 2)]
    (section,) = build_report([fleet]).sections
    assert [cell.text for cell in section.results.rows[1]] == [
        "FIARSE",
        "2",
        "50.0 ± 0.0",
        "40.0 ± 0.0",
        "30.0 ± 0.0",
        "–",
    ]
    (line,) = section.verdicts.lines
    assert line[1].startswith("HeteroFL: behind over the submodels (−10.0 points, −10.0 to −10.0; 2 seeds); ")


def test_a_task_the_server_and_weights_of_clients_are_read(fleet):
    """Weights of all eight clients, of which 0, 1, 2 and 7 took part."""
    config = fleet / "fiarse-0" / "config.toml"
    weights = "weighting = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]"
    text = config.read_text().replace("cohort = 5", f"cohort = 5\n{weights}")
    config.write_text(f'task = "regression"\n{text}[server]\nmerge = "median"\n')
    experiment = read_record(fleet / "fiarse-0", "fiarse-0").experiment
    assert experiment.federation.weighting == (1.0, 2.0, 3.0, 8.0)
    assert (experiment.server.merge, experiment.task.name) == ("median", "regression")


def test_a_cohort_that_grows_beyond_the_clients_that_came_is_read(fleet):
    config = fleet / "fiarse-0" / "config.toml"
    config.write_text(config.read_text().replace("cohort = 5", "cohort = 50\ngrow_from = 10\ngrow_over = 5\nextra = 3"))
    federation = read_record(fleet / "fiarse-0", "fiarse-0").experiment.federation
    assert (federation.cohort, federation.grow_from, federation.grow_over) == (4, 4, 5)
    config.write_text(config.read_text().replace("grow_from = 10", "grow_from = 2"))
    federation = read_record(fleet / "fiarse-0", "fiarse-0").experiment.federation
    assert federation.cohort_label == "2 to 4"


def test_another_app_s_settings_are_another_problem(fleet):
    write_fleet(fleet / "other", "fiarse", 0, 0.6)
    path = fleet / "other" / "config.toml"
    path.write_text(path.read_text().replace("pump", "fan"))
    assert [problem.label.rpartition(", ")[2] for problem in content(fleet).problems] == [
        "data = 'fan'",
        "data = 'pump'",
    ]


def test_where_clients_hold_their_scores_the_full_model_alone_is_shown(tmp_path):
    write_fleet(tmp_path / "fleet", "fedfibos", 0, 0.5, scores=True)
    (section,) = build_report([tmp_path / "fleet"]).sections
    assert [cell.text for cell in section.results.rows[0]] == ["FedFIbOS", "1", "50.0 (n = 1)", "–", "–", "–"]
    assert all(figure.wide for figure in section.figures)


def test_a_fleet_without_a_test_set_is_listed_and_in_no_table(fleet, tmp_path, capsys):
    write_fleet(fleet / "unmeasured", "fedrolex", 0, 0.5, measured=False)
    report = build_report([fleet])
    assert report.content.notes == ("fleet/unmeasured was never evaluated: it is in no table of results",)
    assert "fleet/unmeasured" in [row[0].text for row in report.runs.rows]
    assert main(["report", str(fleet / "unmeasured"), "--out", str(tmp_path / "r.html")]) == 0
    assert "None of these runs is finished and evaluated." in (tmp_path / "r.html").read_text()


def test_a_fleet_in_an_archive_is_read_as_its_folder(fleet):
    labels = [group.label for group in content(fleet).groups()]
    archive = pack(fleet)
    shutil.rmtree(fleet)
    assert [group.label for group in content(archive).groups()] == labels == ["HeteroFL", "FIARSE"]


def test_a_fleet_s_settings_that_cannot_be_are_one_line(fleet):
    path = fleet / "fiarse-0" / "config.toml"
    path.write_text(path.read_text().replace('"fiarse"', '"fierce"'))
    with pytest.raises(
        RecordError, match=r"fiarse-0/config\.toml: not the settings of a Flower app of this version: .*fiarse"
    ):
        content(fleet)
