"""A model's parameters as one vector, maskable ones first."""

import hashlib
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfibos.params import Layout, Params, layout_of, maskable_names, params_of


def net():
    module = nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 1), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.fill_(number)
    return module


def test_maskable_tensors_come_first():
    layout = layout_of(net())
    assert layout.names == ("1.weight", "1.bias", "2.weight", "0.weight", "0.bias")
    assert layout.shapes == ((1, 2), (1,), (1, 1), (2,), (2,))
    assert (layout.num_maskable, layout.size, layout.offsets) == (4, 8, (0, 2, 3, 4, 6, 8))
    assert list(layout.maskable()) == [("1.weight", 0, 2), ("1.bias", 2, 3), ("2.weight", 3, 4)]
    assert params_of(net(), layout).flat.tolist() == [2.0, 2.0, 3.0, 4.0, 0.0, 0.0, 1.0, 1.0]


def test_tensors_are_views_and_the_digest_is_that_of_the_bytes():
    params = params_of(net(), layout_of(net()))
    params.tensors()["1.bias"].fill_(9.0)
    assert params.flat[2] == 9.0
    assert params.sha256() == hashlib.sha256(params.flat.numpy().tobytes()).hexdigest()
    with pytest.raises(ValueError, match=r"flat vector must have shape \(8,\), got \(3,\)"):
        params.layout.views(torch.zeros(3))


def test_layouts_that_mean_something_else_have_another_digest():
    one = Layout(("a", "b"), ((2,), (3,)), 1)
    others = [replace(one, names=("a", "c")), replace(one, shapes=((3,), (2,))), replace(one, num_maskable_tensors=2)]
    assert len({layout.digest for layout in (one, *others)}) == 4
    assert Layout(("a", "b"), ((2,), (3,)), 1).digest == one.digest


def test_held_parts_are_not_ranked():
    assert maskable_names(net(), ["1"]) == ["2.weight"]
    assert maskable_names(net(), ["1.bias"]) == ["1.weight", "2.weight"]
    with pytest.raises(
        ValueError, match=r"model.held must name trainable parts of the model, got '1.bais'; did you mean"
    ):
        maskable_names(net(), ["1.bais"])
    with pytest.raises(ValueError, match=r"model.held must leave parameters for the capacities to choose from"):
        maskable_names(net(), ["1", "2"])


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.ReLU(), "must have trainable parameters, ReLU has none"),
        (nn.LayerNorm(2), "outside normalisation layers for capacities to choose from, got none"),
        (
            nn.Linear(2, 1).double(),
            "parameter 'weight' must be float32, got torch.float64: the module's float",
        ),
    ],
)
def test_what_is_no_model_to_train(module, message):
    with pytest.raises(ValueError, match=message):
        layout_of(module)


def test_parameters_on_a_device_are_the_same():
    params = Params(Layout(("a",), ((2,),), 1), torch.tensor([1.0, 2.0]))
    assert params.to(torch.device("cpu")).sha256() == params.sha256()
