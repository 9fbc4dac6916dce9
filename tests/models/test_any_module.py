"""Modules that do what torch allows and a library forgets: each of these once trained, or was evaluated, wrongly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_model
from torch import nn

from fedfibos.analysis.accuracy import Trial, accuracy, answers, correct, evaluate
from fedfibos.analysis.cost import forward_macs
from fedfibos.analysis.theory import coefficient_of_variation
from fedfibos.data.images import TensorData
from fedfibos.export.formats import export_submodel, submodel_module
from fedfibos.local import local_training
from fedfibos.methods import FIARSE, FedFIbOS, FedRolex
from fedfibos.methods._slicing import _has_cut_outputs
from fedfibos.model import model_of
from fedfibos.params import layout_of
from fedfibos.submodel import Mask, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client, upload_bytes

CLASSES = 3


def data(size: int = 12, features: int = 5, seed: int = 0) -> TensorData:
    generator = torch.Generator().manual_seed(seed)
    return TensorData(
        torch.randn(size, features, generator=generator), torch.randint(CLASSES, (size,), generator=generator)
    )


def seeded_module(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


class Sum(nn.Module):
    """Two parameters that are added: autograd returns one gradient tensor for both; and one that is summed over."""

    def __init__(self):
        super().__init__()
        self.base, self.extra = (nn.Parameter(torch.randn(CLASSES, 5)) for _ in range(2))
        self.shift = nn.Parameter(torch.randn(4))

    def forward(self, x):
        scores = x @ (self.base + self.extra).T
        return torch.cat([scores[:, :1] + self.shift.sum(), scores[:, 1:]], 1)


SETTINGS = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9},
    {"lr": 0.1, "weight_decay": 0.1},
    {"lr": 0.1, "clip_norm": 0.1},
    {"lr": 0.01, "optimizer": "adamw", "clip_norm": 0.1},
]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_gradients_in_the_same_memory_are_stepped_apart(settings, masked):
    model = model_of(seeded_module(Sum), maskable=["base", "extra", "shift"])
    params, layout = model.initial_params(), model.layout
    held = torch.rand(layout.size, generator=torch.Generator().manual_seed(1)) > (0.4 if masked else -1.0)
    local = LocalTraining(steps=3, batch_size=12, **settings)
    upload = local_training(model, params, Mask(held, int(held.sum())), Client(0, 1.0, 0, 0, local, data()))
    values = [nn.Parameter(v.clone()) for v in layout.views(params.flat * held)]
    keep = layout.views(held.float())
    if local.optimizer == "adamw":
        optimizer = torch.optim.AdamW(values, local.lr, weight_decay=0.0)
    else:
        optimizer = torch.optim.SGD(values, local.lr, local.momentum, weight_decay=local.weight_decay)
    batch = data()
    for _ in range(3):
        scores = torch.func.functional_call(model.module, dict(zip(layout.names, values, strict=True)), (batch.inputs,))
        gradients = torch.autograd.grad(nn.functional.cross_entropy(scores, batch.labels), values)
        for value, gradient, mask in zip(values, gradients, keep, strict=True):
            value.grad = gradient.clone(memory_format=torch.contiguous_format) * mask
        if local.clip_norm:
            nn.utils.clip_grad_norm_(values, local.clip_norm)
        optimizer.step()
    expected = params.flat * held - torch.cat([v.detach().reshape(-1) for v in values])
    torch.testing.assert_close(upload.delta, expected, rtol=1e-4, atol=1e-6)


class Reassigned(nn.Module):
    """Keeps a running mean by putting a new tensor in the buffer's place."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, CLASSES)
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("last", None)

    def forward(self, x):
        self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        self.last = x.mean(0)
        return self.layer(x - self.mean)


