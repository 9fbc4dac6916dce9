"""A recorded step is the step: methods train to the same bytes with it, though no Python of the step runs again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fedfibos.backend.recorded import NotRecordableError, Replayed
from fedfibos.common.streams import stream
from fedfibos.data.images import ImageData, TensorData
from fedfibos.local import batch_indices, feed
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.training import LocalTraining
from fedfibos.types import Client

INPUT, CLASSES = (1, 8, 8), 4


class TraceRecorder:
    """A recorder without a GPU: traces the tensor operations of a step and replays those alone.

    Tracing runs the step, which a recorder must not: the first replay is left out for it.
    """

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, function):
        def traced(unused):
            function()
            return unused

        graph = make_fx(traced)(torch.zeros(()))
        done = False

        def replay() -> None:
            nonlocal done
            self.replays += 1
            if done:
                with torch.no_grad():  # the backward pass is among the operations
                    graph(torch.zeros(()))
            done = True

        return replay


def data(seed: int, size: int = 18) -> TensorData:
    generator = torch.Generator().manual_seed(seed)
    return TensorData(
        torch.randn(size, *INPUT, generator=generator), torch.randint(CLASSES, (size,), generator=generator)
    )


VARIANTS = {
    **{name: (name, {}) for name in METHODS},
    "fedfibos-client": ("fedfibos", {"sharing": "client"}),
    "fiarse-layer": ("fiarse", {"scope": "layer"}),
    "fedavg-narrow": ("fedavg", {"capacity": 0.5}),
}
LOCALS = {
    "sgd": LocalTraining(steps=5, batch_size=6, lr=0.05),
    "momentum, decay, clipping": LocalTraining(
        steps=5, batch_size=6, lr=0.05, momentum=0.9, weight_decay=1e-3, clip_norm=0.5
    ),
    "adamw": LocalTraining(steps=5, batch_size=6, lr=0.01, optimizer="adamw", weight_decay=1e-2),
    "bfloat16": LocalTraining(steps=5, batch_size=6, lr=0.05, precision="bfloat16"),
    "epochs, the last batch smaller": LocalTraining(epochs=3, batch_size=8, lr=0.05, absent_labels="mask"),
}


CASES = [(variant, "sgd") for variant in VARIANTS]
CASES += [(variant, local) for variant in ("fedfibos", "fiarse", "heterofl") for local in LOCALS if local != "sgd"]
"""Every method with the plain step; of the others' kinds (a mask, one with a constraint, a slice) one each."""


@pytest.mark.parametrize(("variant", "local"), CASES)
def test_a_recorded_step_trains_to_the_same_bytes(variant, local):
    name, settings = VARIANTS[variant]
    method = METHODS[name](**settings)
    norm = "batch" if local == "momentum, decay, clipping" else "group"
    model = model_of(build("cnn", CLASSES, INPUT, norm=norm, seed=1, channels=(8, 16)), example=torch.zeros(2, *INPUT))
    params = model.initial_params()
    client = Client(2, 0.5, 0, 3, LOCALS[local], data(0))
    submodel = method.extract(model, method.init(params), params, client)
    plain = method.train(model, params, submodel, client)
    record = TraceRecorder()
    model.workspace(submodel).recorder = record
    replayed = method.train(model, params, submodel, client)
    expected = {"epochs, the last batch smaller": 6 - 1}  # two batches of 8 and one of 2, three times
    assert record.replays == expected.get(local, 5 - 1)
    assert torch.equal(plain.delta, replayed.delta)
    assert float(plain.loss) == float(replayed.loss)
    assert (plain.statistic is None) == (replayed.statistic is None)
    assert plain.statistic is None or torch.equal(plain.statistic, replayed.statistic)


