"""Fixtures of this room. Run directories as a simulation would leave them, with numbers of our choice."""

from dataclasses import replace

import pytest
from made_runs import EXPERIMENT, seeds

from fedfibos.config.choices import MethodChoice


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "results"
    seeds(folder / "fedfibos", EXPERIMENT, 0.5, 0.6)
    seeds(folder / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")), 0.4, 0.4)
    return folder
