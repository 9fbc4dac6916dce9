"""Which data sets there are, where they are looked for, and what is said of one that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_cifar import (
    TINY10,
    one_line,
    write,
)

from fedfibos.data import DATA_SETS, catalogue, load
from fedfibos.data.images import TensorData
from fedfibos.data.mnist import FASHION_MNIST
from fedfibos.data.split import Split, unseen_classes


def test_digits_are_split_once_and_for_all():
    split = load("digits")
    assert (len(split.train), len(split.test)) == (1437, 360)
    assert split.classes == tuple("0123456789")
    batch = split.train.batch(torch.arange(1437))
    assert batch.shape == (1437, 1, 8, 8)
    assert (batch.min(), batch.max()) == (0.0, 1.0)
    assert torch.bincount(split.test.labels, minlength=10).min() >= 25
    again = load("digits")
    assert torch.equal(again.test.batch(torch.arange(360)), split.test.batch(torch.arange(360)))
    chosen = torch.cat([split.train.chosen, split.test.chosen])
    assert torch.equal(chosen.sort().values, torch.arange(1797))


def test_an_unknown_name_gets_the_nearest_valid_one():
    with pytest.raises(ValueError, match=r"must be one of 'digits', .*got 'cifar-10'; did you mean 'cifar10'"):
        load("cifar-10")


def test_what_is_missing_is_told_with_the_file_to_put_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'cifar10' was not found: put cifar-10-python.tar.gz") as caught:
        load("cifar10", tmp_path)
    assert one_line(caught).endswith(f"the data folder is {tmp_path}")
    found = {line.name: line for line in catalogue(tmp_path)}
    assert list(found) == list(DATA_SETS)
    assert found["digits"].missing is None
    assert found["cifar100"].where is None
    assert "put cifar-100-python.tar.gz or cifar-100-binary.tar.gz" in found["cifar100"].missing
    assert found["mnist"].missing.startswith("put train-images-idx3-ubyte.gz, ")
    assert "into mnist/ of the data folder; " in found["mnist"].missing
    assert FASHION_MNIST.wanted.endswith(
        "into fashion-mnist/ of the data folder, or install Debian's package dataset-fashion-mnist"
    )


def test_the_data_folder_is_the_argument_then_the_environment(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        write("binary folder", folder, TINY10)
    monkeypatch.setenv("FEDFIBOS_DATA", str(second))

    def where(data_dir: Path | None) -> Path | None:
        return {line.name: line.where for line in catalogue(data_dir)}["cifar10"]

    assert where(None) == second / "cifar-10-batches-bin"
    assert where(first) == first / "cifar-10-batches-bin"
    assert where(tmp_path / "absent") is None
    monkeypatch.delenv("FEDFIBOS_DATA")
    assert where(None) is None
    with pytest.raises(FileNotFoundError, match=r"no data folder was given"):
        load("cifar10")
    with pytest.raises(FileNotFoundError, match=r"absent, which is not a folder"):
        load("cifar10", tmp_path / "absent")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 1, 2, 3], []),
        ([0, 0, 3, 3], ["2 of 4 classes have no training example ('b', 'c')"]),
        ([2, 2, 2, 2], ["all training examples are of class 'c': there is nothing to learn"]),
    ],
)
def test_classes_without_a_training_example_are_said(labels, said):
    train, test = (TensorData(torch.zeros(4, 2), torch.tensor(of)) for of in (labels, [0, 1, 2, 3]))
    assert unseen_classes(Split(train, test, ("a", "b", "c", "d"))) == said


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (range(100), []),
        (
            [n for n in range(100) if n % 4 != 1],
            ["1 of 4 classes have training examples but no test example ('b'): nothing"],
        ),
        ([0, 2], []),  # of so few test examples some classes have none by chance
    ],
)
def test_classes_that_nothing_is_measured_of_are_said(numbers, said):
    train = TensorData(torch.zeros(100, 2), torch.arange(100) % 4)
    lines = unseen_classes(Split(train, train.subset(torch.tensor(list(numbers))), ("a", "b", "c", "d")))
    assert [line[: len(start)] for line, start in zip(lines, said, strict=True)] == said


def test_whole_numbers_name_classes_too():
    data = TensorData(torch.zeros(4, 2), torch.arange(4))
    assert Split(data, data, range(4)).classes == ("0", "1", "2", "3")


def test_examples_that_were_computed_with_gradients_leave_their_graph_behind():
    data = TensorData(torch.zeros(4, 2, requires_grad=True) + 1, torch.arange(4))
    assert not data.inputs.requires_grad
    assert data.inputs.is_leaf


def test_a_function_of_the_users_draws_the_same_at_every_call(tmp_path, monkeypatch):
    (tmp_path / "drawn.py").write_text(
        "import random, numpy, torch\n"
        "from fedfibos import Split, TensorData\n"
        "def data(folder):\n"
        "    x = torch.randn(4, 2) + numpy.random.rand() + random.random()\n"
        "    return Split(TensorData(x, torch.arange(4)), TensorData(x, torch.arange(4)), tuple('abcd'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = torch.get_rng_state()
    first, again = load("drawn:data"), load("drawn:data")
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert torch.equal(torch.get_rng_state(), before)
