"""Exports with 8 bits: smaller files, and what that costs on test examples, in the file and on the screen."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.export.formats import ExportError, submodel_module
from fedfibos.export.int8 import export_int8
from fedfibos.methods._slicing import prefix
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.submodel import full

X = torch.randn(70, 1, 8, 8, generator=torch.Generator().manual_seed(0))
MODEL = model_of(build("lenet", 4, (1, 8, 8), seed=1, channels=(8, 16), hidden=64), example=X[:2])


def quantize(out, kind, submodel=None, training=None, **options):
    submodel = submodel or full(MODEL.layout)
    module = submodel_module(MODEL, MODEL.initial_params(), submodel)
    with torch.no_grad():
        labels = module(X).argmax(1)
    test = TensorData(X, torch.cat([labels[:60], (labels[60:] + 1) % 4]))  # 60 of 70 are right
    return export_int8(module, submodel, X[:6], out, kind, test, training, {"method": "heterofl"}, **options)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_file_of_8_bits_is_smaller_and_says_what_it_answers(tmp_path, kind):
    done = quantize(tmp_path / "new" / "small.onnx", kind, training=TensorData(X, torch.zeros(70).long()))
    assert done.tested == 70
    assert done.before == 60 / 70
    assert abs(done.after - done.before) <= 3 / 70
    assert done.bytes == done.path.stat().st_size < 0.6 * done.whole.bytes
    about = {entry.key: entry.value for entry in onnx.load(str(done.path)).metadata_props}
    assert about["method"] == "heterofl"
    assert about["int8"] == kind
    assert about["accuracy"] == f"{done.after:.4f} (float32 0.8571) on 70 test examples"
    assert [path.name for path in done.path.parent.iterdir()] == ["small.onnx"]


def test_a_slice_for_one_example_at_a_time(tmp_path):
    done = quantize(tmp_path / "small.onnx", "dynamic", prefix(MODEL, 0.25), batch_size=1)
    assert done.tested == 70
    assert done.whole.parameters == prefix(MODEL, 0.25).num_held


def test_what_cannot_be_is_one_line_and_leaves_nothing(tmp_path):
    with pytest.raises(ExportError, match=r"int8 is for a file that ends in .onnx, got 'a.pt2'"):
        quantize(tmp_path / "new" / "a.pt2", "dynamic")
    with pytest.raises(ExportError, match="int8 'static' needs training examples"):
        quantize(tmp_path / "new" / "a.onnx", "static")

    class Branching(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :4] if x.sum() > 0 else x.flatten(1)[:, 4:8]

    data = TensorData(X, torch.zeros(70).long())
    with pytest.raises(ExportError, match="cannot be traced"):
        export_int8(Branching(), full(MODEL.layout), X[:6], tmp_path / "new" / "a.onnx", "dynamic", data)
    assert list(tmp_path.iterdir()) == []
