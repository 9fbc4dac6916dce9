"""A user's module and experiment, for tests."""

from pathlib import Path

MINE = (Path(__file__).parents[1] / "fixtures" / "users_code.py").read_text(encoding="utf-8")

EXPERIMENT = """
data.name = "mine_of_the_test:points"
model = { name = "mine_of_the_test:net", options = { hidden = 5 } }
method.name = "fedfibos"
federation = { clients = 4, cohort = 2, rounds = 2, capacities = { 1.0 = 0.5, 0.5 = 0.5 } }
local = { steps = 2, batch_size = 5 }
"""

OWN = ["run", "mine.toml", "--workers", "1", "--out", "run", "federation.rounds=1"]

AUTOENCODER = """
from dataclasses import dataclass
from torch import nn
from fedfibos.methods.fiarse import FIARSE
class Net(nn.Module):
    def __init__(self, num_classes, input_shape):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, num_classes)
    def encode(self, x):
        return self.first(x).relu()
    def units(self):
        return ["metres"]
    def forward(self, x):
        return self.last(self.encode(x))
@dataclass(frozen=True)
class Scored(FIARSE):
    importance: float = 0.5
"""
