"""What makes a comparison unfair is said."""

import json
from dataclasses import replace

import pytest
from made_runs import ENVIRONMENT, EXPERIMENT, content, seeds, table, write_run

from fedfibos.config.choices import MethodChoice
from fedfibos.report import build_report
from fedfibos.training import LocalTraining


def test_unequal_budgets_are_said(runs):
    assert content(runs).problems[0].unlike() == ""
    write_run(runs / "more", replace(EXPERIMENT, local=LocalTraining(steps=50), method=MethodChoice("heterofl")))
    assert "no comparison at equal cost" in content(runs).problems[0].unlike()
    masking = replace(EXPERIMENT.local, absent_labels="mask")
    write_run(runs / "masking", replace(EXPERIMENT, local=masking, method=MethodChoice("fedrolex")))
    assert "(absent_labels) differs here" in content(runs).problems[0].unlike()


@pytest.mark.parametrize(
    ("key", "said"),
    [("dealt_sha256", "Clients had other examples"), ("initial_sha256", "The model began with other values")],
)
def test_runs_of_a_seed_that_began_otherwise_are_no_pair(runs, key, said):
    def dealt(run, digest):
        (runs / run / "environment.json").write_text(json.dumps({**ENVIRONMENT, key: digest}))

    dealt("fedfibos/seed-0", "aa")
    assert content(runs).problems[0].unlike() == ""  # the other record does not say
    dealt("fiarse/seed-0", "aa")
    assert content(runs).problems[0].unlike() == ""
    dealt("fiarse/seed-0", "bb")
    assert content(runs).problems[0].unlike().startswith(f"{said} in some runs of seed 0 ({key} in ")
    assert [cell.text for cell in table(build_report([runs]), "differences").rows[0][1:3]] == ["1", "−20.0 (n = 1)"]


def test_methods_that_hold_more_than_their_capacity_are_named(tmp_path):
    seeds(tmp_path / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")), 0.4)
    seeds(tmp_path / "fedavg", replace(EXPERIMENT, method=MethodChoice("fedavg")), 0.6)
    for name, share in (("fiarse", 0.07), ("fedavg", 1.0)):
        path = tmp_path / name / "seed-0" / "rounds.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "evaluation" in line:
                line["evaluation"]["shares"] = {"1.0": 1.0, "0.0625": share}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (problem,) = content(tmp_path).problems
    assert problem.unlike() == (
        "Clients hold more than their capacities with FedAvg (“share held”): no comparison at equal capacity."
    )
