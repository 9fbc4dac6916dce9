"""A user's own data: what a function gives is checked; owners stay with their examples."""

import re

import pytest
import torch

from fedfibos.cli import main
from fedfibos.data import Split, TensorData, load
from fedfibos.data.partition import Partition, partition
from fedfibos.models import build


def test_what_the_functions_give_is_checked(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    with pytest.raises(ValueError, match=r"must give a fedfibos\.data.Split, got NoneType"):
        load("mine_of_the_test:nothing")
    with pytest.raises(
        ValueError, match=re.escape("'mine_of_the_test:unfit': it must give an nn.Module, got NoneType")
    ):
        build("mine_of_the_test:unfit", 3, (4,))
    assert load("mine_of_the_test:points").name == "mine_of_the_test:points"


def tensors(labels):
    return TensorData(torch.zeros(len(labels), 2), torch.tensor(labels, dtype=torch.int64))


@pytest.mark.parametrize(
    ("train", "test", "owners", "message"),
    [
        ([0, 2], [0], None, "data set 'x': training labels must be in 0..1, positions among its classes, got 2"),
        ([1, 2], [1], None, "data set 'x': training labels must be in 0..1, .*, got 2: count from 0, not from 1"),
        ([0, 1], [-1], None, "data set 'x': test labels must be in 0..1, positions among its classes, got -1"),
        ([0, 1], [], None, "data set 'x': it must have test examples, got none"),
        (
            [0, 1],
            [0],
            [1],
            r"owners must be int64 of shape \(2,\), one a training example, got torch.int64 of shape \(1,\)",
        ),
    ],
)
def test_a_split_is_checked(train, test, owners, message):
    with pytest.raises(ValueError, match=message):
        Split(tensors(train), tensors(test), ("a", "b"), "x", None if owners is None else torch.tensor(owners))


def test_what_is_no_split_says_what_is_wanted():
    train = tensors([0, 1])
    assert not Split(train, train, ()).has_classes  # whether a task can do without, it says itself
    with pytest.raises(ValueError, match="classes must be the names of the classes, got 2"):
        Split(train, train, 2)
    with pytest.raises(ValueError, match=r"must be a fedfibos\.types\.Dataset, .* got list without labels, batch"):
        Split([1, 2], train, ("a", "b"))
    with pytest.raises(ValueError, match=r"owners must be int64 of shape .*, got list"):
        Split(train, train, ("a", "b"), owners=[0, 1])


def test_the_natural_partition_gives_every_owner_its_examples():
    owners = torch.tensor([7, 5, 7, 5, 5, 9])
    parts = partition(torch.zeros(6).long(), Partition("natural"), 3, torch.Generator(), owners)
    assert [part.tolist() for part in parts] == [[1, 3, 4], [0, 2], [5]]
    with pytest.raises(ValueError, match=r"federation\.clients must be at most 3, the number of owners, got 4"):
        partition(torch.zeros(6).long(), Partition("natural"), 4, torch.Generator(), owners)
    with pytest.raises(
        ValueError,
        match=r"^data.partition.scheme must not be 'natural' .* in data.options.owner, or give Split.owners$",
    ):
        partition(torch.zeros(6).long(), Partition("natural"), 3, torch.Generator())


def test_owners_stay_with_their_examples_when_some_are_held_out(mine, capsys):
    split = Split(tensors([0, 1, 0, 1, 0, 1]), tensors([0]), ("a", "b"), owners=torch.tensor([0, 1, 0, 1, 0, 1]))
    less = split.validation(1 / 3, torch.Generator().manual_seed(0))
    assert torch.equal(less.owners, less.train.labels)  # odd examples are owner 1's and of class 1
    owners = torch.arange(40) // 2
    few = Split(tensors([0, 1] * 20), tensors([0]), ("a", "b"), owners=owners)
    for seed in range(5):  # everybody keeps something, whatever is drawn
        assert len(few.validation(0.4, torch.Generator().manual_seed(seed)).owners.unique()) == 20
    natural = ["run", "mine.toml", "data.partition.scheme=natural", "--out", "run"]
    assert main([*natural, "federation.clients=3"]) == 0
    assert main([*natural[:-1], "other"]) == 2
    assert "federation.clients must be at most 3, the number of owners, got 4" in capsys.readouterr().err
