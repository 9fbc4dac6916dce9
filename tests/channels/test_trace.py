"""Following one forward pass: whatever the module does in it."""

import pytest
import torch
from torch import Tensor, nn

from fedfibos.channels.derive import derive_axes
from zoo import images


class Keeps(nn.Module):
    """Keeps an activation, draws random numbers in evaluation too, and has a buffer without room of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(64, 12), nn.Linear(12, 3)
        self.register_buffer("mean", torch.tensor([[0.5]]).expand(1, 64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.first(nn.functional.dropout(x.flatten(1) - self.mean, 0.5)).relu()
        return self.classifier(self.seen)


def test_axes_of_a_module_that_keeps_activations_and_draws_random_numbers():
    before = torch.get_rng_state()
    module = Keeps()
    drawn = torch.get_rng_state()  # its initial values
    assert derive_axes(module, images()).sizes == {"first": 12}
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not torch.equal(before, drawn)


class Endless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.classifier = nn.Linear(64, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        while True:
            x = x + 1


def test_the_work_of_a_trace_is_bounded(monkeypatch):
    monkeypatch.setattr("fedfibos.channels.trace.MOST_OPERATIONS", 2_000)
    message = r"one forward pass takes more than 2,000 operations to follow; give a shorter example batch"
    with pytest.raises(ValueError, match=message):
        derive_axes(Endless(), images())


def test_a_forward_pass_that_fails_is_one_line():
    message = r"can't derive the model's channel axes: its forward pass fails on the example batch \(RuntimeError: "
    with pytest.raises(ValueError, match=message) as error:
        derive_axes(nn.Linear(3, 2), images())
    assert "\n" not in str(error.value)
