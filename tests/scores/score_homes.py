"""Runs of an experiment, for tests."""

from __future__ import annotations

from fedfibos.config.experiment import load_experiment
from fedfibos.simulation import simulate


def run(toml, out, *overrides, **options):
    return simulate(load_experiment(toml, overrides), out, **{"workers": 1, **options})
