"""Whatever a user's own code does to stop a run is one line with its file and line first, by one process or two."""

from __future__ import annotations

import re
import sys

import pytest

from fedfibos.cli import main

CODE = """
import random
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from fedfibos.data import Split, TensorData
from fedfibos.methods import FIARSE


def points(folder, data=TensorData):
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(60, 4, generator=generator), torch.arange(60) % 3
    return Split(data(inputs[:40], labels[:40]), data(inputs[40:], labels[40:]), ("a", "b", "c"))


class Net(nn.Module):
    def __init__(self, num_classes, input_shape):
        super().__init__()
        self.layer = nn.Linear(4, num_classes)

    def forward(self, x):
        self.before(x)
        return self.layer(x)

    def before(self, x):
        pass


def leaving_model(num_classes, input_shape):
    raise SystemExit(0)


def interrupted_model(num_classes, input_shape):
    raise KeyboardInterrupt


class Leaving(Net):
    def before(self, x):
        if self.training and len(x) == 5:
            raise SystemExit(0)


class Interrupting(Net):
    def before(self, x):
        if self.training and len(x) == 5:
            raise KeyboardInterrupt


class Failing(Net):
    def before(self, x):
        if self.training and len(x) == 5:
            {}["missing"]


class NotEvaluated(Net):
    def before(self, x):
        if not self.training and len(x) > 10:
            raise RuntimeError("one\\ntwo\\n" + "long " * 200)


class Drawing(Net):
    def forward(self, x):
        return self.layer(x * random.random() + np.random.rand())


def leaving_points(folder):
    raise SystemExit(2)


class Ragged(TensorData):
    def batch(self, indices, augment=None):
        if augment is not None:
            return torch.stack([torch.zeros(4), torch.zeros(5)])
        return super().batch(indices)

    def subset(self, indices):
        return Ragged(self.inputs[indices], self.labels[indices])


def ragged_points(folder):
    return points(folder, Ragged)


class Sparse(Ragged):
    def batch(self, indices, augment=None):
        return self.inputs[indices].to_sparse()


def sparse_points(folder):
    return points(folder, Sparse)


@dataclass(frozen=True)
class Plain(FIARSE):
    pass


def verb(name, body):
    return dataclass(frozen=True)(type("Own", (Plain,), {name: body}))


def fails(*arguments):
    raise RuntimeError("not this time")


def leaves(*arguments):
    raise SystemExit(0)


def nothing(*arguments):
    return None


def short(self, model, state, params, client):
    from fedfibos.submodel import Mask
    return Mask(torch.ones(3, dtype=torch.bool), 3)


for word in ("init", "extract", "train", "update", "aggregate"):
    for body in (fails, leaves, nothing):
        globals()[f"{body.__name__}_{word}"] = verb(word, body)
short_extract = verb("extract", short)
half_aggregate = verb("aggregate", lambda self, state, params, sums: (state, None))
double_aggregate = verb(
    "aggregate", lambda self, state, params, sums: (state, replace(params, flat=params.flat.double()))
)
"""

CHANGES = """
data.name = "failures_of_the_test:points"
data.partition.scheme = "iid"
model.name = "failures_of_the_test:Net"
method.name = "fiarse"
local.batch_size = 5
"""

M = "failures_of_the_test"


def line_of(text: str) -> int:
    return [text in line for line in CODE.splitlines()].index(True) + 1


