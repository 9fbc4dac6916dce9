"""Fixtures of this room. An experiment with a score a client, for tests."""

from __future__ import annotations

import pytest
from score_homes import EXPERIMENT


@pytest.fixture
def toml(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(EXPERIMENT)
    return path
