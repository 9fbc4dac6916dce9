"""What a method's upload must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from fedfibos.methods import METHODS
from fedfibos.round import federated_round
from fedfibos.simulation.setting import Setting
from fedfibos.submodel import Mask
from fedfibos.types import State, Upload
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
