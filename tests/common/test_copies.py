"""Modules that keep what they have computed are copied too."""

import copy

import pytest
import torch
from torch import nn

from fedfibos.common.copies import copy_module


def kept(container):
    module = nn.Linear(2, 1)
    module.seen = container(module(torch.ones(1, 2)))
    return module


@pytest.mark.parametrize("container", [lambda x: x, lambda x: [x], lambda x: {"last": x}])
def test_a_computed_tensor_comes_along_as_a_value(container):
    module = kept(container)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(module)
    copied = copy_module(module)
    seen = copied.seen
    value = seen if isinstance(seen, torch.Tensor) else next(iter(seen.values() if isinstance(seen, dict) else seen))
    assert value.grad_fn is None
    assert torch.equal(value, copied(torch.ones(1, 2)))
    assert copied.weight is not module.weight


def test_what_stands_for_a_tensor_is_taken():
    module, other = nn.Linear(2, 1), nn.Parameter(torch.full((1, 2), 3.0))
    assert copy_module(module, {id(module.weight): other}).weight is other


def test_tables_of_hooks_are_the_copys_own_and_stay_shared_where_they_were():
    module, seen = nn.Sequential(nn.Linear(2, 1), nn.ReLU()), {}
    module.table = module[0].table = seen
    copied = copy_module(module)
    copied[0].register_forward_hook(lambda *_: torch.zeros(1))
    copied.table["new"] = 1
    assert copied[0].table is copied.table
    assert seen == {}
    assert not module[0]._forward_hooks
    assert torch.equal(copied(torch.ones(1, 2)), torch.zeros(1))
    assert type(copied[0]._forward_pre_hooks) is type(module[0]._forward_pre_hooks)
