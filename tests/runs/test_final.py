"""``final.json`` read back: its first metric must be there, under its own name."""

from __future__ import annotations

import json

import pytest

from fedfibos.runs.final import read_final
from fedfibos.runs.reading import RecordError

CURVE = {"last": 1.0, "last20": 1.0, "best": 1.0}
RESULTS = {
    "method": "fedavg",
    "seed": 0,
    "params_sha256": "x",
    "metrics": {"mse": {"better": "lower", "share": False}},
    "global_mse": {"full": CURVE, "submodels": {"mean": CURVE}},
    "local_mse": {"mean": CURVE, "by_capacity": {}},
    "bytes": {"down": 1, "up": 1},
    "seconds": 1.0,
    "rejected": 0,
}


def written(folder, **changes):
    (folder / "final.json").write_text(json.dumps({**RESULTS, **changes}))
    return folder / "final.json"


def test_the_metric_that_comes_first_is_looked_for_under_its_name(tmp_path):
    assert read_final(written(tmp_path))["global_mse"]["full"]["last"] == 1.0
    accuracy = {"global_accuracy": RESULTS["global_mse"], "local_accuracy": RESULTS["local_mse"]}
    older = {**RESULTS, **accuracy}
    for key in ("metrics", "global_mse", "local_mse"):
        del older[key]
    (tmp_path / "final.json").write_text(json.dumps(older))
    assert read_final(tmp_path / "final.json")["global_accuracy"]["full"]["best"] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"global_mse": {"full": CURVE, "submodels": {}}},
            r"final.json is damaged: global_mse.submodels: it must have",
        ),
        ({"global_mse": {"full": {**CURVE, "last": "x"}, "submodels": {"mean": CURVE}}}, "global_mse.full.last"),
        (
            {"metrics": {"mae": {"better": "lower", "share": False}}},
            "final.json is damaged: global_mae: Field required",
        ),
        ({"metrics": {"mse": {"better": "up", "share": False}}}, "final.json is damaged: metrics.mse.better"),
        ({"metrics": {}}, "final.json is damaged: metrics"),
    ],
)
def test_what_is_damaged_is_one_line(tmp_path, changes, message):
    with pytest.raises(RecordError, match=message) as error:
        read_final(written(tmp_path, **changes))
    assert "\n" not in str(error.value)


def test_a_fleet_may_have_measured_nothing(tmp_path):
    (tmp_path / "final.json").write_text(json.dumps({"rounds": 2, "params_sha256": "x"}))
    assert read_final(tmp_path / "final.json", fleet=True)["rounds"] == 2
