"""A fleet of known owners: who is tested on what, and how much whose upload weighs."""

from __future__ import annotations

import pytest
import torch

from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.data import Split, TensorData
from fedfibos.simulation import world as world_module
from fedfibos.simulation.world import build_world


def owned(test_owners: torch.Tensor | None) -> Split:
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 0, 1])
    owners = torch.tensor([11, 11, 11, 11, 22, 22, 33, 33])
    test = torch.tensor([1, 0, 0, 1, 0])
    data = [TensorData(torch.randn(len(y), 3), y) for y in (labels, test)]
    return Split(*data, ("a", "b"), "digits", owners, test_owners)


@pytest.fixture
def toml(experiment_file):
    return experiment_file('data.partition.scheme = "natural"\nfederation.clients = 3')


@pytest.fixture
def world(toml, monkeypatch):
    def build(split: Split, *overrides: str):
        monkeypatch.setattr(world_module, "load", lambda *_: split)
        return build_world(load_experiment(toml, overrides))

    return build


def test_local_accuracy_is_over_the_own_test_examples_of_each_client(world):
    own = world(owned(torch.tensor([11, 33, 22, 11, 44]))).population
    assert [part.tolist() for part in own.test_parts] == [[0, 3], [2], [1]]  # client 1 is owner 22, client 2 owner 33
    by_class = world(owned(None)).population  # dealt by class, with nobody's examples left over
    assert sorted(by_class.test_parts.positions.tolist()) == [0, 1, 2, 3, 4]


def test_another_partition_deals_the_test_examples_by_class(world):
    population = world(owned(torch.tensor([11, 33, 22, 11, 44])), "data.partition.scheme=iid").population
    assert sorted(population.test_parts.positions.tolist()) == [0, 1, 2, 3, 4]


def test_fewer_clients_than_owners_keep_their_own_test_examples(world):
    split = owned(torch.tensor([11, 33, 22, 11, 44]))
    population = world(split, "federation.clients=2").population
    assert len(population) == 2
    for train, test in zip(population.parts, population.test_parts, strict=True):
        (owner,) = split.owners[train].unique().tolist()
        assert split.test_owners[test].unique().tolist() == [owner]


def test_weights_are_uniform_by_size_or_a_number_for_each_client(world):
    weights = {
        setting: [
            client.weight for client in world(owned(None), f"federation.weighting={setting}").population.everyone(0)
        ]
        for setting in ("uniform", "samples", "[1, 1, 4]")
    }
    assert weights == {"uniform": [1, 1, 1], "samples": [1.5, 0.75, 0.75], "[1, 1, 4]": [0.5, 0.5, 2.0]}


def test_a_list_of_weights_is_in_the_record(toml, tmp_path):
    text = to_toml(load_experiment(toml, ["federation.weighting=[1, 0.5, 4]"]))
    (tmp_path / "again.toml").write_text(text)
    assert load_experiment(tmp_path / "again.toml").federation.weighting == (1.0, 0.5, 4.0)


@pytest.mark.parametrize(
    ("weighting", "said"),
    [
        ("[1, 2]", "federation.weighting must be 3 numbers, one a client, got 2 of them"),
        ("[1, 0, 2]", "federation.weighting must be numbers above 0, at most 1,000,000,000, got 0 for client 1"),
        ("[1, nan, 2]", "federation.weighting must be numbers above 0, at most 1,000,000,000, got nan for client 1"),
        ("['a', 1, 2]", "federation.weighting must be numbers above 0, at most 1,000,000,000, got 'a' for client 0"),
        ("sample", "federation.weighting must be one of 'uniform', 'samples', got 'sample'; did you mean 'samples'?"),
    ],
)
def test_weights_that_cannot_be_are_refused(toml, weighting, said):
    with pytest.raises(ExperimentError) as error:
        load_experiment(toml, [f"federation.weighting={weighting}"])
    assert str(error.value) == f"command line: {said}"
