"""ExecuTorch programs: lowered to XNNPACK, run by ExecuTorch's own runtime, compared with torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfibos.export.formats import ExportError, describe, export_submodel, submodel_module
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


def test_what_cannot_be_traced_is_one_line_and_leaves_no_folder(tmp_path):
    class Branching(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :4] if x.sum() > 0 else x.flatten(1)[:, 4:8]

    model = model_of(build("lenet", 4, (1, 8, 8), seed=1), example=X[:2])
    with pytest.raises(ExportError, match="cannot be traced for any number of examples") as raised:
        export_submodel(Branching(), full(model.layout), X, tmp_path / "new" / "deep" / "sub.pte")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []
