"""Random numbers for a proof: alike in all places, so that permuting channels permutes them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class EvenDraws(TorchDispatchMode):
    """Run a block with the same random number in every place of a tensor; dropout lets everything through.

    A model that draws in evaluation (a sample of a latent space, dropout that is never off) gives each channel noise of
    its own. The channels are alike all the same: which of them has which noise is chance.
    """

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation; what it has drawn is made alike."""
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return result
        name = func._schema.name
        if "native_dropout" in name:
            return args[0].clone(), torch.ones_like(result[1])
        if isinstance(result, Tensor) and result.is_floating_point() and result.numel():
            result.fill_(1.0 if "bernoulli" in name else result.reshape(-1)[0])
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The compiler need not be told of this mode: importing it takes seconds."""
        return False
