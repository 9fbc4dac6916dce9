"""Which runs belong together, and which stay apart."""

import shutil
from dataclasses import replace

import pytest
from made_runs import EXPERIMENT, FEW, content, seeds, table, write_run

from fedfibos.config.choices import MethodChoice
from fedfibos.config.federation import Federation
from fedfibos.config.sections import Data
from fedfibos.report import build_report
from fedfibos.report.groups import Group
from fedfibos.report.looks import looks
from fedfibos.report.records import read_record
from fedfibos.runs.reading import RecordError


def test_only_the_seed_may_differ_within_a_number(runs):
    slower = replace(EXPERIMENT, local=replace(EXPERIMENT.local, lr=0.01))
    seeds(runs / "slower", slower, 0.7)
    (problem,) = content(runs).problems
    assert [(group.label, len(group.records)) for group in problem.groups] == [
        ("FIARSE", 2),
        ("FedFIbOS, lr = 0.01", 1),
        ("FedFIbOS, lr = 0.05", 2),
    ]
    spread = problem.groups[2].over_seeds("global_accuracy", "full", "last")
    assert (spread.mean, spread.sd, spread.n) == (pytest.approx(0.55), pytest.approx(0.0707107), 2)


def test_other_rounds_or_another_measurement_are_another_problem(runs):
    longer = replace(EXPERIMENT, federation=replace(EXPERIMENT.federation, rounds=6))
    write_run(runs / "longer", longer, (0.1, 0.2, 0.3))
    fewer = replace(EXPERIMENT, evaluation=replace(EXPERIMENT.evaluation, submodel_clients=3))
    write_run(runs / "fewer", fewer)
    tuning = replace(EXPERIMENT, evaluation=replace(EXPERIMENT.evaluation, validation=0.1))
    write_run(runs / "tuning", tuning)
    labels = [(problem.label, problem.scale) for problem in content(runs).problems]
    scale = "resnet8 (group norm), 100 clients, 10 a round, {} rounds"
    assert any(scale.format(4) + ", measured on validation examples" in pair for pair in labels)
    assert ("CIFAR-10, 2 classes a client, non-uniform, 6 rounds", scale.format(6)) in labels
    assert ("CIFAR-10, 2 classes a client, non-uniform, 4 rounds, submodel_clients = 3", scale.format(4)) in labels
    assert len({label for label, _ in labels}) == len(labels) == 4


def test_bytes_of_scores_and_cadence_of_evaluations_keep_runs_apart(tmp_path):
    """The first changes results; of the second "best" and "until an accuracy" are made."""
    half = replace(EXPERIMENT, run=replace(EXPERIMENT.run, score_bytes=2, score_home="disk"))
    write_run(tmp_path / "whole", EXPERIMENT)
    write_run(tmp_path / "half", replace(half, seed=1), digest="cd" * 32)
    (problem,) = content(tmp_path).problems
    assert [len(group.records) for group in problem.groups] == [1, 1]
    often = replace(EXPERIMENT.evaluation, every=EXPERIMENT.evaluation.every + 1)
    write_run(tmp_path / "often", replace(EXPERIMENT, evaluation=often, method=MethodChoice("fiarse")))
    assert len(content(tmp_path).problems) == 2


def test_settings_that_change_nothing_keep_runs_together(runs):
    unused = replace(EXPERIMENT.data, partition=replace(FEW, alpha=0.7))
    write_run(runs / "third", replace(EXPERIMENT, seed=2, data=unused, run=replace(EXPERIMENT.run, checkpoint_every=3)))
    (problem,) = content(runs).problems
    assert [len(group.records) for group in problem.groups] == [2, 3]


def test_one_run_twice_counts_once_and_two_results_of_one_seed_are_refused(runs, tmp_path):
    shutil.copytree(runs / "fedfibos" / "seed-0", runs / "copy")
    sorted_ = content(runs)
    assert [len(group.records) for group in sorted_.problems[0].groups] == [2, 2]
    assert "results/fedfibos/seed-0 has the settings, seed and results of results/copy" in sorted_.notes[0]
    write_run(runs / "again", EXPERIMENT, digest="cd" * 32)
    with pytest.raises(RecordError, match="same experiment and seed with different results"):
        content(runs)


def test_a_ceiling_stands_beside_what_it_is_the_ceiling_of(runs):
    fleet = replace(EXPERIMENT.federation, capacities={1.0: 1.0})
    ceiling = replace(EXPERIMENT, method=MethodChoice("fedavg"), federation=fleet)
    write_run(runs / "ceiling", ceiling, (0.5, 0.95))
    report = build_report([runs])
    assert len(report.sections) == 1
    reference = [cell.text for cell in table(report, "results").rows[-1]]
    assert reference[0] == "reference: FedAvg, all clients at 1"
    assert reference[2] == "95.0 (n = 1)"
    assert not any(cell.bold for cell in table(report, "results").rows[-1])
    assert dict(report.facts)["finished runs"] == "5"
    assert len(table(report, "runs").rows) == 5
    write_run(runs / "other data", replace(ceiling, data=Data("cifar100", FEW)))
    assert len(content(runs).problems) == 2


def test_methods_of_one_s_own_are_told_apart_in_figures(tmp_path):
    def group(name):
        record = read_record(tmp_path / "run")
        changed = replace(record.experiment.method, name=name, settings={})
        return Group(
            name.partition(":")[2] or name, (replace(record, experiment=replace(record.experiment, method=changed)),)
        )

    write_run(tmp_path / "run", EXPERIMENT)
    found = looks([group("fiarse"), group("mine:A"), group("mine:B"), group("mine:C")])
    assert len({look.colour for look in found.values()}) == 4


def test_a_ceiling_stands_beside_a_fleet_that_is_assigned(tmp_path):
    assigned = [1.0] * 50 + [0.5] * 50
    fleet = Federation(clients=100, cohort=10, rounds=4, assigned=assigned)
    write_run(tmp_path / "fedfibos", replace(EXPERIMENT, federation=fleet))
    ceiling = replace(
        EXPERIMENT, method=MethodChoice("fedavg"), federation=replace(EXPERIMENT.federation, capacities={1.0: 1.0})
    )
    write_run(tmp_path / "ceiling", ceiling)
    (problem,) = content(tmp_path).problems
    assert [group.label for group in problem.references] == ["FedAvg, all clients at 1"]
