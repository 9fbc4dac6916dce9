"""Fixtures of this room. A user's module and experiment, for tests."""

import sys

import pytest
from own_code import BARE, EXPERIMENT, MINE


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a user's module and experiment, as the current one."""
    (tmp_path / "mine_of_the_test.py").write_text(MINE)
    (tmp_path / "mine.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # main() adds the current folder
    yield tmp_path
    sys.modules.pop("mine_of_the_test", None)


@pytest.fixture
def bare(mine):
    """An experiment whose model takes no options."""
    (mine / "mine.toml").write_text(BARE)
    return mine
