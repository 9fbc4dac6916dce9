"""ExecuTorch programs: lowered to XNNPACK, run by ExecuTorch's own runtime, compared with torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.export.formats import ExportError, describe, export_submodel, submodel_module
from fedfibos.export.pte import _held_back
from fedfibos.export.tracing import contiguous, repeated
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.submodel import full, mask_from_scores

X = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def submodel_of(model, kind):
    scores = model.initial_params().flat[: model.layout.num_maskable].abs()
    return {
        "slice": lambda: prefix(model, 0.25),
        "mask": lambda: mask_from_scores(scores, 0.25, model.layout),
        "full": lambda: full(model.layout),
    }[kind]()


@pytest.mark.slow_where("slice-lenet")
@pytest.mark.parametrize(
    ("kind", "name", "batch_size"),
    [
        ("slice", "lenet", None),
        pytest.param("mask", "cnn", None, marks=pytest.mark.slow),
        pytest.param("full", "resnet8", None, marks=pytest.mark.slow),
        pytest.param("slice", "resnet8", 1, marks=pytest.mark.slow),
    ],
)
def test_its_own_runtime_computes_what_the_submodel_does(tmp_path, kind, name, batch_size):
    model = model_of(build(name, 4, (1, 8, 8), seed=1), example=X[:2])
    submodel = submodel_of(model, kind)
    module = submodel_module(model, model.initial_params(), submodel)
    about = describe(submodel, method="heterofl")
    done = export_submodel(module, submodel, X, tmp_path / "sub.pte", about, batch_size=batch_size)
    assert done.difference <= 1e-5
    assert done.read_with == "ExecuTorch's runtime"
    assert done.bytes >= 4 * done.stored * 0.9
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(done.path)
    assert b"XnnpackBackend" in done.path.read_bytes()
    for count in (batch_size,) if batch_size else (1, 3):  # any number where none was given
        (got,) = program.load_method("forward").execute((X[:count].contiguous(),))
        with torch.no_grad():
            assert (got - module(X[:count])).abs().max() <= 1e-5
    assert program.load_method("about_method").execute([]) == ["heterofl"]
    assert program.load_method("about_kind").execute([]) == ["mask" if kind != "slice" else "slice"]


@pytest.mark.slow
@pytest.mark.parametrize(("capacity", "channels_last"), [(1.0, False), (0.25, True)])
def test_pictures_of_one_channel_with_the_strides_of_channels_last(tmp_path, capacity, channels_last):
    """As a data set of pictures, height x width x 1, gives them."""
    pictures = torch.randn(6, 8, 8, 1, generator=torch.Generator().manual_seed(2)).permute(0, 3, 1, 2)
    assert pictures.is_contiguous()
    assert pictures.stride() == (64, 1, 8, 1)
    module = build("resnet8", 4, (1, 8, 8), norm="batch", seed=1)
    model = model_of(module, example=pictures, channels_last=channels_last)
    held = prefix(model, capacity)
    data = TensorData(pictures, torch.arange(6) % 4)
    network = submodel_module(model, model.initial_params(), held, data)
    done = export_submodel(network, held, pictures, tmp_path / "sub.pte", describe(held))
    assert done.difference <= 1e-5
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(done.path).load_method("forward")
    many = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    for count in (1, 16, 64):  # traced on six, it takes up to 64
        (got,) = method.execute((many[:count].contiguous(),))
        with torch.no_grad():
            assert (got - network(many[:count])).abs().max() <= 1e-5


def test_examples_are_laid_out_in_the_order_of_their_dimensions():
    pictures = torch.randn(6, 8, 8, 1).permute(0, 3, 1, 2)
    assert contiguous(pictures, 4).stride() == (64, 64, 8, 1)
    assert contiguous({"a": pictures}, None)["a"].stride() == (64, 64, 8, 1)
    assert torch.equal(contiguous(pictures, 4), pictures[:4])
    assert torch.equal(repeated(pictures, 8), pictures[[0, 1, 2, 3, 4, 5, 0, 1]])
    assert torch.equal(repeated({"a": pictures}, 2)["a"], pictures[:2])


def test_what_cannot_be_traced_is_one_line_and_leaves_no_folder(tmp_path):
    class Branching(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :4] if x.sum() > 0 else x.flatten(1)[:, 4:8]

    model = model_of(build("lenet", 4, (1, 8, 8), seed=1), example=X[:2])
    with pytest.raises(ExportError, match="cannot be traced for any number of examples") as raised:
        export_submodel(Branching(), full(model.layout), X, tmp_path / "new" / "deep" / "sub.pte")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_what_the_runtime_says_is_shown_where_it_fails(capfd):
    def loading(fails):
        with _held_back():
            os.write(2, b"no such operator\n")
            assert not fails, "failed"

    loading(fails=False)
    assert capfd.readouterr().err == ""
    with pytest.raises(AssertionError, match="failed"):
        loading(fails=True)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "no such operator\nafter\n"


QUIET = """
import sys, torch
from pathlib import Path
from fedfibos.data.images import TensorData
from fedfibos.export.formats import describe, export_submodel, submodel_module
from fedfibos.model import model_of
from fedfibos.submodel import full
x = TensorData(torch.randn(4, 1, 8, 8), torch.zeros(4, dtype=torch.long))
net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 4))
model = model_of(net, example=x.batch(torch.arange(2)))
whole = full(model.layout)
module = submodel_module(model, model.initial_params(), whole)
export_submodel(module, whole, x.batch(torch.arange(4)), Path(sys.argv[1]), describe(whole, method="fedavg"))
"""


@pytest.mark.slow
def test_other_libraries_are_not_heard(tmp_path):
    got = subprocess.run([sys.executable, "-c", QUIET, tmp_path / "sub.pte"], capture_output=True, text=True)
    assert (got.returncode, got.stdout, got.stderr) == (0, "", "")
    assert (tmp_path / "sub.pte").stat().st_size > 0
