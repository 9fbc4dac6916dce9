"""The sliced methods, and FIARSE, on models of many kinds; the scaler against hooks on the layers' outputs."""

import functools
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedfibos.methods import METHODS
from fedfibos.methods._slicing import prefix, scaler_cautions, slice_of, train_slice, width_of
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.round import federated_round
from fedfibos.steps.loss import without_absent_classes
from fedfibos.submodel import Slice, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State
from zoo import NUM_CLASSES, ZOO, Example, zoo

NAMES = ("heterofl", "fedrolex", "fedbrb", "fiarse")


class Batch:
    """The example batch of a zoo model as a data set: images or token ids."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, augment: torch.Generator | None = None) -> Tensor:
        return self.inputs[indices]

    def subset(self, indices: Tensor) -> "Batch":
        return Batch(self.batch(indices), self.labels[indices])


@functools.cache
def built(name: str) -> tuple[Example, Model]:
    """A model of the zoo, whose axes are derived once for all tests: no method changes it."""
    example = zoo(name)
    return example, model_of(example.module, example=example.example_inputs, axes=example.table)


def cohort(example: Example, capacities: tuple[float, ...], t: int = 0, absent: str = "keep") -> list[Client]:
    labels = torch.arange(6) % (NUM_CLASSES - 1)
    local = LocalTraining(steps=2, batch_size=6, lr=0.05, absent_labels=absent)
    return [Client(n, c, t, 0, local, Batch(example.example_inputs, labels)) for n, c in enumerate(capacities)]


@pytest.mark.parametrize("method", NAMES)
@pytest.mark.parametrize("name", ZOO)
def test_every_method_trains_every_model(name, method):
    """Two rounds of mixed capacities: what is held moves, what nobody holds stays, nothing is NaN."""
    example, model = built(name)
    verbs = METHODS[method](**({"broadcast": 0.0} if method == "fedbrb" else {}))
    state, params = State(), model.initial_params()
    for t in range(2):
        clients = cohort(example, (0.6, 0.35), t)
        held = torch.zeros(model.layout.size)
        for client in clients:
            submodel = verbs.extract(model, state, params, client)
            assert 0 < submodel.num_held < model.layout.size
            submodel.count_in(held, 1.0)
        state, after, report = federated_round(verbs, model, state, params, clients)
        assert report.rejected == {}
        assert torch.equal(after.flat[held == 0], params.flat[held == 0])
        assert not torch.equal(after.flat, params.flat)
        assert bool(torch.isfinite(after.flat).all())
        params = after


@pytest.mark.parametrize("method", ["heterofl", "fedrolex", "fedbrb"])
@pytest.mark.parametrize("name", [name for name in ZOO if name != "lstm"])
def test_rows_of_absent_classes_are_found_in_every_model(name, method):
    """No client has the last class: exactly its rows stay, under masked labels."""
    example, model = built(name)
    verbs, params = METHODS[method](), model.initial_params()
    _, after, _ = federated_round(verbs, model, State(), params, cohort(example, (1.0, 0.5), absent="mask"))
    rows = ~without_absent_classes(model, model.layout, torch.arange(NUM_CLASSES - 1))
    head = [m for m in model.module.modules() if isinstance(m, nn.Linear)][-1]
    assert int(rows.sum()) == head.in_features + 1
    assert torch.equal(after.flat[rows], params.flat[rows])
    assert not torch.equal(after.flat, params.flat)


IMAGE_MODELS = ("mlp", "lenet", "cnn_none", "cnn_batch", "resnet8_batch", "depthwise", "concat", "third_party_resnet")


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_the_scaler_divides_the_outputs_of_every_layer_but_the_classifier(name):
    """One step with scaled weights equals one step with hooks that divide each layer's output by the width."""
    (example, model), width = built(name), 0.5
    client = replace(cohort(example, (0.5,))[0], local=LocalTraining(steps=1, batch_size=6, lr=1.0))
    widths = model.axes.widths(width)
    submodel = slice_of(model, {axis: torch.arange(n) for axis, n in widths.items()})
    assert isinstance(submodel, Slice)
    params = model.initial_params()
    scaled = train_slice(model, params, submodel, client, width=width, scaler=True)
    module = model.workspace(submodel).module
    layers = [m for m in module.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    hooks = [m.register_forward_hook(lambda _, __, out: out / width) for m in layers[:-1]]
    hooked = train_slice(model, params, submodel, client, width=width, scaler=False)
    for hook in hooks:
        hook.remove()
    plain = train_slice(model, params, submodel, client, width=width, scaler=False)
    assert float(scaled.loss) == pytest.approx(float(hooked.loss), rel=1e-5)
    torch.testing.assert_close(scaled.delta, hooked.delta, rtol=1e-3, atol=1e-5)
    # in front of a normalisation the scaler only moves its epsilon
    assert name not in ("mlp", "lenet", "cnn_none", "concat") or not torch.allclose(
        plain.delta, hooked.delta, rtol=1e-2, atol=1e-4
    )


def test_width_of_a_capacity():
    _, model = built("mlp")
    assert width_of(model, 0.4, "width") == 0.4
    widths = model.axes.widths(width_of(model, 0.4, "parameters"))
    assert model.axes.small_layout(model.layout, widths).num_maskable <= 0.4 * model.layout.num_maskable
    with pytest.raises(ValueError, match=r"capacity must be in \(0, 1\], got 1.5"):
        width_of(model, 1.5, "width")


def test_the_whole_model_is_a_mask_that_holds_everything():
    _, model = built("mlp")
    whole = slice_of(model, {axis: torch.arange(size).flip(0) for axis, size in model.axes.sizes.items()})
    assert not isinstance(whole, Slice)
    assert whole.num_held == model.layout.size


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (lambda: build("resnet8", num_classes=3, input_shape=(3, 8, 8), norm="group", seed=0), None),
        (lambda: build("lenet", num_classes=3, input_shape=(3, 16, 16), norm="group", seed=0), "'hidden' to undo"),
        (
            lambda: build("lenet", num_classes=3, input_shape=(3, 16, 16), norm="none", seed=0),
            "'features.0' and 2 more",
        ),
    ],
)
def test_scaled_layers_that_no_normalisation_follows_are_named(module, named):
    """One normalisation somewhere is not enough: LeNet's hidden layer, most of its parameters, has none after it."""
    made = module()
    size = 8 if named is None else 16
    model = model_of(made, example=torch.zeros(2, 3, size, size))
    said = scaler_cautions(model, (1.0, 0.5), scaler=True)
    assert len(said) == (named is not None)
    assert named is None or f"no normalisation follows {named}" in said[0]
    assert scaler_cautions(model, (1.0,), scaler=True) == []
    assert scaler_cautions(model, (1.0, 0.5), scaler=False) == []


@pytest.mark.parametrize("basis", ["parameters", "width"])
def test_a_model_without_channels_to_cut_is_refused(basis):
    model = model_of(nn.Linear(5, 3), example=torch.zeros(2, 5))
    assert prefix(model, 1.0, basis) == full(model.layout)
    with pytest.raises(ValueError, match=r"capacity 0\.5 needs a layer whose channels can be cut, the model has none"):
        prefix(model, 0.5, basis)