def test_a_client_leaves_no_trace_in_buffers_that_a_module_replaces():
    model = model_of(seeded_module(Reassigned))
    params, local = model.initial_params(), LocalTraining(steps=3, batch_size=6, lr=0.1)
    first, second = (Client(n, 1.0, 0, 0, local, data(seed=n)) for n in range(2))
    alone = local_training(model, params, full(model.layout), first)
    local_training(model, params, full(model.layout), second)
    after = local_training(model, params, full(model.layout), first)
    assert torch.equal(alone.delta, after.delta)
    work = model.workspace(full(model.layout))
    assert work.load(params.flat).last is None


def test_a_frozen_tensor_is_cut_with_the_channels_of_the_slice():
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    module[2].weight.requires_grad_(False)
    model = model_of(module, example=torch.zeros(2, 5))
    client, params = Client(0, 0.5, 3, 0, LocalTraining(steps=1)), model.initial_params()
    submodel = FedRolex(capacity_basis="width").extract(model, FedRolex().init(params), params, client)
    channels = submodel.units.view(2, 4) - torch.tensor([[0], [8]])
    work = model.workspace(submodel)
    assert channels.tolist() != [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert torch.equal(work.module[2].weight, module[2].weight[channels[1]][:, channels[0]])


def normalised(norm: nn.Module, side: int) -> nn.Module:
    return nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), norm, nn.Flatten(), nn.Linear(4 * side, CLASSES))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.InstanceNorm1d(4, track_running_stats=True)], ids=["bn", "in"])
def test_statistics_are_those_of_the_calibration_set_whatever_the_batch_size(norm):
    module = normalised(norm, 6)
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(1003, 1, 6, generator=generator), torch.arange(1003) % CLASSES
    every = TensorData(inputs * 3 + 2, labels)
    model = model_of(module)
    params, whole = model.initial_params(), full(model.layout)
    hits = [correct(model, params, Trial(whole), every, size, every) for size in (1, 100, 2000)]
    assert torch.equal(hits[0], hits[1])
    assert torch.equal(hits[1], hits[2])
    found = model.workspace(whole).module[1]
    seen = module[0](every.inputs).detach()
    torch.testing.assert_close(found.running_mean, seen.mean((0, 2)), rtol=0.02, atol=1e-3)
    # 1003 examples are three batches of nearly equal size; an odd one does not count as much as all others.
    assert float((found.running_var / seen.var((0, 2)) - 1).abs().max()) < (0.02 if "Batch" in str(norm) else 1.0)
    with pytest.raises(ValueError, match="at least 2 training examples, got 1"):
        accuracy(model, params, whole, every, every.subset(torch.arange(1)))


def test_statistics_that_training_left_alone_are_left_alone():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self

    module = Frozen(*normalised(nn.BatchNorm1d(4), 6))
    module[1].running_mean.fill_(3.0)
    every = TensorData(torch.randn(40, 1, 6), torch.arange(40) % CLASSES)
    model = model_of(module)
    correct(model, model.initial_params(), Trial(full(model.layout)), every, 40, every)
    assert model.workspace(full(model.layout)).module[1].running_mean.tolist() == [3.0] * 4


def test_the_scaler_leaves_a_classifier_that_is_tied_to_an_embedding():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm = nn.Embedding(9, 8), nn.LayerNorm(8)
            self.classifier = nn.Linear(8, 9, bias=False)
            self.classifier.weight = self.embedding.weight

        def forward(self, tokens):
            return self.classifier(self.norm(self.embedding(tokens).mean(1)))

    model = model_of(Tied(), example=torch.zeros(2, 4, dtype=torch.int64))
    assert not any(_has_cut_outputs(model))


@pytest.mark.parametrize("criterion", ["magnitude", "random"])
def test_what_ranks_nothing_that_is_kept_reports_no_importance(criterion):
    model = model_of(nn.Linear(5, CLASSES))
    method, params = FedFIbOS(criterion=criterion), model.initial_params()
    assert method.importance(method.init(params), params, Client(0, 0.5, 0, 0, LocalTraining(steps=1))) is None


