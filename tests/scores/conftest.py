"""Fixtures of this room. An experiment with a score a client, for tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def toml(experiment_file):
    return experiment_file("""
        method.sharing = "client"
        federation.rounds = 6
        evaluation.every = 6
        run.checkpoint_every = 4
    """)
