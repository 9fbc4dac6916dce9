"""FedBRB's grid of blocks."""

import pytest
import torch
from torch import nn

from fedfibos.channels.derive import derive_axes
from fedfibos.methods._blocks import block_channels, blocks_in, num_blocks, positional, with_block, without_blocks
from fedfibos.model import model_of
from fedfibos.submodel import Slice, full
from fedfibos.types import State


def test_the_last_block_is_shifted_back_and_every_channel_keeps_its_part():
    assert [block_channels(5, 2, number).tolist() for number in range(3)] == [[0, 1], [2, 3], [4, 3]]
    assert block_channels(4, 4, 0).tolist() == [0, 1, 2, 3]


def test_blocks_along_an_axis_are_rounded_up():
    axes = derive_axes(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)), torch.zeros(2, 3))
    assert num_blocks(axes, {"0": 2}) == {"0": 3}


def test_all_pairs_of_blocks_come_up():
    """Three blocks: the outputs' number moves every third round, the inputs' every round."""
    seen = [positional({"a": 3}, t) for t in range(9)]
    assert [pair["a"] for pair in seen] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [pair["a (input)"] for pair in seen] == [0, 1, 2] * 3


def test_the_whole_model_is_no_block_and_a_plain_slice_is_refused():
    model = model_of(nn.Linear(3, 2))
    state = State()
    assert with_block(state, full(model.layout), 1.0) is state
    with pytest.raises(TypeError, match="needs the blocks that it sent, got a plain slice"):
        with_block(state, Slice(torch.arange(3), model.layout, (("0", 1),)), 1.0)
    assert blocks_in(without_blocks(state)) == []
