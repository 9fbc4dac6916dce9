"""Random numbers that are the same in every place."""

import torch

from fedfibos.channels.draws import EvenDraws


def test_every_place_has_the_same_number_and_dropout_lets_everything_through():
    x = torch.arange(6.0).view(2, 3)
    with torch.random.fork_rng(devices=[]), EvenDraws():
        torch.manual_seed(0)
        noise, chance = torch.randn_like(x), torch.rand(4)
        kept = torch.nn.functional.dropout(x, 0.5)
        order = torch.randperm(5)
    assert noise.unique().tolist() == [noise[0, 0].item()] != [0.0]
    assert len(chance.unique()) == 1
    assert torch.equal(kept, 2 * x)
    assert sorted(order.tolist()) == [0, 1, 2, 3, 4]
