"""What a method's upload must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from fedfibos.data import TensorData
from fedfibos.method import extract_submodel
from fedfibos.methods import METHODS, FedAvg
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.simulation.setting import Setting
from fedfibos.submodel import Mask
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State, Upload
from small_models import cohort, data, small_model


@dataclass(frozen=True)
class Changed:
    """FedFIbOS, whose uploads are tampered with."""

    change: Callable[[Upload], Upload]

    def __getattr__(self, name):
        return getattr(METHODS["fedfibos"](), name)

    def train(self, model, params, submodel, client):
        return self.change(METHODS["fedfibos"]().train(model, params, submodel, client))


@dataclass(frozen=True)
class ScoredSlices:
    """HeteroFL, whose clients send a statistic too."""

    def __getattr__(self, name):
        return getattr(METHODS["heterofl"](), name)

    def train(self, model, params, submodel, client):
        upload = METHODS["heterofl"]().train(model, params, submodel, client)
        return replace(upload, statistic=torch.zeros(model.layout.num_maskable))


def test_a_slice_has_no_statistic():
    model = small_model()
    params = model.initial_params()
    method = ScoredSlices()
    with pytest.raises(
        ValueError, match="statistic must be of a mask's coordinates or of channels, got one of a slice"
    ):
        federated_round(method, model, State(), params, [client for client in cohort() if client.capacity < 1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda u: replace(u, submodel=Mask(None, u.submodel.num_held)), "the very submodel that it was given"),
        (lambda u: replace(u, delta=u.delta[:-1]), "an upload's delta must be torch.float32 of shape"),
        (lambda u: replace(u, delta=u.delta.mean()), "an upload's delta must be torch.float32 of shape"),
        (lambda u: replace(u, delta=u.delta.double()), "got torch.float64"),
        (lambda u: replace(u, counted=u.delta), "an upload's counted must be torch.bool"),
        (lambda u: replace(u, statistic=u.delta[:2]), "an upload's statistic must be torch.float32 of shape"),
    ],
)
def test_an_upload_answers_what_was_sent(change, said):
    """Refused wherever a client trains: worker processes know an upload's tensors by their places alone."""
    model = small_model()
    params = model.initial_params()
    state = METHODS["fedfibos"]().init(params)
    method = Changed(change)
    with pytest.raises(ValueError, match=said):
        federated_round(method, model, state, params, cohort())
    setting = Setting(method, model, lambda n: data(n), data(0), None, 10)
    client = cohort()[1]
    with pytest.raises(ValueError, match=said):
        setting.train(params, client, method.extract(model, state, params, client))


def test_an_update_where_a_client_holds_nothing_is_rejected():
    """Its weight there is 0: it would be divided by next to nothing."""
    model = small_model()
    params = model.initial_params()
    state = METHODS["fedfibos"]().init(params)
    off = Changed(lambda u: u if u.submodel.held is None else replace(u, delta=torch.ones_like(u.delta)))
    _, after, report = federated_round(off, model, state, params, cohort())
    small = {client.id: "its update is not 0 where it holds nothing" for client in cohort() if client.capacity < 1}
    assert report.rejected == small
    assert bool(torch.isfinite(after.flat).all())


@dataclass(frozen=True)
class Changes(FedAvg):
    """Changes in place what it is given, in one of its verbs."""

    verb: str = ""

    def init(self, params):
        return State({"kept": torch.zeros(3)})

    def extract(self, model, state, params, client):
        if self.verb == "extract":
            params.flat.mul_(2)
        return super().extract(model, state, params, client)

    def train(self, model, params, submodel, client):
        if self.verb == "train":
            params.tensors()["weight"].add_(1)
        return super().train(model, params, submodel, client)

    def update(self, state, client, upload):
        if self.verb == "update":
            state.tensors["kept"][0] = 1.0
        return state

    def aggregate(self, state, params, sums):
        if self.verb == "aggregate":
            state.tensors["kept"].add_(1)
        return super().aggregate(state, params, sums)


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("extract", "the parameters"),
        ("train", "the parameters"),
        ("update", "the state's 'kept'"),
        ("aggregate", "the state's 'kept'"),
    ],
)
def test_a_verb_that_changes_its_arguments_is_refused(verb, what):
    torch.manual_seed(0)
    model = model_of(nn.Linear(4, 3))
    data = TensorData(torch.randn(8, 4), torch.arange(8) % 3)
    cohort = [Client(0, 1.0, 0, 0, LocalTraining(steps=1), data)]
    method, params = Changes(), model.initial_params()
    federated_round(method, model, method.init(params), params, cohort)
    message = f"a method's {verb} must change none of its arguments, it changed {what} in place: return new tensors"
    with pytest.raises(ValueError, match=f"^{message}$"):
        federated_round(Changes(verb=verb), model, method.init(params), params, cohort)


def test_a_mask_that_counts_itself_wrongly_is_refused():
    model = model_of(nn.Linear(4, 3))
    held = torch.arange(15) < 6

    class Wrong(FedAvg):
        def extract(self, model, state, params, client):
            return Mask(held, 7)

    params = model.initial_params()
    with pytest.raises(
        ValueError, match=r"num_held must be the number of parameters that it holds, 6, got 7 for client"
    ):
        extract_submodel(Wrong(), model, State(), params, Client(0, 0.5, 0, 0, LocalTraining()))
