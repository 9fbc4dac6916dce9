"""Training that is not finite: whether the batches were not, before a client's update is blamed for it."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from fedfibos.backend.reductions import all_finite
from fedfibos.common.inputs import Inputs


def faulty_inputs(batches: Iterable[tuple[Inputs, Tensor]]) -> str | None:
    """The first step whose inputs are not finite, in a line; None where all are.

    Args:
        batches: Inputs and labels of every step, made again as they were.
    """
    for step, (inputs, _) in enumerate(batches, start=1):
        for name, tensor in {"": inputs}.items() if isinstance(inputs, Tensor) else inputs.items():
            if tensor.numel() and not all_finite(tensor):
                bad = int((~tensor.isfinite()).sum())
                whose = f"inputs {name!r}" if name else "inputs"
                return (
                    f"the {whose} of its batch in step {step} have {bad} of {tensor.numel()} values that are not "
                    "finite: look at its data's batch(), or at what changes them in training"
                )
    return None
