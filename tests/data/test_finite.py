"""Inputs that are nan or infinite are named as a fault of the data, before anything is dealt or trained."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedfibos.config.experiment import load_experiment
from fedfibos.data import ImageData, Split, TensorData, finite
from fedfibos.data.finite import check_finite
from fedfibos.simulation import build_world

CLASSES = ("a", "b")


def table(n: int = 10, bad: tuple[tuple[int, int, float], ...] = ()) -> TensorData:
    inputs = torch.ones(n, 4)
    for row, column, value in bad:
        inputs[row, column] = value
    return TensorData(inputs, torch.arange(n) % 2)


def split(train=None, test=None) -> Split:
    return Split(train or table(), test or table(6), CLASSES, "mine")


def said(data: Split) -> str:
    with pytest.raises(ValueError, match=r"^data set 'mine': ") as caught:
        check_finite(data)
    text = str(caught.value)
    assert text.endswith("; fill these inputs in, or leave the examples out")
    assert "\n" not in text
    return text.removeprefix("data set 'mine': ").removesuffix("; fill these inputs in, or leave the examples out")


def test_sound_data_pass():
    check_finite(split())
    check_finite(split(TensorData(torch.full((3, 2), 3e38), torch.zeros(3, dtype=torch.int64))))  # their sum overflows
    check_finite(split(TensorData(torch.ones(3, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))))


def test_the_split_the_number_of_examples_and_the_features_are_named():
    bad = ((2, 1, math.nan), (2, 3, math.nan), (7, 3, math.nan))
    assert said(split(table(bad=bad))) == (
        "2 of 10 training examples hold nan in their inputs (first example 2; feature 3 in 2, feature 1 in 1)"
    )
    assert said(split(test=table(6, ((5, 0, -math.inf),)))) == (
        "1 of 6 test examples hold inf in their inputs (first example 5; feature 0 in 1)"
    )
    both = split(table(bad=((0, 0, math.nan), (1, 0, math.inf))), table(6, ((3, 2, math.nan),)))
    assert said(both) == (
        "2 of 10 training examples hold nan and inf in their inputs (first example 0; feature 0 in 2); "
        "1 of 6 test examples hold nan in their inputs (first example 3; feature 2 in 1)"
    )


def test_many_features_are_counted_and_pixels_named_by_their_place():
    images = torch.zeros(3, 1, 2, 3)
    images[1, 0, 1, 2] = math.nan
    labels = torch.zeros(3, dtype=torch.int64)
    assert said(split(TensorData(images, labels))) == (
        "1 of 3 training examples hold nan in their inputs (first example 1; position (0, 1, 2) in 1)"
    )
    images[2] = math.inf
    text = said(split(TensorData(images, labels)))
    assert (
        "(first example 1; position (0, 1, 2) in 2, position (0, 0, 0) in 1, position (0, 0, 1) in 1 and 3 more)"
        in text
    )
    one = TensorData(torch.tensor([0.0, math.nan, 0.0]), labels)
    assert "(first example 1; the one feature in 1)" in said(split(one))


@pytest.mark.parametrize("values", [1, 4, 12, 1 << 22])
def test_blocks_change_no_word(monkeypatch, values):
    monkeypatch.setattr(finite, "VALUES", values)
    assert said(split(table(bad=((2, 1, math.nan), (9, 1, math.nan))))) == (
        "2 of 10 training examples hold nan in their inputs (first example 2; feature 1 in 2)"
    )


@dataclass(frozen=True)
class Own:
    """A data set of somebody's own: named tensors."""

    age: Tensor
    scan: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, augment: torch.Generator | None = None) -> dict[str, Tensor]:
        if indices[-1] == 666:
            raise OSError("scan 666 cannot be read")
        return {"age": self.age[indices], "scan": self.scan[indices]}

    def subset(self, indices: Tensor) -> Own:
        return Own(self.age[indices], self.scan[indices], self.labels[indices])


def own(n: int) -> Own:
    return Own(torch.ones(n), torch.ones(n, 2), torch.zeros(n, dtype=torch.int64))


def test_named_tensors_of_a_data_set_of_ones_own():
    data = own(600)
    data.age[[300, 599]] = math.nan
    data.scan[599, 1] = math.inf
    assert said(split(data)) == (
        "2 of 600 training examples hold nan and inf in their inputs "
        "(first example 300; 'age' in 2, feature 1 of 'scan' in 1)"
    )


def test_a_batch_that_cannot_be_made_is_told_before_round_1():
    with pytest.raises(
        ValueError,
        match=r"OSError: scan 666 cannot be read \(data set 'mine': training examples 512 to 666 cannot be made a b",
    ):
        check_finite(split(own(667)))


def test_a_slow_data_set_is_looked_at_for_so_long_and_says_so(monkeypatch):
    monkeypatch.setattr(finite, "SECONDS", -1.0)
    lines: list[str] = []
    check_finite(split(own(600)), lines.append)
    assert lines == [
        "data set 'mine': training examples: the first 256 of 600 were looked at for nan and inf, in -1 s",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": (math.nan,)}, "mean must be finite, got nan"),
        ({"std": (0.0,)}, "std must be above 0, got 0"),
        ({"white": math.inf}, "white must be above 0, got inf"),
    ],
)
def test_pixels_cannot_be_made_other_than_finite(settings, message):
    pixels, labels = torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ImageData(pixels, labels, **{"mean": (0.5,), "std": (0.5,), **settings})


@pytest.mark.parametrize(
    ("inputs", "got"),
    [
        ([[1.0]], "list"),
        (torch.tensor(1.0), r"torch\.strided of shape \(\)"),
        (torch.eye(2).to_sparse(), r"torch\.sparse_coo of shape \(2, 2\)"),
    ],
)
def test_inputs_are_a_dense_tensor_of_examples(inputs, got):
    wanted = "^inputs must be a dense torch tensor, one row an example, got " + got
    with pytest.raises(ValueError, match=wanted):
        TensorData(inputs, torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("rows", [slice(0, 300), slice(7, 8)])
def test_a_run_ends_before_its_first_round_and_blames_no_client(experiment_file, tmp_path, monkeypatch, rows):
    (tmp_path / f"gap{rows.start}.py").write_text(
        "import torch\n"
        "from fedfibos import Split, TensorData\n"
        "def data(folder):\n"
        "    x, y = torch.ones(400, 5), torch.arange(400) % 2\n"
        f"    x[{rows.start}:{rows.stop}, 2] = float('nan')\n"
        "    return Split(TensorData(x[:300], y[:300]), TensorData(x[300:], y[300:]), ('a', 'b'))\n"
    )
    path = experiment_file(f'data.name = "gap{rows.start}:data"')
    monkeypatch.syspath_prepend(str(tmp_path))
    count = rows.stop - rows.start
    with pytest.raises(ValueError, match=f"{count} of 300 training examples hold nan in their inputs"):
        build_world(load_experiment(path))
