"""Inputs that are no numbers (nan) or infinite: found before the first round, and told as a fault of the data.

One pass over each split, block by block. Pixels of 8 bits and token ids cannot be either and are not looked at. Of a
tensor each block is summed, which is as fast as memory is read, and looked at closely only where its sum is not finite.
Of a data set of somebody else's each block is a batch, made as for an evaluation, for :data:`SECONDS` at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedfibos.backend.reductions import all_finite
from fedfibos.common.inputs import Inputs, check_inputs
from fedfibos.common.user_code import UserCodeError, describe_error
from fedfibos.data.images import ImageData, TensorData
from fedfibos.data.split import Split
from fedfibos.data.texts import TextData, TokenData
from fedfibos.types import Dataset

VALUES = 1 << 22
"""Of a block of a tensor: 16 MB, which a second look multiplies by two."""

EXAMPLES = 256
"""Of a block that somebody else's data set makes."""

SECONDS = 60.0
"""What somebody else's data set may take for one split: reading every picture of a large one takes hours."""

ADVICE = "fill these inputs in, or leave the examples out"

NAMED = 3
"""Features that a message names."""


def check_finite(split: Split, warn: Callable[[str], None] = lambda line: None) -> None:
    """Look at all inputs of both splits.

    Args:
        split: The data, as the model reads them.
        warn: Told, in one line, where only a part was looked at in the time there is.

    Raises:
        ValueError: Some are nan or infinite: says of how many examples of which split, and in which features.
    """
    where = f"data set {split.name!r}: "
    parts = (("training examples", split.train), ("test examples", split.test))
    if faults := [found for what, data in parts if (found := not_finite(data, what, where, warn))]:
        raise ValueError(f"{where}{'; '.join(faults)}; {ADVICE}")


def not_finite(
    data: Dataset, what: str, where: str = "", warn: Callable[[str], None] = lambda line: None
) -> str | None:
    """Of how many examples the inputs are not finite, and which features; None where all are.

    Args:
        data: The examples.
        what: What they are called: ``training examples``.
        where: What stands before that in a warning or an error.
        warn: See :func:`check_finite`.
    """
    seen = _Seen()
    for start, inputs in _blocks(data, where + what, warn):
        seen.add(start, inputs)
    return f"{seen.examples:,} of {len(data):,} {what} {seen}" if seen.examples else None


def _blocks(data: Dataset, what: str, warn: Callable[[str], None]) -> Iterator[tuple[int, Inputs]]:
    """Position of the first example, and the inputs, of block after block; none of data that cannot be otherwise."""
    if isinstance(data, ImageData | TextData | TokenData):
        return
    if isinstance(data, TensorData):
        if data.inputs.is_floating_point() or data.inputs.is_complex():
            length = max(1, VALUES // max(1, data.inputs[:1].numel()))
            for start in range(0, len(data), length):
                yield start, data.inputs[start : start + length]
        return
    until = time.monotonic() + SECONDS
    for start in range(0, len(data), EXAMPLES):
        if start and time.monotonic() > until:
            warn(f"{what}: the first {start:,} of {len(data):,} were looked at for nan and inf, in {SECONDS:g} s")
            return
        stop = min(start + EXAMPLES, len(data))
        try:
            inputs = data.batch(torch.arange(start, stop))
        except (Exception, SystemExit) as error:
            at = f"{what} {start} to {stop - 1} cannot be made a batch"
            raise UserCodeError(f"{describe_error(error)} ({at})") from error
        check_inputs(what, inputs, stop - start)
        yield start, inputs


@dataclass
class _Seen:
    """What was found in one split.

    Attributes:
        examples: How many have a value that is not finite.
        first: Position of the first of them.
        kinds: Which of ``nan`` and ``inf`` were found.
        counts: (Name, shape of an example) -> how many examples have each feature so; shape of an example.
    """

    examples: int = 0
    first: int = 0
    kinds: set[str] = field(default_factory=set)
    counts: dict[tuple[str, tuple[int, ...]], Tensor] = field(default_factory=dict)

    def add(self, start: int, inputs: Inputs) -> None:
        """Look at a block."""
        named: Mapping[str, Tensor] = {"": inputs} if isinstance(inputs, Tensor) else inputs
        bad = {name: ~tensor.isfinite() for name, tensor in named.items() if not all_finite(tensor)}
        if not bad:
            return
        for name, where in bad.items():
            key = name, tuple(where.shape[1:])
            count = where.sum(0)
            self.counts[key] = count + self.counts[key] if key in self.counts else count
            self.kinds |= {"nan"} if named[name].isnan().any() else set()
            self.kinds |= {"inf"} if named[name].isinf().any() else set()
        rows = torch.stack([where.flatten(1).any(1) if where.dim() > 1 else where for where in bad.values()]).any(0)
        if not self.examples:
            self.first = start + int(rows.nonzero()[0])
        self.examples += int(rows.sum())

    def __str__(self) -> str:
        """``hold nan in their inputs (first example 3; feature 0 in 8, feature 4 in 7 and 3 more)``."""
        found = [
            (int(number), name, shape, int(position))
            for (name, shape), count in self.counts.items()
            for position, number in zip(*_most(count), strict=True)
        ]
        found.sort(key=lambda entry: -entry[0])
        places = ", ".join(f"{_feature(*entry[1:])} in {entry[0]:,}" for entry in found[:NAMED])
        more = sum(int(count.count_nonzero()) for count in self.counts.values()) - len(found[:NAMED])
        rest = f" and {more:,} more" if more else ""
        kinds = " and ".join(sorted(self.kinds, reverse=True))
        return f"hold {kinds} in their inputs (first example {self.first}; {places}{rest})"


def _most(count: Tensor) -> tuple[list[int], list[int]]:
    """The features that are not finite most often: positions among all, and how often; of equal ones the first."""
    flat = count.flatten()
    order = flat.sort(descending=True, stable=True).indices[: min(NAMED, int(flat.count_nonzero()))]
    return order.tolist(), flat[order].tolist()


def _feature(name: str, shape: tuple[int, ...], position: int) -> str:
    """A feature of an example, by the name of its tensor and its place in it."""
    of = f" of {name!r}" if name else ""
    if not shape:
        return repr(name) if name else "the one feature"
    if len(shape) == 1:
        return f"feature {position}{of}"
    place = ", ".join(str(int(i)) for i in torch.unravel_index(torch.tensor(position), shape))
    return f"position ({place}){of}"
