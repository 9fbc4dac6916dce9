"""A model that gives several things is refused with the next step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from fedfibos.probes.takes import check_takes


class Gives(nn.Module):
    """Its scores, among other things."""

    def __init__(self, function) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(5, 3), function

    def forward(self, x: Tensor) -> object:
        return self.function(self.layer(x))


LOGITS = "wrap it in a module whose forward returns its logits alone"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda h: SimpleNamespace(logits=h, loss=None), f"got SimpleNamespace: {LOGITS}"),
        (lambda h: {"logits": h, "hidden": h}, f"got dict: {LOGITS}"),
        (lambda h: {"out": h}, "got dict: return the logits alone"),
        (lambda h: (h, h), "got tuple: return the logits alone"),
        (lambda h: None, "got NoneType"),
    ],
)
def test_what_to_do_about_several_things(function, said):
    with pytest.raises(ValueError, match=f"^the model must return one tensor of outputs, {said}$"):
        check_takes(Gives(function), torch.randn(2, 5))
