"""An experiment with a score a client, for tests."""

from __future__ import annotations

from fedfibos.config.experiment import load_experiment
from fedfibos.simulation import simulate

EXPERIMENT = """
seed = 3
[data]
name = "digits"
[model]
name = "mlp"
options = { hidden = [16] }
[federation]
clients = 8
cohort = 4
rounds = 6
capacities = { "1.0" = 0.25, "0.5" = 0.25, "0.25" = 0.5 }
[method]
name = "fedfibos"
sharing = "client"
[local]
steps = 2
[evaluation]
every = 6
[run]
checkpoint_every = 4
"""


def run(toml, out, *overrides, **options):
    return simulate(load_experiment(toml, overrides), out, **{"workers": 1, **options})
