"""The audit of normalisation statistics, and both commands that look at a run's checkpoint."""

import json

import pytest
import torch
from torch import nn

from fedfibos.analysis.audit import audit
from fedfibos.cli import main
from fedfibos.cli.exit_codes import REFUSED
from fedfibos.common.streams import stream
from fedfibos.data import TensorData
from fedfibos.methods import FedAvg, FedFIbOS
from fedfibos.model import model_of
from fedfibos.training import LocalTraining
from fedfibos.types import Client

EXPERIMENT = """
[data]
name = "digits"
[model]
name = "cnn"
norm = "{norm}"
options = {{ channels = [4, 4] }}
[federation]
clients = 5
cohort = 2
rounds = 2
[method]
name = "fedfibos"
[local]
steps = 2
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


def measured(method, clients, batch_size=4):
    model = model_of(Sign())
    params = model.initial_params()
    data, parts = two_clients()
    arguments = (method, model, method.init(params), params, clients, data, parts, data, stream(0, "shuffle"))
    return audit(*arguments, batch_size=batch_size)


def client(number, capacity):
    return Client(id=number, capacity=capacity, round=7, seed=0, local=LocalTraining())


def test_batches_ordered_by_client_tell_the_label_and_other_statistics_do_not():
    result = measured(FedAvg(), [client(0, 1.0), client(1, 1.0)])
    assert (result["round"], result["batch_size"], result["examples"]) == (7, 4, 80)
    found = result["capacities"]["1.0"]
    assert found["client_ordered"] == 1.0
    assert found["recalibrated"] == 0.5  # both values of a client are on the same side of the common mean
    assert 0.5 <= found["shuffled"] < 0.8


def test_a_last_batch_of_one_example_joins_the_one_before():
    # 80 = 26 · 3 + 2 and 80 = 79 + 1: alone, the last example would be normalised to 0, class 0
    assert measured(FedAvg(), [client(0, 1.0)], batch_size=79)["capacities"]["1.0"]["client_ordered"] == 0.5


def test_every_capacity_and_always_the_full_model():
    result = measured(FedFIbOS(), [client(0, 0.5), client(1, 0.5)])
    assert list(result["capacities"]) == ["1.0", "0.5"]
    assert result["capacities"]["0.5"]["client"] == 0


def test_a_model_without_batch_normalisation_is_refused():
    model = model_of(nn.Linear(1, 2))
    params = model.initial_params()
    data, parts = two_clients()
    with pytest.raises(ValueError, match="the model has no such layer"):
        audit(FedAvg(), model, FedAvg().init(params), params, [client(0, 1.0)], data, parts, data, stream(0, "shuffle"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    (folder / "batch.toml").write_text(EXPERIMENT.format(norm="batch"))
    assert main(["run", str(folder / "batch.toml"), "--out", str(folder / "run"), "--workers", "1"]) == 0
    return folder / "run"


def test_the_audit_of_a_run_agrees_with_its_record(run, capsys):
    assert main(["audit", str(run)]) == 0
    assert "batch's own, shuffled" in " ".join(capsys.readouterr().out.split())
    result = json.loads((run / "audit.json").read_text())
    assert list(result["capacities"]) == ["1.0", "0.5", "0.25", "0.125", "0.0625"]
    assert result["round"] == 2
    for found in result["capacities"].values():
        assert all(0.0 <= found[way] <= 1.0 for way in ("client_ordered", "shuffled", "recalibrated"))
    final = json.loads((run / "final.json").read_text())
    assert result["examples"] == 360  # the clients' own test splits together are the whole test set
    assert result["capacities"]["1.0"]["recalibrated"] == final["global_accuracy"]["full"]["last"]


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
