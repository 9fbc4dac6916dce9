"""The audit of normalisation statistics, and both commands that look at a run's checkpoint."""

import itertools
import json

import pytest
import torch
from torch import nn

from fedfibos.analysis.audit import TestData as Examined
from fedfibos.analysis.audit import audit
from fedfibos.analysis.class_priors import ClassPriors
from fedfibos.cli import main
from fedfibos.cli.exit_codes import REFUSED
from fedfibos.common.streams import stream
from fedfibos.data import TensorData
from fedfibos.methods import FedAvg, FedFIbOS
from fedfibos.model import model_of
from fedfibos.training import LocalTraining
from fedfibos.types import Client
from small_experiment import small_experiment

CHANGES = """
federation.capacities = "uniform"
model = { name = "cnn", norm = "batch", options = { channels = [4, 4] } }
"""


class Sign(nn.Module):
    """Class 1 where the normalised input is above 0."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.scale = nn.Linear(1, 2, bias=False)
        self.scale.weight.data = torch.tensor([[-1.0], [1.0]])

    def forward(self, x):
        return self.scale(self.norm(x))


def two_clients():
    """Client 0 holds values around 0, client 1 around 100; the label is whether a value is above its client's mean."""
    values = torch.tensor([-1.0, 1.0, -1.0, 1.0] * 10 + [99.0, 101.0, 99.0, 101.0] * 10)[:, None]
    labels = torch.tensor([0, 1] * 40)
    return TensorData(values, labels), [torch.arange(40), torch.arange(40, 80)]


def measured(method, clients, batch_size=4, module=None, train=None, priors=None):
    model = model_of(module or Sign())
    params = model.initial_params()
    data, parts = two_clients()
    if priors is None:
        priors = ClassPriors.of(data.labels, parts, torch.arange(2).repeat_interleave(40), 2)
    test = Examined(data, parts, priors, data)
    train = train or (lambda n: data.subset(parts[n]))
    state = method.init(params)
    return audit(method, model, state, params, clients, train, test, stream(0, "shuffle"), batch_size=batch_size)


def client(number, capacity, lr=1e-30):
    return Client(id=number, capacity=capacity, round=7, seed=0, local=LocalTraining(steps=3, batch_size=40, lr=lr))


def test_batches_ordered_by_client_tell_the_label_and_other_statistics_do_not():
    result = measured(FedAvg(), [client(0, 1.0), client(1, 1.0)])
    assert (result["round"], result["batch_size"]) == (7, 4)
    assert result["statistics"] == ["recalibrated", "client_ordered", "shuffled"]
    found = result["capacities"]["1.0"]
    assert (found["clients"], found["examples"]) == ([0, 1], 80)
    for when in ("served", "trained"):  # at a rate of nothing, training changes nothing
        assert found[when]["client_ordered"] == {"all": 1.0, "own": 1.0}
        # both values of a client are on the same side of the common mean
        assert found[when]["recalibrated"] == {"all": 0.5, "own": 0.5}
        assert 0.5 <= found[when]["shuffled"]["all"] < 0.8


def test_ruling_out_the_classes_that_a_client_has_not_decides_its_accuracy():
    """Client 0 is said to have class 0 alone: half of its examples are then right, whatever the model answers."""
    data, parts = two_clients()
    labels = data.labels.clone()
    labels[:40] = 0
    priors = ClassPriors.of(labels, parts, torch.arange(2).repeat_interleave(40), 2)
    found = measured(FedAvg(), [client(0, 1.0)], priors=priors)["capacities"]["1.0"]["served"]
    assert found["client_ordered"] == {"all": 1.0, "own": 0.5}


def test_each_client_is_evaluated_on_what_its_own_training_makes_of_the_served_parameters():
    """From zero, equal logits call everything class 0. Client 0 learns the sign of its values, client 1 one class."""
    module = nn.Linear(1, 2)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    result = measured(FedAvg(), [client(0, 1.0, 0.1)], module=module)
    assert result["statistics"] == ["none"]
    found = result["capacities"]["1.0"]
    assert (found["served"]["none"]["all"], found["trained"]["none"]["all"]) == (0.5, 1.0)
    data, parts = two_clients()
    ones = data.subset(parts[1][1::2])
    found = measured(FedAvg(), [client(1, 1.0, 0.1)], module=module, train=lambda n: ones)["capacities"]["1.0"]
    assert (found["served"]["none"]["all"], found["trained"]["none"]["all"]) == (0.5, 0.5)


def test_a_last_batch_of_one_example_joins_the_one_before():
    # 80 = 26 · 3 + 2 and 80 = 79 + 1: alone, the last example would be normalised to 0, class 0
    found = measured(FedAvg(), [client(0, 1.0), client(1, 1.0)], batch_size=79)["capacities"]["1.0"]
    assert found["served"]["client_ordered"]["all"] == 0.5


def test_every_capacity_and_always_the_full_model():
    result = measured(FedFIbOS(), [client(0, 0.5), client(1, 0.5)])
    assert list(result["capacities"]) == ["1.0", "0.5"]
    assert result["capacities"]["0.5"]["clients"] == [0, 1]


def test_clients_are_spread_evenly_and_one_that_cannot_train_is_left_out():
    nobody = TensorData(torch.empty(0, 1), torch.empty(0, dtype=torch.int64))
    data, parts = two_clients()
    result = measured(
        FedAvg(), [client(0, 1.0), client(1, 1.0)], train=lambda n: data.subset(parts[0]) if n else nobody
    )
    assert result["capacities"]["1.0"]["clients"] == [1]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    (folder / "batch.toml").write_text(small_experiment(CHANGES))
    assert main(["run", str(folder / "batch.toml"), "--out", str(folder / "run"), "--workers", "1"]) == 0
    return folder / "run"


def test_the_audit_of_a_run_agrees_with_its_record(run, capsys):
    assert main(["audit", str(run), "--clients", "5"]) == 0
    assert "shuffled" in capsys.readouterr().out
    result = json.loads((run / "audit.json").read_text())
    assert list(result["capacities"]) == ["1.0", "0.5", "0.25", "0.125", "0.0625"]
    assert result["round"] == 2
    for found in result["capacities"].values():
        for when, way in itertools.product(("served", "trained"), ("client_ordered", "shuffled", "recalibrated")):
            assert all(0.0 <= found[when][way][classes] <= 1.0 for classes in ("all", "own"))
    final = json.loads((run / "final.json").read_text())
    local = final["local_accuracy"]["by_capacity"]["1.0"]["last"]
    assert result["capacities"]["1.0"]["served"]["recalibrated"]["all"] == pytest.approx(local)


def test_the_diagnosis_of_a_run(run, capsys):
    assert main(["diagnose", str(run), "--clients", "2", "--capacity", "0.25"]) == 0
    assert "…" not in capsys.readouterr().out
    result = json.loads((run / "diagnosis.json").read_text())
    assert (result["round"], result["clients"], list(result["capacities"])) == (2, [0, 2], ["0.25"])
    assert set(result["capacities"]["0.25"]["selections"]) == {"method", "fisher", "ssp", "magnitude", "random"}


@pytest.mark.parametrize("command", ["audit", "diagnose"])
def test_a_run_without_a_checkpoint_is_one_line(run, tmp_path, capsys, command):
    (tmp_path / "config.toml").write_bytes((run / "config.toml").read_bytes())
    assert main([command, str(tmp_path)]) == REFUSED
    assert capsys.readouterr().err.count("\n") == 1
    assert main([command, str(tmp_path / "nothing")]) == REFUSED
    assert "must be a run directory" in capsys.readouterr().err
