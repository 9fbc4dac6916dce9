"""What every method must keep to, over models of several kinds."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedfibos.data.images import TensorData
from fedfibos.method import Method
from fedfibos.methods import METHODS, FedBRB
from fedfibos.model import Model, model_of
from fedfibos.params import Params
from fedfibos.round import NoUploadError, federated_round
from fedfibos.soundness import fault
from fedfibos.submodel import Mask, budget
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State
from small_models import CAPACITIES, CLASSES, INPUT, MODELS, cohort, data, small_model

pytestmark = pytest.mark.slow_where("resnet8", "cnn")  # the zoo trains them too

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in METHODS},
    "fedfibos-client": ("fedfibos", {"sharing": "client"}),
    "fedfibos-core": ("fedfibos", {"sharing": "blend", "blend_of": "budget", "blend": 0.5}),
    "fedfibos-blend-none": ("fedfibos", {"sharing": "blend", "prior": "none"}),
    "fedfibos-ssp-layer-none": ("fedfibos", {"criterion": "ssp", "scope": "layer", "prior": "none"}),
    "fedfibos-saliency-floor": ("fedfibos", {"criterion": "saliency", "floor": 0.25}),
    "channels-client": ("fedfibos-channels", {"sharing": "client", "scope": "layer"}),
    "channels-blend": ("fedfibos-channels", {"sharing": "blend", "every": 2, "hysteresis": 0.5}),
    "channels-estimate": ("fedfibos-channels", {"start": "estimate", "criterion": "first"}),
    "fedfibos-literal-participants": ("fedfibos", {"fisher": "literal", "average": "participants"}),
}


def pytest_generate_tests(metafunc):
    """Every method meets every model. A variant of one meets two: one whose residual sums tie channels, if it cuts."""
    names = [name for name in ("method", "model") if name in metafunc.fixturenames]
    if names == ["method", "model"]:
        cases = [(variant, model) for variant in METHODS for model in MODELS]
        for variant in [variant for variant in VARIANTS if variant not in METHODS]:
            tied = "resnet8-group" if VARIANTS[variant][0] == "fedfibos-channels" else "cnn-batch"
            cases += [(variant, tied), (variant, "mlp-held-head")]
        metafunc.parametrize(names, cases, indirect=True)
    elif names:
        metafunc.parametrize(names, [(model,) for model in MODELS], indirect=True)


@pytest.fixture
def model(request) -> Model:
    return small_model(request.param)


@pytest.fixture
def method(request) -> Method:
    name, settings = VARIANTS[request.param]
    return METHODS[name](**settings)


def run(method: Method, model: Model, rounds: int = 2, **kwargs: Any) -> tuple[State, Params]:
    params = model.initial_params()
    state = method.init(params)
    for t in range(rounds):
        state, params, report = federated_round(method, model, state, params, cohort(t, **kwargs))
        assert report.rejected == {}
    return state, params


def held_of(submodel: Any, model: Model) -> torch.Tensor:
    count = torch.zeros(model.layout.size)
    submodel.count_in(count, 1.0)
    return count > 0


def test_realised_budget(method, model):
    """A mask holds exactly ⌈γd⌉ of the maskable coordinates (one tensor each at least), a slice at most that."""
    state, params = run(method, model, rounds=1)
    d = model.layout.num_maskable
    for capacity in CAPACITIES:
        client = replace(cohort(1)[0], capacity=capacity)
        submodel = method.extract(model, state, params, client)
        count = int(held_of(submodel, model)[:d].sum())
        if type(method).__name__ == "FedAvg":
            assert count == d
        elif isinstance(submodel, Mask):
            assert count == budget(capacity, d)
        else:
            assert 0 < count <= budget(capacity, d)


def test_delta_is_zero_off_the_mask_and_values_are_finite(method, model):
    params = model.initial_params()
    state = method.init(params)
    for client in cohort():
        submodel = method.extract(model, state, params, client)
        upload = method.train(model, params, submodel, client)
        total = torch.zeros(model.layout.size)
        submodel.add_to(total, upload.delta, 1.0)
        assert bool((total[~held_of(submodel, model)] == 0).all())
        assert bool(torch.isfinite(total).all())
        assert float(total.abs().sum()) > 0
        assert upload.num_steps == 2


def test_coordinates_that_nobody_held_keep_their_value(method, model):
    if isinstance(method, FedBRB):  # with its broadcast, trained blocks reach the others: see its own tests
        method = replace(method, broadcast=0.0)
    params = model.initial_params()
    state = method.init(params)
    clients = cohort(capacity=0.25)
    held = torch.zeros(model.layout.size, dtype=torch.bool)
    for client in clients:
        held |= held_of(method.extract(model, state, params, client), model)
    _, after, _ = federated_round(method, model, state, params, clients)
    assert torch.equal(after.flat[~held], params.flat[~held])
    assert not torch.equal(after.flat[held], params.flat[held])


def test_the_order_of_the_cohort_does_not_matter(method, model):
    params = model.initial_params()
    state = method.init(params)
    _, first, _ = federated_round(method, model, state, params, cohort())
    _, second, _ = federated_round(method, model, state, params, cohort()[::-1])
    assert torch.equal(first.flat, second.flat)


def test_inputs_are_not_changed(method, model):
    params = model.initial_params()
    state = method.init(params)
    flat = params.flat.clone()
    tensors = {name: tensor.clone() for name, tensor in state.tensors.items()}
    module = [p.clone() for p in model.module.parameters()]
    next_state, next_params, _ = federated_round(method, model, state, params, cohort())
    assert torch.equal(params.flat, flat)
    assert all(torch.equal(state.tensors[name], tensor) for name, tensor in tensors.items())
    assert state.rows.clients() == []
    assert all(torch.equal(a, b) for a, b in zip(model.module.parameters(), module, strict=True))
    assert next_params.layout == params.layout
    assert next_params.flat.dtype == torch.float32
    assert next_state.tensors.keys() == state.tensors.keys()


def test_same_seed_same_bytes_whatever_the_global_random_state(method, model):
    torch.manual_seed(1)
    _, first = run(method, model)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    _, second = run(method, model)
    assert first.sha256() == second.sha256()
    assert torch.equal(before, torch.get_rng_state())


def test_another_client_does_not_move_the_others(method, model):
    """A client's training depends on its own streams: adding a client to the fleet leaves its upload as it was."""
    params = model.initial_params()
    state = method.init(params)
    alone, among = cohort(size=1)[0], cohort(size=4)[0]
    uploads = [
        method.train(model, params, method.extract(model, state, params, client), client) for client in (alone, among)
    ]
    assert torch.equal(uploads[0].delta, uploads[1].delta)


