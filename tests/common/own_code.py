"""A user's module and experiment, for tests."""

from pathlib import Path

from small_experiment import small_experiment

MINE = (Path(__file__).parents[1] / "fixtures" / "users_code.py").read_text(encoding="utf-8")


def own_experiment(model="net", options="hidden = 5"):
    """The small experiment on the user's data, with a model of the user's."""
    return small_experiment(f"""
data.name = "mine_of_the_test:points"
model = {{ name = "mine_of_the_test:{model}", options = {{ {options} }} }}
federation.clients = 4
local.batch_size = 5
""")


EXPERIMENT = own_experiment()
BARE = own_experiment(options="")

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
