"""A Flower server goes on past a damaged checkpoint, to the parameters of a run that was never broken off."""

from __future__ import annotations

import json
import shutil

import pytest
from local_grid import Deployment, experiment_of

PERSONAL = ("method.sharing=client", "method.prior=none")


@pytest.mark.parametrize("overrides", [(), PERSONAL])
def test_the_server_goes_on_from_the_checkpoint_before(tmp_path, overrides):
    whole = Deployment(experiment_of(tmp_path, *overrides)).run(tmp_path / "whole")
    Deployment(experiment_of(tmp_path, *overrides, "federation.rounds=2")).run(tmp_path / "short")
    for name, damage in {
        "round": lambda meta: {**meta, "round": 1},
        "rows": lambda meta: {**meta, "rows": {"0": "000000-000001.safetensors"}},
    }.items():
        run = tmp_path / name
        shutil.copytree(tmp_path / "short", run)
        path = run / "checkpoint" / "round-000002" / "meta.json"
        path.write_text(json.dumps(damage(json.loads(path.read_text())), indent=1) + "\n")
        resumed = Deployment(experiment_of(tmp_path, *overrides)).run(run, resume=True)
        assert resumed["params_sha256"] == whole["params_sha256"], name