def test_full_capacity_is_fedavg(method, model):
    """Capacity 1 for everyone and the participants' average: FedAvg, to the bit."""
    _, expected = run(METHODS["fedavg"](), model, capacity=1.0)
    _, got = run(replace(method, average="participants"), model, capacity=1.0)
    assert torch.equal(got.flat, expected.flat)


def test_training_lowers_the_loss(method, model):
    params = model.initial_params()
    state = method.init(params)
    losses = []
    for t in range(8):
        state, params, report = federated_round(method, model, state, params, cohort(t))
        losses.append(report.loss)
    assert losses[-1] < losses[0]


class _Unstable:
    """A client whose data are not numbers."""

    def __init__(self, wrapped: TensorData) -> None:
        self.wrapped, self.labels = wrapped, wrapped.labels

    def __len__(self) -> int:
        return len(self.wrapped)

    def batch(self, indices, augment=None):
        return self.wrapped.batch(indices, augment) * float("nan")

    def subset(self, indices):
        return _Unstable(self.wrapped.subset(indices))


def test_a_client_with_nan_is_rejected_named_and_the_round_goes_on(method, model):
    params = model.initial_params()
    state = method.init(params)
    clients = cohort()
    broken = [replace(c, data=_Unstable(c.data)) if c.id == 2 else c for c in clients]
    _, after, report = federated_round(method, model, state, params, broken)
    assert list(report.rejected) == [2]
    assert "not finite" in report.rejected[2]
    _, expected, _ = federated_round(method, model, state, params, [c for c in clients if c.id != 2])
    assert torch.equal(after.flat, expected.flat)


def test_an_upload_whose_loss_is_not_a_number_is_rejected(method, model):
    """Its update may be sound by chance; a record cannot hold the loss."""
    params = model.initial_params()
    client = cohort()[0]
    submodel = method.extract(model, method.init(params), params, client)
    upload = method.train(model, params, submodel, client)
    assert fault(upload) is None
    assert fault(replace(upload, loss=math.nan)) == "its training loss is nan"
    assert fault(replace(upload, loss=torch.tensor(math.inf))) == "its training loss is inf"


def test_an_empty_client_is_rejected_and_named(method, model):
    params = model.initial_params()
    clients = cohort()
    clients[1] = replace(clients[1], data=clients[1].data.subset(torch.arange(0)))
    _, _, report = federated_round(method, model, method.init(params), params, clients)
    assert report.rejected == {1: "it has no training example, wanted at least 1"}
    _, _, sound = federated_round(method, model, method.init(params), params, cohort())
    assert report.bytes_down == sound.bytes_down  # it was sent its submodel
    assert report.bytes_up < sound.bytes_up


