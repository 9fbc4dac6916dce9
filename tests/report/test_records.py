"""Records as a report reads them."""

from dataclasses import replace

import pytest
from made_runs import EXPERIMENT, content, seeds

from fedfibos.config.choices import MethodChoice
from fedfibos.report.records import find_runs, read_record
from fedfibos.report.rival import rival
from fedfibos.report.sorting import sort_records
from fedfibos.runs.reading import RecordError


def test_folders_of_equal_names_are_told_apart_by_what_is_above_them(tmp_path):
    for variant, prior in (("ours", "none"), ("started", "magnitude")):
        method = MethodChoice("fedfibos", None, {"prior": prior})
        seeds(tmp_path / "st" / variant / "lo", replace(EXPERIMENT, method=method), 0.5)
    runs = [tmp_path / "st" / variant / "lo" / "seed-0" for variant in ("ours", "started")]
    assert list(find_runs(runs).values()) == ["ours/lo/seed-0", "started/lo/seed-0"]
    (problem,) = sort_records([read_record(path, name) for path, name in find_runs(runs).items()]).problems
    assert rival(problem, "started").label == "FedFIbOS, prior = magnitude"


def test_a_finished_run_without_all_its_rounds_names_the_file(runs):
    path = runs / "fiarse" / "seed-0" / "rounds.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(RecordError, match=r"seed-0/rounds\.jsonl: must have the 4 rounds of a finished run, got 3"):
        content(runs)
    path.unlink()
    with pytest.raises(RecordError, match=r"rounds\.jsonl: must have the 4 rounds .*, there is no such file"):
        content(runs)
