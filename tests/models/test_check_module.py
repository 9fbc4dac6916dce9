"""Modules that train although a look at one batch could take them for broken, and those that are."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedfibos.common.copies import uncompiled
from fedfibos.model import model_of
from fedfibos.models import check_module, encode
from fedfibos.tasks.classification import check_scores

SCORES = partial(check_scores, 3, labels=torch.zeros(2, dtype=torch.int64))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


class Elsewhere(Base):
    """Evaluates with numpy, which takes no tensor that gradients go through."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if self.training else torch.from_numpy(y.numpy() - 1)


class Clamped(Base):
    """Keeps a parameter within its range where no gradient is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            self.temperature.clamp_(0.1)
        return super().forward(x) / self.temperature


class Scripted(Base):
    """Has a part of TorchScript, of which no copy can be trained."""

    def __init__(self) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.first = torch.jit.script(nn.Sequential(nn.Linear(4, 5), nn.ReLU()))


class Sized(Base):
    """Has a length that cannot be asked for, as what torch.compile returns."""

    def __len__(self) -> int:
        raise TypeError("no length")


class Empty(Base):
    """Has the length 0: it is false."""

    def __len__(self) -> int:
        return 0


class Keeping(Base):
    """Keeps an activation of every call, which a module can no longer be copied with."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self.seen = self.first(x).relu()
        return self.last(self.seen)


class Generating(Base):
    """Keeps a generator."""

    def forward(self, x: Tensor) -> Tensor:
        self.pieces: Iterator[int] = (i for i in range(3))
        return super().forward(x)


class Closure(Base):
    """Keeps a function over itself: its copies go on using this one's parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.block = lambda x: self.first(x).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.block(x))


def compiled() -> nn.Module:
    module = torch.compile(Base(), backend="eager")
    assert isinstance(module, nn.Module)
    return module


@pytest.mark.parametrize("made", [Elsewhere, Clamped, Sized, Empty, Keeping, Generating, compiled])
def test_a_module_that_trains_is_accepted_and_left_as_it_was(made):
    module = made()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    check_module(module, torch.rand(2, 4), SCORES)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert module.training
    copy.deepcopy(module)  # as every client's workspace is made: it has not run itself


def test_a_copy_that_uses_the_originals_parameters_is_refused_and_they_are_left_as_they_were():
    module = Closure()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(ValueError, match=r"goes on using parameter 'first\.weight' of the module itself"):
        check_module(module, torch.rand(2, 4), SCORES)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


STATIC = """
from torch import nn
class Net(nn.Module):
    @staticmethod
    def encode(data, width=2):
        return ("encoded", data, width)
class Made(nn.Module):
    @classmethod
    def encode(cls, data):
        return (cls.__name__, data)
class Plain(nn.Module):
    def encode(self, x):
        return x
"""


def test_a_class_encodes_by_a_static_method_and_not_by_one_of_its_modules(tmp_path, monkeypatch):
    (tmp_path / "encoding_of_the_test.py").write_text(STATIC)
    monkeypatch.syspath_prepend(tmp_path)
    assert encode("encoding_of_the_test:Net", "data", {"width": 7}) == ("encoded", "data", 7)
    assert encode("encoding_of_the_test:Made", "data", {}) == ("Made", "data")
    assert encode("encoding_of_the_test:Plain", "data", {}) == "data"


def test_a_compiled_module_is_taken_as_it_was_before():
    """Its names are those of the module, and its code can get a slice's sizes."""
    module = compiled()
    model = model_of(module, example=torch.rand(2, 4))
    assert model.module is module._orig_mod
    assert model.layout.names == ("first.weight", "first.bias", "last.weight", "last.bias")
    plain = Base()
    assert uncompiled(plain) is plain


class Sized2(Base):
    """Knows one size of batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:2]


class Viewed(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(2, 4))


class Detached(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


class Closed(Base):
    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class Whole(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mul(100).long()


class Aside(Base):
    """Its logits are of no parameter, though they carry a gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), 3, requires_grad=True) + 1


class Unfilled(Base):
    def __init__(self) -> None:
        super().__init__()
        self.first.weight.data[1, 2] = torch.nan


class Leaving(Base):
    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(3)