def test_python_runs_until_the_step_is_recorded_and_not_again():
    calls, total = [], torch.zeros(3)

    def step(inputs, labels):
        calls.append(len(labels))
        total.add_(inputs["x"].sum(0) * len(labels))

    record = TraceRecorder()
    run = Replayed(step, record)
    for value in (1.0, 2.0, 3.0, 4.0):
        run({"x": torch.full((2, 3), value)}, torch.zeros(2, dtype=torch.int64))
    run({"x": torch.full((1, 3), 7.0)}, torch.zeros(1, dtype=torch.int64))  # another shape
    assert calls == [2, 2, 1]
    assert record.replays == 3
    assert total.tolist() == [2 * 2 * (1 + 2 + 3 + 4) + 7.0] * 3


def test_a_step_that_draws_random_numbers_is_not_recorded():
    calls = []

    def step(inputs, labels):
        calls.append(torch.rand(1))

    record = TraceRecorder()
    run = Replayed(step, record)
    for _ in range(4):
        run(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
    assert len(calls) == len({float(value) for value in calls}) == 4
    assert record.replays == 0


def test_a_step_that_cannot_be_recorded_is_run_as_it_is(caplog):
    calls = []

    def refuse(function):
        raise NotRecordableError("operation not permitted when stream is capturing")

    run = Replayed(lambda inputs, labels: calls.append(float(inputs.sum())), refuse)
    for value in (1.0, 2.0, 3.0):
        run(torch.full((2,), value), torch.zeros(2, dtype=torch.int64))
    assert calls == [2.0, 4.0, 6.0]
    assert [record.message for record in caplog.records] == [
        "a training step cannot be recorded (operation not permitted when stream is capturing); it is launched kernel "
        "by kernel"
    ]


class Rebinds(torch.nn.Module):
    """Keeps what it has seen in a buffer that it replaces."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, CLASSES)
        self.register_buffer("seen", torch.zeros(64))

    def forward(self, x):
        self.seen = 0.5 * self.seen + x.flatten(1).mean(0)
        return self.layer(x.flatten(1) - self.seen)


def test_a_model_that_replaces_its_buffers_is_not_recorded():
    """A recording would read the first one for ever."""
    model = model_of(Rebinds())
    params = model.initial_params()
    method = METHODS["fedavg"]()
    client = Client(2, 1.0, 0, 3, LOCALS["sgd"], data(0))
    submodel = method.extract(model, method.init(params), params, client)
    plain = method.train(model, params, submodel, client)
    record = TraceRecorder()
    model.workspace(submodel).recorder = record
    assert torch.equal(method.train(model, params, submodel, client).delta, plain.delta)
    assert record.replays == 0


@pytest.mark.parametrize("augmented", [True, False])
@pytest.mark.parametrize("local", [LOCALS["sgd"], LOCALS["epochs, the last batch smaller"]])
def test_batches_gathered_at_once_are_those_gathered_one_by_one(augmented, local):
    """The random crops of many images are those of the same images in pieces."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (18, 3, 8, 8), generator=generator).to(torch.uint8)
    images = ImageData(pixels, torch.arange(18) % 4, (0.5,) * 3, (0.2,) * 3, crop_and_flip=augmented)
    model = model_of(build("cnn", CLASSES, (3, 8, 8), seed=1, channels=(8, 16)))
    batches = list(batch_indices(local, 18, stream(1, "batches"), drop_single=False))
    one, all_ = (list(feed(model, images, batches, stream(1, "augment"), at_once)) for at_once in (False, True))
    assert len(one) == len(all_) == len(batches)
    for (inputs, labels), (others, other_labels) in zip(one, all_, strict=True):
        assert torch.equal(inputs, others)
        assert torch.equal(labels, other_labels)


def test_inputs_of_several_tensors_are_those_of_each_batch():
    class Pairs(TensorData):
        def batch(self, indices, augment=None):
            return {"x": self.inputs[indices]}

    batches = [torch.tensor([0, 1]), torch.tensor([2])]
    model = replace(model_of(build("cnn", CLASSES, INPUT, seed=1, channels=(8, 16))))
    fed = list(feed(model, Pairs(data(0).inputs, data(0).labels), batches, stream(1, "augment"), True))
    assert [inputs["x"].shape[0] for inputs, _ in fed] == [2, 1]
