"""A forward pass that changes parameters itself trains as it does in a plain PyTorch loop."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedfibos.analysis.accuracy import Trial, correct
from fedfibos.data.images import TensorData
from fedfibos.local import batch_indices, local_training
from fedfibos.methods import FIARSE, FedAvg, FedFIbOS, HeteroFL
from fedfibos.model import Model, model_of
from fedfibos.params import Params
from fedfibos.probes.state import changed_buffers
from fedfibos.submodel import Mask, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client

LOCAL = LocalTraining(steps=6, batch_size=8, lr=0.5)


def data() -> TensorData:
    generator = torch.Generator().manual_seed(0)
    return TensorData(torch.randn(32, 5, generator=generator), torch.randint(3, (32,), generator=generator))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def limit(self, weight: nn.Parameter) -> None:
        """What the pass does to the weight first."""

    def forward(self, x: Tensor) -> Tensor:
        self.limit(self.first.weight)
        return self.last(self.first(x).relu())


class Rebound(Base):
    """The max-norm idiom of EEGNet."""

    def limit(self, weight: nn.Parameter) -> None:
        weight.data = torch.renorm(weight.data, 2, 0, 0.7)


class Set(Base):
    def limit(self, weight: nn.Parameter) -> None:
        with torch.no_grad():
            weight.set_(torch.renorm(weight, 2, 0, 0.7))  # type: ignore[call-overload]


class InPlace(Base):
    def limit(self, weight: nn.Parameter) -> None:
        weight.data.renorm_(2, 0, 0.7)


class Clamped(Base):
    def limit(self, weight: nn.Parameter) -> None:
        weight.data.clamp_(-0.3, 0.3)


class Turned(Base):
    """Lays the weight out otherwise: the same values in other memory, or other values in the same."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.last = nn.Linear(5, 3)

    def limit(self, weight: nn.Parameter) -> None:
        weight.data = weight.data.t()


REWRITING = [Rebound, Set, InPlace, Clamped, Turned]


def made(cls: type[Base], example: bool = True) -> tuple[Model, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module, plain = cls(), cls()
    plain.load_state_dict(module.state_dict())
    return model_of(module, example=data().inputs[:2] if example else None), plain


def client(capacity: float = 1.0) -> Client:
    return Client(3, capacity, 0, 0, LOCAL, data())


def plain_loop(module: nn.Module) -> Tensor:
    """The same steps without the library: its parameters after them, in the order of their names."""
    optimizer, examples, who = torch.optim.SGD(module.parameters(), LOCAL.lr), data(), client()
    for batch in batch_indices(LOCAL, len(examples), who.stream("batches"), False):
        optimizer.zero_grad()
        cross_entropy(module(examples.inputs[batch]), examples.labels[batch]).backward()
        optimizer.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


METHODS = [FedAvg(), FedFIbOS(), FIARSE(), HeteroFL()]


@pytest.mark.parametrize(
    ("cls", "method"),
    [(cls, method) for cls in REWRITING for method in METHODS if cls is not Turned or not isinstance(method, HeteroFL)],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_training_is_that_of_a_plain_loop(cls, method):
    model, plain = made(cls)
    params = model.initial_params()
    submodel = method.extract(model, method.init(params), params, client())
    upload = method.train(model, params, submodel, client())
    torch.testing.assert_close(params.flat - upload.delta, plain_loop(plain), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls", REWRITING)
def test_a_second_client_and_an_evaluation_do_not_see_the_first(cls):
    model, plain = made(cls)
    params, whole = model.initial_params(), full(model.layout)
    first = local_training(model, params, whole, client())
    hits = correct(model, params, Trial(whole), data(), 16)
    again = local_training(model, params, whole, client())
    assert torch.equal(first.delta, again.delta)
    expected = plain(data().inputs).argmax(1) == data().labels
    if cls is not Turned:  # its weight turns with every batch
        assert torch.equal(hits[0], expected)


@pytest.mark.parametrize("example", [True, False])
@pytest.mark.parametrize("cls", [Rebound, Set])
def test_nothing_moves_outside_a_mask(cls, example):
    class Shifted(cls):
        def limit(self, weight: nn.Parameter) -> None:
            super().limit(weight)
            weight.data = weight.data + 0.01

    model, _ = made(Shifted, example)
    params = model.initial_params()
    held = torch.rand(model.layout.size, generator=torch.Generator().manual_seed(2)) > 0.5
    upload = local_training(model, params, Mask(held, int(held.sum())), client(0.5))
    assert bool((upload.delta[~held] == 0).all())
    assert upload.delta.count_nonzero() > 0


@pytest.mark.parametrize("cls", [Rebound, InPlace])
def test_a_threshold_follows_what_the_pass_changes(cls):
    """FIARSE trains values of which only the large ones are weights: a row is within the norm before its last step."""
    model, _ = made(cls)
    params, method = model.initial_params(), FIARSE()
    submodel = method.extract(model, method.init(params), params, client(0.6))
    upload = method.train(model, params, submodel, client(0.6))
    trained = Params(model.layout, submodel.gather(params.flat) - upload.delta).tensors()["first.weight"]
    free, _ = made(Base)
    unlimited = method.train(free, params, submodel, client(0.6))
    loose = Params(model.layout, submodel.gather(params.flat) - unlimited.delta).tensors()["first.weight"]
    assert float(trained.norm(dim=1).max()) < 0.75 < float(loose.norm(dim=1).max())
    assert upload.delta.count_nonzero() > 0


class Replacing(Base):
    def forward(self, x: Tensor) -> Tensor:
        self.first.weight = nn.Parameter(self.first.weight.detach().clamp(-0.3, 0.3))
        return super().forward(x)


class Growing(Base):
    """Scales all classes alike, then each by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        self.scale.data = self.scale.data.expand(3).clone()
        return super().forward(x) * self.scale


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Replacing, "forward puts another tensor in the place of parameter 'first.weight'"),
        (Growing, r"forward must leave parameter 'scale' its shape \(1,\), got \(3,\)"),
    ],
)
def test_what_no_optimiser_could_follow_is_refused_by_name(cls, message):
    with pytest.raises(ValueError, match=message):
        made(cls)


class Sharing(Base):
    """Ties storage, and not the parameter."""

    def __init__(self, tie) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 5), nn.Linear(5, 3)
        tie(self)


def transposed(module: Sharing) -> None:
    module.last = nn.Linear(5, 5)
    module.last.weight.data = module.first.weight.data.t()


def sliced(module: Sharing) -> None:
    module.last.weight.data = module.first.weight.data[1:4]


def strided(module: Sharing) -> None:
    module.last.weight.data = module.first.weight.data.view(-1)[3:18].view(3, 5)


def frozen(module: Sharing) -> None:
    module.last.weight = nn.Parameter(module.first.weight.data[:3], requires_grad=False)


def in_a_buffer(module: Sharing) -> None:
    module.register_buffer("target", module.first.weight.data)


@pytest.mark.parametrize("tie", [transposed, sliced, strided, frozen, in_a_buffer])
def test_shared_memory_is_refused_by_name(tie):
    other = "target" if tie is in_a_buffer else "last.weight"
    with pytest.raises(ValueError, match=f"'first.weight' and '{other}' share memory without being one parameter"):
        model_of(Sharing(tie))


def apart(module: Sharing) -> None:
    """One flat tensor, and its pieces as parameters: columns of it, which no entry is in twice."""
    flat = torch.randn(8, 5)
    module.first.weight.data, module.last.weight.data = flat[:5], flat[5:]
    both = torch.randn(5, 2)
    module.first.bias.data = both[:, 0]
    module.one = nn.Parameter(both[:, 1])


def one_parameter(module: Sharing) -> None:
    module.other = nn.Linear(5, 5)
    module.other.weight = module.first.weight


@pytest.mark.parametrize("tie", [apart, one_parameter])
def test_pieces_of_one_memory_and_one_parameter_under_two_names_are_no_sharing(tie):
    assert model_of(Sharing(tie)).layout.size == 53 if tie is apart else 78


class Keeps(Base):
    """Keeps what it is given, and uses it beside the parameter."""

    def __init__(self, keep) -> None:
        super().__init__()
        self.kept = keep(self.first.weight)


@pytest.mark.parametrize(
    "keep",
    [
        lambda weight: weight.data,
        lambda weight: weight.detach()[2:4],
        lambda weight: weight.t(),
        lambda weight: [torch.zeros(1), weight.data],
        lambda weight: {"w": (weight.data,)},
        lambda weight: SimpleNamespace(w=weight.data),
        lambda weight: partial(torch.add, weight.data),
        lambda weight: (lambda w: lambda x: x @ w)(weight.data),
    ],
    ids=["data", "rows", "transposed", "list", "dict of tuples", "object", "partial", "closure"],
)
def test_a_plain_tensor_in_the_memory_of_a_parameter_is_refused(keep):
    """In the copies that clients train it would keep the initial values."""
    message = "'kept' keeps the memory of parameter 'first.weight' without being it, and would keep its initial values"
    with pytest.raises(ValueError, match=message):
        model_of(Keeps(keep))
    outer = nn.Sequential(nn.Identity(), Keeps(keep))
    with pytest.raises(ValueError, match=r"'1\.kept' keeps the memory of parameter '1\.first\.weight'"):
        model_of(outer, example=data().inputs[:2])


@pytest.mark.parametrize(
    "keep",
    [
        lambda weight: weight,
        lambda weight: [weight],
        lambda weight: weight.data.clone(),
        lambda weight: weight.numel(),
        lambda weight: torch.zeros(0),
    ],
    ids=["itself", "in a list", "copy", "number", "empty"],
)
def test_what_is_the_parameter_itself_or_other_memory_is_taken(keep):
    assert model_of(Keeps(keep), example=data().inputs[:2]).layout.size == 75


def test_a_recurrent_layer_and_an_old_weight_norm_keep_no_such_tensor():
    with pytest.warns(FutureWarning, match="deprecated"):
        old = nn.utils.weight_norm(nn.Linear(5, 3))
    for module in (nn.LSTM(3, 4), old):
        assert model_of(module).layout.size > 0


def test_a_tensor_that_every_forward_pass_replaces_is_taken():
    """An old spectral_norm keeps the parameter's memory until its first pass."""
    old = nn.utils.spectral_norm(nn.Linear(5, 3))
    assert old.weight.data_ptr() == old.weight_orig.data_ptr()
    assert model_of(nn.Sequential(old)).layout.size == 18
    assert model_of(nn.Sequential(old), example=data().inputs[:2]).layout.size == 18


class Registers(Base):
    """Makes a buffer in its first forward pass, and uses it from then on."""

    def forward(self, x: Tensor) -> Tensor:
        if "mean" not in self._buffers:
            self.register_buffer("mean", x.detach().mean(0))
        return super().forward(x - self.mean)


def test_a_buffer_that_forward_makes_is_no_clients_but_its_own():
    """It is told of, and the next client begins without it."""
    model, _ = made(Registers)
    assert changed_buffers(model.module, data().inputs[:2]) == ["mean"]
    params = model.initial_params()
    alone = local_training(model, params, full(model.layout), client()).delta
    other = TensorData(data().inputs + 3, data().labels)
    local_training(model, params, full(model.layout), Client(4, 1.0, 0, 0, LOCAL, other))
    assert torch.equal(local_training(model, params, full(model.layout), client()).delta, alone)


class Shorter(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:4])


def test_a_model_that_loses_examples_of_a_batch_is_told_as_such():
    model, _ = made(Shorter, example=False)
    with pytest.raises(ValueError, match="must make logits of every example of a batch, got them of 4 of 8"):
        local_training(model, model.initial_params(), full(model.layout), client())