def test_products_within_fused_kernels_are_counted():
    layers = {
        "attention": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (1, 6, 16)),
        "lstm": (nn.LSTM(16, 8, batch_first=True), (1, 6, 16)),
    }
    expected = {
        # projections 6·16·64, products with keys and values 2·6·6·16, two linear layers 2·6·16·32
        "attention": 6 * 16 * 64 + 2 * 6 * 6 * 16 + 2 * 6 * 16 * 32,
        "lstm": 6 * 4 * 8 * (16 + 8),
    }

    class Pooled(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, width = layer, 16 if isinstance(layer, nn.TransformerEncoderLayer) else 8
            self.head = nn.Linear(width, CLASSES)

        def forward(self, x):
            out = self.layer(x)
            return self.head((out if torch.is_tensor(out) else out[0]).mean(1))

    for name, (layer, shape) in layers.items():
        model = model_of(Pooled(layer))
        one = TensorData(torch.randn(2, *shape[1:]), torch.tensor([0, 1]))
        head = CLASSES * model.module.head.in_features
        assert forward_macs(model, model.initial_params(), full(model.layout), one) == expected[name] + head, name


def test_a_budget_that_rounds_up_to_everything_is_everything():
    model = model_of(nn.Linear(5, CLASSES))  # d = 18
    params = model.initial_params()
    submodel = FIARSE().extract(model, FIARSE().init(params), params, Client(0, 0.999, 0, 0, LocalTraining(steps=1)))
    assert submodel == full(model.layout)


def test_a_learned_slope_is_ranked_like_any_weight():
    assert layout_of(nn.Sequential(nn.Linear(2, 2), nn.PReLU(2))).num_maskable == 2 * 2 + 2 + 2


def test_a_fleet_without_a_full_client_counts_each_score_once():
    model, local = model_of(nn.Linear(5, CLASSES)), LocalTraining(steps=1)
    method, params = FedFIbOS(sharing="client"), model.initial_params()
    clients = [Client(n, 0.5, 1, 0, local) for n in range(2)]
    rows = [torch.arange(18.0), torch.arange(18.0).square()]
    state = method.init(params).with_row(0, rows[0]).with_row(1, rows[1])
    test = data()
    parts = [torch.arange(6), torch.arange(6, 12)]

    def score(params, works):
        return (answers(model, params, work, test, 12) for work in works)

    found = evaluate(method, model, state, params, clients, parts, score)
    assert found["cv_f"] == pytest.approx(sum(map(coefficient_of_variation, rows)) / 2)
    assert replace(clients[0], capacity=1.0) not in clients


def test_a_statistic_of_held_coordinates_leaves_normalisation_out():
    module = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Linear(8, CLASSES))
    model = model_of(module)
    params, method = model.initial_params(), FedFIbOS()
    client = Client(0, 0.25, 0, 0, LocalTraining(steps=1, batch_size=4), data())
    submodel = method.extract(model, method.init(params), params, client)
    upload = method.train(model, params, submodel, client)
    maskable = submodel.num_held - 16  # 8 scales and 8 shifts are held by all
    assert maskable == -(-model.layout.num_maskable // 4)
    assert upload_bytes(upload, model.layout) == 4 * (submodel.num_held + maskable)
    whole = replace(client, capacity=1.0)
    everything = method.train(model, params, full(model.layout), whole)
    assert upload_bytes(everything, model.layout) == 4 * (model.layout.size + model.layout.num_maskable)


class Extras(nn.Module):
    """A buffer that no state dict has, and a weight with two names."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.two.weight = self.one.weight
        self.register_buffer("scale", torch.full((5,), 2.0), persistent=False)

    def forward(self, x):
        return self.head(self.two(torch.relu(self.one(x))) * self.scale)


def test_an_exported_file_loads_into_a_fresh_model_and_keeps_ties(tmp_path):
    model = model_of(Extras())
    params, submodel = model.initial_params(), full(model.layout)
    module = submodel_module(model, params, submodel)
    done = export_submodel(module, submodel, data().inputs, tmp_path / "model.safetensors")
    assert done.stored == model.layout.size == 25 + 5 + 5 + 18
    assert module.two.weight is module.one.weight
    fresh = Extras()
    load_model(fresh, tmp_path / "model.safetensors")
    assert torch.equal(fresh(data().inputs), module(data().inputs))


@pytest.mark.parametrize("rounding", ["floor", "ceil"])
def test_similarity_of_a_mask_that_rounds_down_is_with_magnitudes_of_its_own_size(rounding):
    """d = 50, γ = .99: 49 coordinates or all of them."""
    model = model_of(nn.Linear(10, 5, bias=False))
    params, method = model.initial_params(), FIARSE(rounding=rounding)
    clients = [Client(0, 0.99, 0, 0, LocalTraining())]
    test = TensorData(torch.randn(4, 10, generator=torch.Generator().manual_seed(0)), torch.arange(4))
    score = lambda at, works: (answers(model, at, work, test, 4) for work in works)  # noqa: E731
    found = evaluate(method, model, method.init(params), params, clients, [torch.arange(4)], score)
    assert found["jaccard"] == ({"0.99": 1.0} if rounding == "floor" else {})


class Empty(nn.Module):
    """Has a tensor without an entry, as a layer of width 0 has."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(5, 8), nn.Linear(8, CLASSES)
        self.nothing = nn.Parameter(torch.zeros(3, 0))

    def forward(self, x):
        return self.head(self.first(x).relu()) + self.nothing.sum()


@pytest.mark.parametrize("settings", [{}, {"scope": "layer"}, {"scope": "layer", "rounding": "floor"}], ids=str)
def test_a_tensor_without_entries_is_trained_around(settings):
    model, method = model_of(Empty()), FIARSE(**settings)
    params, client = model.initial_params(), Client(0, 0.5, 0, 0, LocalTraining(steps=2), data())
    submodel = method.extract(model, method.init(params), params, client)
    assert method.train(model, params, submodel, client).delta.count_nonzero() > 0


def test_a_model_in_which_nothing_is_left_to_choose_from_is_one_line():
    module = nn.Sequential(nn.Linear(5, CLASSES), nn.LayerNorm(CLASSES))
    module[0].requires_grad_(False)
    with pytest.raises(ValueError, match="outside normalisation layers for capacities to choose from, got none"):
        model_of(module)


class Expanded(nn.Module):
    """A buffer whose entries share memory."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, CLASSES)
        self.register_buffer("mean", torch.tensor([[0.5]]).expand(1, 5))

    def forward(self, x):
        return self.layer(x - self.mean)


def test_a_buffer_without_room_of_its_own_is_put_back_like_any_other():
    model = model_of(Expanded())
    params, whole = model.initial_params(), full(model.layout)
    client = Client(0, 1.0, 0, 0, LocalTraining(steps=2), data())
    assert local_training(model, params, whole, client).delta.count_nonzero() > 0
    assert model.workspace(whole).load(params.flat).mean.tolist() == [[0.5] * 5]
    assert model.module.mean.stride() == (1, 0)


class Kept(nn.Module):
    """Keeps what its first layer gave."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(5, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        self.seen = self.first(x).relu()
        return self.head(self.seen)


def test_a_module_that_keeps_an_activation_is_exported_after_training():
    model = model_of(Kept())
    params, whole = model.initial_params(), full(model.layout)
    local_training(model, params, whole, Client(0, 1.0, 0, 0, LocalTraining(steps=1), data()))
    module = submodel_module(model, params, whole)
    assert torch.equal(module(data().inputs), model.workspace(whole).load(params.flat)(data().inputs))


class Ruling(nn.Module):
    """Rules the last class out."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, CLASSES)

    def forward(self, x):
        return torch.cat([self.layer(x)[:, :-1], torch.full_like(x[:, :1], -torch.inf)], 1)


def test_a_model_that_rules_classes_out_is_exported(tmp_path):
    model = model_of(Ruling())
    whole = full(model.layout)
    module = submodel_module(model, model.initial_params(), whole)
    assert export_submodel(module, whole, data().inputs, tmp_path / "model.safetensors").difference == 0.0
