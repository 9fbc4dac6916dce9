"""Data that make a run's numbers mean something else than they say: looked for in samples, before the first round.

Test examples that are trained on, inputs that are all the same, inputs that hold the label, and test inputs on another
scale than training ones. A few hundred examples are read, and of tensors a few columns of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from fedfibos.common.inputs import Inputs
from fedfibos.data.images import ImageData, TensorData
from fedfibos.data.split import Split
from fedfibos.data.texts import TokenData
from fedfibos.types import Dataset

SAMPLE = 256
"""Examples of a split that are read, evenly from all."""

COLUMNS = 16
"""Values of an example that are compared in all: those that differ most in the sample."""

SHARED = 0.1
"""Share of the test examples from which on those that are training examples too are told."""

TYPICAL = 4.0
"""How many times more often a test example is among the training examples than one of these has a twin there."""

TIMES = 10.0
"""How much larger the inputs of one split are on average than those of the other."""

ROWS = 4096
"""That a correlation with the label is taken over, at most; :data:`FEWEST` at least."""

FEWEST = 50

EXACT = 1e-6
"""How far below 1 a correlation of what is the label itself may be."""


def suspects(split: Split) -> list[str]:
    """A line for each of these; none of data that are of no such kind, as what is wrong with data is told elsewhere."""
    try:
        return _suspects(split)
    except Exception:  # nothing here is worth a run that would work
        return []


def _suspects(split: Split) -> list[str]:
    train, test = (_sample(data) for data in (split.train, split.test))
    lines = [*_all_alike(train), *_other_scale(split, train, test), *_labels_among_inputs(split)]
    if not lines or "same inputs" not in lines[0]:
        lines += _trained_on(split)
    return lines


def _sample(data: Dataset, number: int = SAMPLE) -> Inputs:
    """The inputs of so many examples, evenly from all."""
    return data.batch(_places(len(data), number))


def _places(length: int, number: int) -> Tensor:
    return torch.linspace(0, length - 1, min(number, length), dtype=torch.float64).round().long()


def _all_alike(inputs: Inputs) -> Iterator[str]:
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    if len(tensors[0]) > 1 and all(bool((tensor == tensor[:1]).all()) for tensor in tensors):
        yield f"the {len(tensors[0])} training examples that were looked at have the same inputs: nothing can be learnt"


def _other_scale(split: Split, train: Inputs, test: Inputs) -> Iterator[str]:
    one, other = split.train, split.test
    if isinstance(one, ImageData) and isinstance(other, ImageData):
        if (one.mean, one.std, one.white) != (other.mean, other.std, other.white):
            yield (
                f"test images are normalised by mean {_numbers(other.mean)} and std {_numbers(other.std)}, training "
                f"images by {_numbers(one.mean)} and {_numbers(one.std)}: use those of the training images for both"
            )
        return
    if isinstance(train, Tensor) and isinstance(test, Tensor) and train.is_floating_point():
        large, small = float(train.abs().mean()), float(test.abs().mean())
        if max(large, small) > TIMES * min(large, small):
            yield (
                f"test inputs are {small:.3g} in size on average, training inputs {large:.3g}: scale both by the same "
                "numbers"
            )


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _labels_among_inputs(split: Split) -> Iterator[str]:
    """Of tables: columns that go with the label, or with being of a class, to the last digit."""
    data, labels = split.train, split.train.labels
    if not isinstance(data, TensorData) or data.inputs.dim() != 2 or not data.inputs.is_floating_point():
        return
    if labels.dim() != 1 or data.inputs.shape[1] < 2 or len(data) < FEWEST:
        return
    rows = _places(len(data), ROWS)
    inputs, wanted = data.batch(rows).cpu().double(), labels[rows].cpu().double()[:, None]
    if split.has_classes:
        wanted = torch.cat([wanted, (wanted == torch.arange(len(split.classes))).double()], 1)
    wanted = wanted[:, _common(wanted)]
    found = (_unit(inputs).T @ _unit(wanted)).abs() > 1.0 - EXACT
    if places := found.any(1).nonzero().flatten().tolist():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        what = "label" if split.has_classes else "target"
        yield (
            f"feature {places[0]}{more} of the inputs tells the {what} exactly (correlation 1 over {len(rows):,} "
            f"training examples): leave it out, if it is the {what} itself"
        )


def _common(columns: Tensor) -> Tensor:
    """Which columns have other values than the most frequent one often enough to tell anything."""
    return (columns != columns.mode(0).values).sum(0) >= FEWEST // 10


def _unit(columns: Tensor) -> Tensor:
    """Columns around their means, of length 1; zeros where one is constant."""
    around = columns - columns.mean(0)
    length = around.norm(dim=0)
    return torch.where(length > 1e-9 * columns.abs().amax(0), around / length, 0.0)


def _trained_on(split: Split) -> Iterator[str]:
    (train, in_train), (test, in_test) = _values(split.train), _values(split.test)
    if train.shape[1] != test.shape[1] or train.dtype != test.dtype:
        return
    rows = _places(len(test) if in_test is None else len(in_test), SAMPLE)
    some = test[rows if in_test is None else in_test[rows]].cpu()
    columns = some.double().std(0, correction=0).sort(descending=True, stable=True).indices[:COLUMNS]
    kept = train[:, columns.to(train.device)].cpu()
    kept = kept if in_train is None else kept[in_train]
    times = Counter(_keys(kept))
    twice = sum(times[key] > 1 for key in _keys(kept[_places(len(kept), SAMPLE)])) / min(len(kept), SAMPLE)
    shared = sum(key in times for key in _keys(some[:, columns]))
    if shared >= max(2, SHARED * len(rows)) and shared > TYPICAL * twice * len(rows):
        yield (
            f"{shared} of {len(rows)} test examples that were looked at are training examples too: what is measured on "
            "them says nothing of new ones; keep the two apart"
        )


def _keys(rows: Tensor) -> Iterator[bytes]:
    """Rows as what can be looked up."""
    numbers = rows.float() if rows.dtype == torch.bfloat16 else rows  # which numpy does not know
    return (row.tobytes() for row in numbers.contiguous().numpy())


def _values(data: Dataset) -> tuple[Tensor, Tensor | None]:
    """Numbers of every example, a row each, and which rows are of this data set; of one not in memory a sample's."""
    if isinstance(data, TensorData):
        return data.inputs.flatten(1) if data.inputs.dim() > 1 else data.inputs[:, None], None
    if isinstance(data, ImageData):
        return data.pixels.flatten(1), data.chosen
    if isinstance(data, TokenData):
        texts = torch.arange(len(data)) if data.chosen is None else data.chosen
        first, last = data.starts[texts], data.starts[texts + 1]
        places = first[:, None] + torch.arange(2 * COLUMNS)
        ids = data.ids[places.clamp(max=len(data.ids) - 1)].long()
        return torch.cat([(last - first)[:, None], torch.where(places < last[:, None], ids, -1)], 1), None
    inputs = _sample(data)
    tensors = [inputs] if isinstance(inputs, Tensor) else [inputs[name] for name in sorted(inputs)]
    return torch.cat([tensor.reshape(len(tensor), -1).double() for tensor in tensors], 1), None
