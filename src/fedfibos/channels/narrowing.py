"""Prove a derived table by narrower copies, and find the axes that they fail by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fedfibos.channels.axes import Axes
from fedfibos.channels.check import WIDTHS, mixed_widths, narrow_problem

Widths = Mapping[str, int]


@dataclass(frozen=True)
class Proof:
    """What narrower copies are run on.

    Attributes:
        probe: A copy of the module with random values.
        example_inputs: One batch.
        expected: Its logits.
    """

    probe: nn.Module
    example_inputs: Any
    expected: Tensor

    def problem(self, axes: Axes, widths: Widths, training: bool) -> tuple[str, bool]:
        """As of :func:`fedfibos.channels.check.narrow_problem`."""
        return narrow_problem(self.probe, axes, widths, self.example_inputs, self.expected, training)


@dataclass(frozen=True)
class Failure:
    """What goes wrong where an axis is narrow.

    Attributes:
        problem: In words.
        widths: Of the axes that were narrow, the one at fault included.
        training: Whether training mode, and other batches, were tried too.
    """

    problem: str
    widths: Widths
    training: bool


def failures(proof: Proof, axes: Axes) -> tuple[dict[str, Failure], bool]:
    """The axes that narrower copies fail by, none where all run; and whether the code wrote sizes that had to change.

    Raises:
        ValueError: A copy fails, and only now and then.
    """
    changed = False
    for words, widths, training in _trials(axes):
        problem, different = proof.problem(axes, widths, training)
        changed = changed or different
        if problem:
            blamed = _alone(proof, axes, widths, training) or _together(proof, axes, widths, training)
            if not blamed:
                raise ValueError(f"it can't run at {words} ({problem})")
            return blamed, changed
    return {}, changed


def _trials(axes: Axes) -> Iterator[tuple[str, Widths, bool]]:
    for words, ratio in WIDTHS:
        yield words, axes.widths(ratio), False
    for turn in (0, 1) if len(axes.sizes) > 3 else (0,):
        yield "widths that differ", mixed_widths(axes, turn), True


def _alone(proof: Proof, axes: Axes, widths: Widths, training: bool) -> dict[str, Failure]:
    """The axes that fail though all others are whole."""
    found = {}
    for axis, width in widths.items():
        problem, _ = proof.problem(axes, {axis: width}, training)
        if problem:
            found[axis] = Failure(problem, {axis: width}, training)
    return found


def _together(proof: Proof, axes: Axes, widths: Widths, training: bool) -> dict[str, Failure]:
    """The first axis that fails once all before it are narrow: code may compare sizes of two."""
    names = list(widths)
    runs, fails, found = 0, len(names), ""
    while fails - runs > 1:
        middle = (runs + fails) // 2
        problem, _ = proof.problem(axes, {axis: widths[axis] for axis in names[:middle]}, training)
        if problem:
            fails, found = middle, problem
        else:
            runs = middle
    narrow = {axis: widths[axis] for axis in names[:fails]}
    found = found or proof.problem(axes, narrow, training)[0]
    return {names[fails - 1]: Failure(found, narrow, training)} if found else {}


def works_in_units(proof: Proof, axis: str, size: int, failure: Failure) -> Callable[[Axes], bool]:
    """Whether a table in which the channels of an axis go in units passes what they failed one by one.

    Args:
        proof: What copies are run on.
        axis: The axis.
        size: Its channels.
        failure: How it failed.
    """

    def works(axes: Axes) -> bool:
        width = -(-failure.widths[axis] * axes.sizes[axis] // size)
        return not proof.problem(axes, {**failure.widths, axis: width}, failure.training)[0]

    return works
