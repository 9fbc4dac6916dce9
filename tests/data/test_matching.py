"""Whose test examples are whose: each owner's own, and who takes part where there are fewer clients than owners."""

from __future__ import annotations

import pytest
import torch

from fedfibos.data import Split, TensorData
from fedfibos.data.matching import own_test_split
from fedfibos.data.partition import Partition, partition


def tensors(labels: list[int]) -> TensorData:
    return TensorData(torch.zeros(len(labels), 2), torch.tensor(labels))


def natural(owners: torch.Tensor, clients: int, seed: int = 0) -> list[list[int]]:
    parts = partition(
        torch.zeros(len(owners)).long(), Partition("natural"), clients, torch.Generator().manual_seed(seed), owners
    )
    return [part.tolist() for part in parts]


def test_a_client_is_tested_on_the_examples_of_its_owner():
    owners = torch.tensor([7, 5, 7, 5, 5, 9])
    parts = [torch.tensor([1, 3, 4]), torch.tensor([0, 2]), torch.tensor([5])]
    found = own_test_split(owners, parts, torch.tensor([7, 8, 5, 7]))  # 8 trains on nothing, 9 has no test example
    assert [part.tolist() for part in found] == [[2], [0, 3], []]


def test_of_fewer_clients_than_owners_some_owners_are_drawn_by_the_seed():
    owners = torch.tensor([30, 10, 20, 10, 40, 30])
    everybody = {10: [1, 3], 20: [2], 30: [0, 5], 40: [4]}
    drawn = [natural(owners, 2, seed) for seed in range(12)]
    assert drawn == [natural(owners, 2, seed) for seed in range(12)]
    assert {len(parts) for parts in drawn} == {2}
    assert all(part in everybody.values() for parts in drawn for part in parts)
    who = {tuple(int(owners[part[0]]) for part in parts) for parts in drawn}
    assert len(who) > 2
    assert all(first < second for first, second in who)


def test_with_a_client_an_owner_nothing_is_drawn():
    owners = torch.tensor([7, 5, 7])
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    partition(torch.zeros(3).long(), Partition("natural"), 2, generator, owners)
    assert torch.equal(generator.get_state(), before)


def test_owners_of_test_examples_are_checked():
    train, test, owners = tensors([0, 1, 0]), tensors([0, 1]), torch.tensor([4, 4, 5])
    with pytest.raises(
        ValueError, match=r"^the data set: test_owners must be int64 of shape \(2,\), one a test example, "
    ):
        Split(train, test, ("a", "b"), owners=owners, test_owners=torch.tensor([4, 4, 5]))
    with pytest.raises(ValueError, match=r"^the data set: test_owners must come with owners, whose the training"):
        Split(train, test, ("a", "b"), test_owners=torch.tensor([4, 5]))
    with pytest.raises(ValueError, match=r"must be in the numbers of owners, got 8 and others, of which none owns"):
        Split(train, test, ("a", "b"), owners=owners, test_owners=torch.tensor([8, 9]))


def test_held_out_examples_stay_their_owners_where_those_of_the_test_set_are():
    labels = [0, 1] * 6
    owners = torch.tensor([3, 8] * 6)
    split = Split(tensors(labels), tensors([0, 1]), ("a", "b"), owners=owners, test_owners=torch.tensor([3, 8]))
    held = split.validation(0.5, torch.Generator().manual_seed(1))
    assert held.test_owners.tolist() == [3 if label == 0 else 8 for label in held.test.labels.tolist()]
    assert held.test_owners.bincount().tolist()[3::5] == [3, 3]
