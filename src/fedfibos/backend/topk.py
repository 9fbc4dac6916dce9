"""Exact top-k of large score vectors, without sorting them.

A small regular sample brackets each threshold. One pass over the scores, block by block, writes the mask of what is
above the bracket and collects what lies inside it; the few inside are ranked exactly. The result is the exact top-k
whatever the sample says: a bracket that misses its threshold is replaced by a wider one, then by one from a full
selection.

The pass is the same on every device. On a CPU a block fits the cache, and comparing, counting and listing go through
NumPy, which is up to nine times faster there; elsewhere there is one block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

SAMPLE = 1 << 17
"""Scores looked at to bracket a threshold; vectors up to this length are ranked whole."""

DEVIATIONS = (2.5, 9.0)
"""Half-width of the first bracket and of the second, in standard deviations of the sample's share above the threshold.

What lies inside costs as much as the rest of the pass. One first bracket in eighty misses, and costs a second pass.
"""

BLOCK = 1 << 17
"""Scores per block on a CPU: half a megabyte, within the second-level cache."""

Array = np.ndarray[Any, Any]


def top_k(scores: Tensor, k: int, out: Tensor | None = None) -> Tensor:
    """Exactly the k largest scores; of equal scores at the boundary, the lowest positions.

    Args:
        scores: float32 or float64, shape ``(d,)``, no NaN.
        k: ``0 <= k <= d``.
        out: Where to put the result, if given.

    Returns:
        bool, shape ``(d,)``, with exactly k True.

    Raises:
        ValueError: k out of range, or a score that is NaN.
    """
    d = scores.numel()
    if not 0 <= k <= d:
        raise ValueError(f"k must be in [0, {d}], got {k}")
    mask = torch.empty_like(scores, dtype=torch.bool) if out is None else out
    scores = scores.detach().contiguous()
    if k in (0, d):
        _refuse_nan(scores, scores)
        return mask.fill_(k == d)
    for bracket in _brackets(scores, k):
        _one_pass(scores, bracket, mask)
        if bracket.above < k <= bracket.above + bracket.num_inside:
            _take_best(mask, bracket, k - bracket.above)
            break
    return mask


def _refuse_nan(scores: Tensor, some: Tensor) -> None:
    """Raise ValueError if one of some of the scores is NaN."""
    if bool(torch.isnan(some).any()):
        raise ValueError(f"scores must not be NaN, got {int(torch.isnan(scores).sum())} of {scores.numel()}")


@dataclass
class _Bracket:
    """Scores in ``[low, high]`` are ranked one by one; higher ones are selected, lower ones are not. NaN is inside.

    Attributes:
        above: Number of scores above ``high``.
        positions: Where the scores inside lie, ascending, a piece for each block.
        values: Those scores.
    """

    low: float
    high: float
    above: int = 0
    positions: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    @property
    def num_inside(self) -> int:
        return sum(len(piece) for piece in self.positions)


def _brackets(scores: Tensor, k: int) -> Iterator[_Bracket]:
    """Brackets around the k-th largest score, from a regular sample; the last is certain to hold it."""
    d = scores.numel()
    if d <= SAMPLE:
        yield _Bracket(-math.inf, math.inf)
        return
    sample = scores[:: _prime_up_to(d // SAMPLE)]
    m = len(sample)
    share = 1 - k / d
    for deviations in DEVIATIONS:
        spread = deviations * math.sqrt(share * (1 - share) * m) + 1
        first, last = max(math.floor(share * m - spread), -1), min(math.ceil(share * m + spread), m)
        ordered = _at_ranks(sample, [rank for rank in (first, last) if 0 <= rank < m])
        yield _Bracket(ordered.get(first, -math.inf), ordered.get(last, math.inf))
    yield _certain_bracket(scores, k)


def _prime_up_to(limit: int) -> int:
    """The largest prime up to ``limit`` (1 below 2): a stride in step with no shape of a tensor, as those are not."""
    return next((n for n in range(limit, 1, -1) if all(n % i for i in range(2, math.isqrt(n) + 1))), 1)


def _at_ranks(values: Tensor, ranks: Sequence[int]) -> dict[int, float]:
    """The values at those ranks of the ascending order."""
    if not ranks:
        return {}
    if _through_numpy(values):
        partitioned = np.partition(values.numpy(), sorted(set(ranks)))
        return {rank: float(partitioned[rank]) for rank in ranks}
    ordered = values.sort().values  # a sample, or what lies inside a bracket
    return {rank: float(ordered[rank]) for rank in ranks}


def _certain_bracket(scores: Tensor, k: int) -> _Bracket:
    """The bracket that holds the k-th largest score and its equals only, by a full selection."""
    rank = scores.numel() - k
    threshold = _at_ranks(scores, [rank])[rank]
    return _Bracket(threshold, threshold)


def _one_pass(scores: Tensor, bracket: _Bracket, mask: Tensor) -> None:
    """Read the scores once: write the mask of those above the bracket, collect those inside.

    Raises:
        ValueError: A score is NaN.
    """
    if _through_numpy(scores):
        _in_blocks(scores.numpy(), bracket, mask.numpy())
    else:
        torch.gt(scores, bracket.high, out=mask)
        positions = (mask == (scores < bracket.low)).nonzero().squeeze(1)
        bracket.above = int(mask.count_nonzero())
        bracket.positions.append(positions)
        bracket.values.append(scores.index_select(0, positions))
    _refuse_nan(scores, torch.cat(bracket.values))


def _in_blocks(scores: Array, bracket: _Bracket, mask: Array) -> None:
    """The pass in NumPy, block by block."""
    low, high = (scores.dtype.type(bound) for bound in (bracket.low, bracket.high))
    scratch = np.empty(min(BLOCK, len(scores)), dtype=bool)
    for start in range(0, len(scores), BLOCK):
        block, above = scores[start : start + BLOCK], mask[start : start + BLOCK]
        inside = scratch[: len(block)]
        np.greater(block, high, out=above)
        np.less(block, low, out=inside)
        np.equal(above, inside, out=inside)  # neither above nor below: the two are never both
        positions = np.flatnonzero(inside)
        bracket.above += int(np.count_nonzero(above))
        bracket.values.append(torch.from_numpy(block[positions]))
        positions += start
        bracket.positions.append(torch.from_numpy(positions))


def _take_best(mask: Tensor, bracket: _Bracket, missing: int) -> None:
    """Add the ``missing`` largest scores inside the bracket to the mask, ties by position."""
    positions, values = torch.cat(bracket.positions), torch.cat(bracket.values)
    rank = len(values) - missing
    threshold = _at_ranks(values, [rank])[rank]
    better = values > threshold
    mask[positions[better]] = True
    ties = positions[values == threshold]
    mask[ties[: missing - int(better.sum())]] = True


def _through_numpy(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"
