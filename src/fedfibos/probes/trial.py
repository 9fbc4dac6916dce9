"""A copy of a module to try things on: run on the same random numbers each time, and put back as it was."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedfibos.common.copies import copy_module
from fedfibos.common.draws import fixed_draws
from fedfibos.common.inputs import Inputs, copied, forward
from fedfibos.params import without_overlaps

Run = Callable[[nn.Module, Inputs], Tensor]


class TrialCopy:
    """A copy of a module.

    Attributes:
        original: The module, never run and never changed.
        module: The copy.
    """

    def __init__(self, module: nn.Module) -> None:
        self.original = module
        self.module = without_overlaps(copy_module(module))

    def logits(self, example: Inputs, *, training: bool = True, run: Run = forward) -> Tensor:
        """What the copy makes of a batch; with gradients, where they are on.

        Args:
            example: The batch.
            training: The copy's mode.
            run: Calls it.
        """
        with fixed_draws():
            return run(self.module.train(training), copied(example))

    def put_back(self) -> None:
        """Give every parameter and buffer the original's values again."""
        with torch.no_grad():
            for own, first in (
                (self.module.named_parameters(), dict(self.original.named_parameters())),
                (self.module.named_buffers(), dict(self.original.named_buffers())),
            ):
                for name, tensor in own:
                    if name in first and tensor.shape == first[name].shape:
                        tensor.copy_(first[name])
