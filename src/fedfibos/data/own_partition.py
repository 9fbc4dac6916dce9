"""A user's own function that deals the examples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedfibos.common.user_code import find


def own_partition(name: str, targets: Tensor, num_clients: int, generator: torch.Generator) -> list[Tensor]:
    """What a user's own function deals, checked.

    Args:
        name: ``module:function``; it is called with the other arguments and gives the positions of every client's
            examples, each a sequence of whole numbers.
        targets: Of every example, shape ``(n, ...)``.
        num_clients: N.
        generator: Random stream.

    Returns:
        N sorted int64 tensors, disjoint, none empty.

    Raises:
        ValueError: It gives something else, in one line.
    """
    what = f"data.partition.scheme = {name!r}"
    function: Any = find("data.partition.scheme", name, {})
    dealt = function(targets, num_clients, generator)
    if not isinstance(dealt, list | tuple) or len(dealt) != num_clients:
        got = f"{len(dealt)} of them" if isinstance(dealt, list | tuple) else type(dealt).__name__
        raise ValueError(f"{what}: it must give a list of positions for each of {num_clients} clients, got {got}")
    parts = [_positions(what, client, part, len(targets)) for client, part in enumerate(dealt)]
    together = torch.cat(parts)
    if len(together.unique()) < len(together):
        values, counts = together.unique(return_counts=True)
        twice = int(values[counts > 1][0])
        raise ValueError(f"{what}: every example must go to one client at most, got {twice} more than once")
    return parts


def _positions(what: str, client: int, part: Any, num_examples: int) -> Tensor:
    try:
        positions = torch.as_tensor(part)
    except (TypeError, ValueError, RuntimeError):
        positions = torch.empty(1)
    if positions.dim() != 1 or not len(positions) or positions.is_floating_point() or positions.dtype == torch.bool:
        got = "none" if positions.dim() == 1 and not len(positions) else f"{type(part).__name__} of other values"
        raise ValueError(f"{what}: client {client} must have positions, whole numbers and at least one, got {got}")
    wrong = positions[(positions < 0) | (positions >= num_examples)]
    if len(wrong):
        raise ValueError(f"{what}: positions must be in 0..{num_examples - 1}, got {int(wrong[0])} of client {client}")
    return positions.to(torch.int64).sort().values
