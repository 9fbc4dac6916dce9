"""The table of what private runs have spent."""

import json
from dataclasses import replace

from made_runs import EXPERIMENT, content, seeds

from fedfibos.config.choices import MethodChoice
from fedfibos.privacy.settings import Privacy
from fedfibos.report.page import build_report
from fedfibos.report.spent import spent


def test_private_runs_are_in_a_table_with_their_epsilon(runs):
    private = replace(
        EXPERIMENT, method=MethodChoice("heterofl"), privacy=Privacy(1.0, 2.0, delta=0.001, sampling="known")
    )
    seeds(runs / "heterofl", private, 0.4, 0.5)
    for seed, epsilon in enumerate((3.0, 4.0)):
        path = runs / "heterofl" / f"seed-{seed}" / "final.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "epsilon": epsilon, "delta": 0.001}))
    found = content(runs)
    assert len(found.problems) == 1  # privacy is a setting that is compared, as a method is
    (table,) = spent(found.problems[0], "x")
    (row,) = [[cell.text for cell in row] for row in table.rows]
    assert row[0].startswith("HeteroFL")
    assert row[1:] == ["3.50 ± 0.71", "0.001", "2", "–", "no secret"]
    assert any(table.slug.startswith("privacy-") for table in build_report([runs]).tables())


def test_without_a_private_run_there_is_no_table(runs):
    assert spent(content(runs).problems[0], "x") == ()
