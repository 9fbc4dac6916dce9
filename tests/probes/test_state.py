"""State that a forward pass keeps in Python is found before the first round, and nothing else is taken for it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from fedfibos.probes.state import changed_buffers, state_cautions

Change = Callable[["Net", Tensor], Tensor]
STEPS = [0]
NOISE = np.random.default_rng(0)


class Net(nn.Module):
    made = 0

    def __init__(self, change: Change, **kept: object) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(4, 3), change
        for name, value in kept.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.change(self, x))


def generator(net, x):
    return x + torch.randn(x.shape, generator=net.own)


def counter(net, x):
    net.calls += 1
    return x if net.calls < 20 else x * 0.5


def in_training(net, x):
    if net.training:
        net.calls += 1
    return x


def in_evaluation(net, x):
    if not net.training:
        net.calls += 1
    return x


def in_a_dict(net, x):
    net.stats["calls"] += 1
    return x


def in_a_list(net, x):
    net.seen.append(x.mean())
    return x * len(net.seen)


def late(net, x):
    net.seen.append(0.0)
    return x if len(net.seen) < 6 else x * 2


def tensor(net, x):
    net.mean = 0.9 * net.mean + 0.1 * x.mean().detach()
    return x - net.mean


def of_the_class(net, x):
    Net.made += 1
    return x


class Helper:
    def __init__(self):
        self.calls = 0


def helper(net, x):
    net.helper.calls += 1
    return x


def numpys(net, x):
    return x + float(net.own.normal())


def pythons(net, x):
    return x if net.own.random() < 0.9 else x * 0


def counted(net, x):
    return x + next(net.own)


def once(net, x):
    if net.scale is None:
        net.scale = float(x.std()) + net.training
    return x / net.scale


def hidden(net, x):
    return x * net.pick()


def alternating():
    turns = itertools.cycle([1.0, 2.0])
    return lambda: next(turns)


STATEFUL = [
    (generator, {"own": torch.Generator()}, "own"),
    (counter, {"calls": 0}, "calls"),
    (in_training, {"calls": 0}, "calls"),
    (in_evaluation, {"calls": 0}, "calls"),
    (in_a_dict, {"stats": {"calls": 0}}, "stats['calls']"),
    (in_a_list, {"seen": []}, ""),
    (late, {"seen": []}, ""),
    (tensor, {"mean": torch.zeros(())}, ""),
    (of_the_class, {}, "Net.made"),
    (helper, {"helper": Helper()}, "helper.calls"),
    (numpys, {"own": np.random.default_rng(0)}, "own"),
    (numpys, {"own": np.random.RandomState(0)}, "own"),
    (pythons, {"own": random.Random(0)}, "own"),
    (counted, {"own": itertools.count()}, "own"),
    (hidden, {"pick": alternating()}, ""),
]


@pytest.mark.parametrize(("change", "kept", "where"), STATEFUL)
def test_state_in_python_is_said_with_its_place(change, kept, where):
    lines = state_cautions(Net(change, **kept), torch.rand(2, 4) + 1)
    place = f" ({where})" if where else ""
    assert [line.partition(":")[0] for line in lines] == [f"forward keeps state in Python from call to call{place}"]


class Global(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        STEPS[0] += 1
        return self.layer(x) * float(NOISE.normal())


def test_globals_that_forward_names_are_looked_at():
    (line,) = state_cautions(Global(), torch.rand(2, 4))
    assert line.startswith("forward keeps state in Python from call to call (NOISE, STEPS[0]): ")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda net, x: x * random.random(), "random"),
        (lambda net, x: x * np.random.rand(), "numpy.random"),  # noqa: NPY002
        (lambda net, x: x if random.random() < 0.9 else x * 0, "random"),
    ],
)
def test_draws_from_the_other_global_streams_are_said(change, name):
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    lines = state_cautions(Net(change), torch.rand(2, 4))
    assert lines == [
        f"forward draws from {name}, which is seeded anew for every client here; torch's random numbers are everywhere"
    ]
    assert (random.getstate(), repr(np.random.get_state())) == before  # noqa: NPY002


def activation(net, x):
    net.seen = x.detach() * 2
    return x


def history(net, x):
    net.seen = [*net.seen[-2:], x.norm()]
    return x


def cache(net, x):
    if net.table is None:
        net.table, net.length = torch.arange(4.0), 4
    return x + net.table


def drawing(net, x):
    return dropout(x, 0.5)


@pytest.mark.parametrize(
    ("change", "kept"),
    [(activation, {}), (history, {"seen": []}), (cache, {"table": None, "length": 0}), (drawing, {})],
)
def test_what_forward_keeps_to_no_effect_and_torchs_own_draws_are_no_state(change, kept):
    assert state_cautions(Net(change, **kept), torch.rand(2, 4)) == []


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3)),
        nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), nn.Linear(5, 3)),
        nn.Sequential(nn.Unflatten(1, (4, 1)), nn.TransformerEncoderLayer(1, 1, 4, batch_first=True), nn.Flatten()),
    ],
)
def test_layers_of_torch_keep_nothing_in_python(module):
    assert [line for line in state_cautions(module, torch.rand(2, 4)) if "Python" in line] == []


def test_a_module_is_not_run_by_looking_at_it():
    net = Net(counter, calls=0)
    state_cautions(net, torch.rand(2, 4))
    assert net.calls == 0


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(self.norm(x))


def test_a_buffer_that_training_changes_is_named_and_statistics_of_normalisation_are_not():
    assert changed_buffers(Counting(), torch.rand(2, 4)) == ["calls"]
    assert state_cautions(Counting(), torch.rand(2, 4))[0].startswith("training changes the buffer 'calls' of the")


def around():
    calls = 0

    def change(net: Net, x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x if calls < 20 else x * 0.5

    return change


def default(net: Net, x: Tensor, calls: list[int] = [0]) -> Tensor:  # noqa: B006
    calls[0] += 1
    return x if calls[0] < 20 else x * 0.5


def attribute(net: Net, x: Tensor) -> Tensor:
    attribute.calls = getattr(attribute, "calls", 0) + 1  # type: ignore[attr-defined]
    return x if attribute.calls < 20 else x * 0.5  # type: ignore[attr-defined]


def through_another(net: Net, x: Tensor) -> Tensor:
    return attribute(net, x)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (around(), "change.calls"),
        (default, "change, default 0[0]"),
        (attribute, "change.calls"),
        (through_another, "attribute.calls"),
    ],
)
def test_what_a_function_keeps_is_found_before_it_matters(change, where):
    """In a variable around it, a default, an attribute: the logits of the first calls are alike."""
    (line,) = state_cautions(Net(change), torch.rand(2, 4))
    assert line.startswith("forward keeps state in Python from call to call (")
    assert where in line