def test_absent_labels_mean_the_same_to_every_method(method, model):
    """Four clients of one class each: a class's row is averaged over its one holder, whoever ranks or cuts."""
    local = LocalTraining(steps=2, batch_size=4, lr=0.05, absent_labels="mask")
    one_class = [TensorData(data(n).inputs, torch.full((12,), n)) for n in range(CLASSES)]
    clients = [Client(n, 1.0, 0, 7, local, one_class[n]) for n in range(CLASSES)]
    params = model.initial_params()
    _, after, _ = federated_round(replace(method, average="holders"), model, method.init(params), params, clients)
    for name, before, now in zip(
        params.layout.names, params.layout.views(params.flat), params.layout.views(after.flat), strict=True
    ):
        if name in model.axes.classes:
            alone = []
            for client in clients:
                upload = method.train(model, params, method.extract(model, method.init(params), params, client), client)
                alone.append(params.layout.views(upload.delta)[params.layout.names.index(name)][client.id])
            torch.testing.assert_close(before - now, torch.stack(alone))


@pytest.mark.parametrize("name", ["fiarse", "fedfibos"])
def test_a_masked_client_of_absent_labels_holds_its_mask_without_their_rows(name):
    method, model = METHODS[name](), model_of(MODELS["mlp"](), example=torch.zeros(2, *INPUT))
    local = LocalTraining(steps=1, batch_size=4, absent_labels="mask")
    client = Client(0, 0.5, 0, 7, local, TensorData(data(0).inputs, torch.zeros(12, dtype=torch.int64)))
    params = model.initial_params()
    submodel = method.extract(model, method.init(params), params, client)
    upload = method.train(model, params, submodel, client)
    weight = model.layout.names.index("classifier.weight")
    mask, held = (model.layout.views(tensor) for tensor in (submodel.held, upload.counted))
    assert torch.equal(held[weight][0], mask[weight][0])
    assert mask[weight][1:].any()
    assert not held[weight][1:].any()
    assert torch.equal(held[0], mask[0])


def test_a_cohort_that_weighs_nothing_is_refused(method, model):
    params = model.initial_params()
    clients = [replace(client, weight=0.0) for client in cohort()]
    with pytest.raises(NoUploadError, match="must weigh more than 0 together, got 0"):
        federated_round(method, model, method.init(params), params, clients)


@pytest.mark.parametrize("name", METHODS)
def test_a_word_that_a_method_does_not_know_is_refused_when_it_is_made(name):
    for field in dataclasses.fields(METHODS[name]):
        if isinstance(getattr(METHODS[name](), field.name), str):
            with pytest.raises(ValueError, match=f"{field.name} must be one of .*got 'nonsense'"):
                METHODS[name](**{field.name: "nonsense"})


@pytest.mark.parametrize("name", METHODS)
def test_a_field_is_what_it_is_declared_as_when_a_method_is_made(name):
    wrong = {bool: ("no", "True or False"), int: (2.5, "an integer"), float: (math.inf, "a finite number")}
    for field in dataclasses.fields(METHODS[name]):
        value = getattr(METHODS[name](), field.name)
        if type(value) in wrong:
            given, said = wrong[type(value)]
            with pytest.raises(ValueError, match=f"{field.name} must be {said}, got "):
                METHODS[name](**{field.name: given})
    for rate in (0, -1.0):
        with pytest.raises(ValueError, match=f"server_lr must be a positive number, got {rate}"):
            METHODS[name](server_lr=rate)


def test_the_nearest_word_is_named():
    with pytest.raises(ValueError, match="got 'clint'; did you mean 'client'"):
        METHODS["fedfibos"](sharing="clint")


@pytest.mark.parametrize("sharing", ["shared", "client"])
def test_a_score_is_the_mean_of_those_that_have_the_class(sharing):
    """Four clients of one class each under masked labels: the others' zeros in a class's row are no estimates of it."""
    method = METHODS["fedfibos"](sharing=sharing, fisher="held", prior="none")
    model = model_of(MODELS["mlp"](), example=torch.zeros(2, *INPUT))
    local = LocalTraining(steps=2, batch_size=4, lr=0.05, absent_labels="mask")
    one_class = [TensorData(data(n).inputs, torch.full((12,), n)) for n in range(CLASSES)]
    clients = [Client(n, 1.0, 0, 7, local, one_class[n]) for n in range(CLASSES)]
    params = model.initial_params()
    before = method.init(params)
    state, after, _ = federated_round(method, model, before, params, clients)
    place = model.layout.names.index("classifier.weight")
    for client in clients:
        alone = method.train(model, params, method.extract(model, before, params, client), client).statistic
        scores = method.importance(state, after, client)
        own, score = (model.layout.maskable_views(vector)[place][client.id] for vector in (alone, scores))
        torch.testing.assert_close(score, own)
        assert bool((own > 0).any())