class TrainingAlone(Base):
    """Fails in training, whatever the size of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise RuntimeError("not today")
        return super().forward(x)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (Sized2, "batches of any size are wanted: it takes 2 examples, but of 3 it makes logits of shape (2, 3)"),
        (Viewed, "input of size 12; batches of any size are wanted: it takes 2 examples, but of 3 it fails"),
        (Detached, "nothing can be trained: no gradient goes from its logits to a parameter"),
        (Closed, "nothing can be trained: no gradient goes from its logits to a parameter"),
        (Aside, "nothing can be trained: no gradient goes from its logits to a parameter"),
        (Scripted, "it must give a plain nn.Module, part 'first' is a scripted one: leave torch.jit out"),
        (Whole, "logits must be of a floating-point type, got torch.int64"),
        (Unfilled, "initial values must be finite, got 1 of 20 in parameter 'first.weight' that are not"),
        (Leaving, "test_check_module.py, line {raise SystemExit(3)}: SystemExit: 3"),
        (TrainingAlone, 'test_check_module.py, line {raise RuntimeError("not}: RuntimeError: not today; in training'),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_line(made, message):
    lines = Path(__file__).read_text().splitlines()
    for code in re.findall(r"{(.*)}", message):
        message = message.replace(f"{{{code}}}", str([code in line for line in lines].index(True) + 1))
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        check_module(made(), torch.rand(2, 4), SCORES)
    assert "\n" not in str(error.value)


class Squeezed(Base):
    """Loses a dimension where a batch has one example."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze()


def test_a_model_that_loses_a_dimension_of_a_batch_of_one_is_refused():
    wanted = "batches of any size are wanted: it takes 2 examples, but of 1 it makes logits of shape (3,)"
    with pytest.raises(ValueError, match=f"^{re.escape(wanted)}$"):
        check_module(Squeezed(), torch.rand(2, 4), SCORES)


def test_a_model_that_fails_on_a_batch_of_one_is_accepted():
    """A norm over the examples of a batch has nothing to do on one."""
    norm = nn.BatchNorm1d(5, track_running_stats=False)
    check_module(nn.Sequential(nn.Linear(4, 5), norm, nn.Linear(5, 3)), torch.rand(2, 4), SCORES)


@pytest.mark.parametrize(
    ("example", "said"),
    [
        (torch.rand(2, 6), "an example is float32 of shape (6,)"),
        (torch.ones(2, 4, dtype=torch.int64), "an example is int64 of shape (4,), parameters are float32"),
    ],
)
def test_what_an_example_is_is_said_where_the_model_fails_on_it(example, said):
    with pytest.raises(ValueError, match=f"; {re.escape(said)}$"):
        check_module(Base(), example, SCORES)


class Many(Base):
    """Wants more examples in training than it is shown."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) < 4:
            raise ValueError("at least 4")
        return super().forward(x)


class Nothing(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * torch.nan


class InTraining(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (torch.nan if self.training else 1.0)


class Infinite(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).abs() / 0


class Sparse(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to_sparse()


def on_meta() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3, device="meta"))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (Nothing, "its logits must be numbers, got nan in 6 of 6, of finite inputs"),
        (InTraining, "its logits must be numbers, got nan in 6 of 6, of finite inputs in training mode"),
        (Infinite, "its logits must be numbers, got inf in 6 of 6, of finite inputs"),
        (Sparse, "its logits must be dense tensors (tensor.to_dense()), got torch.sparse_coo"),
        (on_meta, "its parameters and buffers must have values, got '1.weight' on torch's meta device"),
    ],
)
def test_logits_and_parameters_without_numbers_are_refused(made, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_module(made(), torch.rand(2, 4), SCORES)


def test_inputs_that_are_no_numbers_are_not_the_models_fault():
    check_module(Base(), torch.full((2, 4), torch.nan), SCORES)


def test_a_module_that_trains_on_larger_batches_is_accepted():
    check_module(Many(), torch.rand(2, 4), SCORES)


def test_initial_values_that_are_no_numbers_are_named_in_plain_rounds_too():
    with pytest.raises(ValueError, match=r"initial values must be finite, got 1 of 20 in parameter 'first.weight'"):
        model_of(Unfilled()).initial_params()