@pytest.fixture
def here(experiment_file, tmp_path, monkeypatch):
    (tmp_path / f"{M}.py").write_text(CODE)
    experiment_file(CHANGES, without=("model.options",), name="e.toml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop(M, None)


BEFORE = {
    f"model.name={M}:leaving_model": (2, f"{M}.py, line {line_of('SystemExit(0)')}: SystemExit: 0 (in model.name = "),
    f"model.name={M}:interrupted_model": (130, "interrupted"),
    f"data.name={M}:leaving_points": (2, f"{M}.py, line {line_of('SystemExit(2)')}: SystemExit: 2 (in data.name = "),
    f"data.name={M}:sparse_points": (2, "must be dense tensors (tensor.to_dense()), got torch.sparse_coo"),
    f"method.name={M}:nothing_init": (2, "a method's init must return State, got NoneType"),
    f"method.name={M}:fails_init": (1, f"{M}.py, line {line_of('not this time')}: RuntimeError: not this time"),
    f"method.name={M}:leaves_extract": (1, f"{M}.py, line {line_of('def leaves(') + 1}: SystemExit: 0"),
    f"method.name={M}:nothing_extract": (2, "a method's extract must return Mask or Slice, got NoneType"),
    f"method.name={M}:short_extract": (2, "a mask of shape (15,), got one of shape (3,) for client "),
}


@pytest.mark.parametrize("override", BEFORE)
def test_what_stops_a_run_before_its_first_round_is_one_line(here, capsys, override):
    code, message = BEFORE[override]
    for command in (["--dry-run"], ["--out", "run", "--workers", "2"]):
        assert main(["run", "e.toml", override, *command]) == code
        err = capsys.readouterr().err
        assert message in err.splitlines()[-1]
        assert "Traceback" not in err
    assert not (here / "run" / "rounds.jsonl").exists() or not (here / "run" / "rounds.jsonl").read_text()


IN = {
    f"model.name={M}:Leaving": (1, r"failures_of_the_test.py, line \d+: SystemExit: 0 \(training client \d\)"),
    f"model.name={M}:Interrupting": (130, "interrupted"),
    f"model.name={M}:Failing": (1, r"failures_of_the_test.py, line \d+: KeyError: 'missing' \(training client \d\)"),
    f"model.name={M}:NotEvaluated": (
        1,
        r"failures_of_the_test.py, line \d+: RuntimeError: one two (long )+.*\.\.\. \(in e",
    ),
    f"data.name={M}:ragged_points": (1, r"failures_of_the_test.py, line \d+: RuntimeError: stack expects .*\(training"),
    f"method.name={M}:fails_train": (1, r"failures_of_the_test.py, line \d+: RuntimeError: not this time \(training"),
    f"method.name={M}:nothing_train": (2, "a method's train must return Upload, got NoneType"),
    f"method.name={M}:fails_update": (1, r"failures_of_the_test.py, line \d+: RuntimeError: not this time"),
    f"method.name={M}:leaves_aggregate": (1, r"failures_of_the_test.py, line \d+: SystemExit: 0"),
    f"method.name={M}:nothing_update": (2, "a method's update must return State, got NoneType"),
    f"method.name={M}:nothing_aggregate": (2, "a method's aggregate must return tuple, got NoneType"),
    f"method.name={M}:half_aggregate": (2, "a method's aggregate must return Params, got NoneType"),
    f"method.name={M}:double_aggregate": (
        2,
        "a method's aggregate must return parameters of torch.float32, got torch.float64",
    ),
}


@pytest.mark.slow_where("nothing_aggregate", "double_aggregate", "NotEvaluated")
@pytest.mark.parametrize("override", IN)
def test_what_stops_it_in_a_round_is_the_same_line_by_one_process_or_two(here, capsys, override):
    code, message = IN[override]
    said = []
    for workers in ("1", "2"):
        run = ["run", "e.toml", override, "--workers", workers, "--out", f"run{workers}", "evaluation.every=1"]
        assert main(run) == code
        err = capsys.readouterr().err
        assert "Traceback" not in err
        assert len(err) < 700
        said.append(re.sub(r"client \d", "client", err.splitlines()[-1]))
    assert re.match(f"fedfibos: {message}".replace(r"client \d", "client"), said[0])
    assert said[0] == said[1]


def test_draws_from_the_streams_of_python_and_numpy_are_each_clients_own(here, capsys):
    digests = set()
    for workers in ("1", "2"):
        run = ["run", "e.toml", f"model.name={M}:Drawing", "--workers", workers, "--out", f"run{workers}"]
        assert main(run) == 0
        digests.add(re.search(r'"params_sha256": "(\w+)"', (here / f"run{workers}" / "final.json").read_text())[1])
        out = capsys.readouterr().out
        assert "forward draws from random, which is seeded anew" in " ".join(out.split())
    assert len(digests) == 1
