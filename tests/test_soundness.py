"""What enters the server: impossible values are refused by name, and a merge that is not finite as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from fedfibos.methods import METHODS, FedAvg, FedFIbOS
from fedfibos.model import model_of
from fedfibos.params import Params
from fedfibos.round import NoUploadError, merge
from fedfibos.scores.files import FileRows
from fedfibos.scores.rows import MemoryRows
from fedfibos.soundness import NotFiniteMergeError, averageable, fault, first_state
from fedfibos.submodel import Mask, full
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State, Upload

MODEL = model_of(nn.Linear(2, 2, bias=False), example=torch.zeros(2, 2))
LAYOUT = MODEL.layout
START = Params(LAYOUT, torch.tensor([1.0, 2.0, 3.0, 4.0]))
LARGEST = 3.4028234663852886e38


def client(number, weight=1.0):
    return Client(number, 1.0, 0, 0, LocalTraining(), weight=weight)


def upload(*delta, loss=0.5, statistic=None):
    return Upload(
        full(LAYOUT), torch.tensor(delta), loss, 1, None if statistic is None else torch.tensor(statistic), "all"
    )


SOUND = upload(0.5, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (upload(math.nan, 0.0, math.inf, 0.0), "its update has 2 values that are not finite (training loss 0.5)"),
        (upload(0.0, 0.0, 0.0, 3e38), "its update has values up to 3e+38, too large to average"),
        (upload(0.0, 0.0, 0.0, -3e38), "its update has values up to 3e+38, too large to average"),
        (upload(0.0, 0.0, 0.0, 0.0, loss=math.nan), "its training loss is nan"),
        (upload(0.0, 0.0, 0.0, 0.0, loss=-0.25), "its training loss is -0.25: a cross-entropy is at least 0"),
        (
            upload(0.0, 0.0, 0.0, 0.0, loss=torch.tensor(-1e-9)),
            "its training loss is -1e-09: a cross-entropy is at least 0",
        ),
        (
            upload(0.0, 0.0, 0.0, 0.0, statistic=[1.0, -1e30, 0.0, -2.0]),
            "its statistic has 2 values below 0, down to -1e+30: a mean of squares has none",
        ),
        (
            upload(0.0, 0.0, 0.0, 0.0, statistic=[1.0, math.nan, 0.0, 0.0]),
            "its statistic has 1 values that are not finite (training loss 0.5)",
        ),
        (
            upload(0.0, 0.0, 0.0, 0.0, statistic=[1.0, 2e38, 0.0, 0.0]),
            "its statistic has values up to 2e+38, too large to average",
        ),
    ],
)
@pytest.mark.parametrize("name", METHODS)
def test_an_impossible_upload_is_named_and_the_round_is_that_of_the_others(name, bad, reason):
    method = METHODS[name]()
    state = method.init(START)
    cohort = [client(0), client(1), client(2)]
    outcomes = zip(cohort, (SOUND, bad, SOUND), strict=True)
    after, params, report = merge(method, state, START, cohort, outcomes)
    assert report.rejected == {1: reason}
    others = cohort[::2]
    expected_state, expected, _ = merge(method, state, START, others, zip(others, (SOUND, SOUND), strict=True))
    assert torch.equal(params.flat, expected.flat)
    assert after.tensors.keys() == expected_state.tensors.keys()
    assert all(torch.equal(after.tensors[key], tensor) for key, tensor in expected_state.tensors.items())


def test_sums_of_a_cohort_at_the_bound_are_finite():
    """Two clients of weights 1 and 2: the bound is a sixth of the largest float, so Σ w·Δ is at most half of it."""
    cohort = [client(0), client(1, weight=2.0)]
    most = averageable(cohort)
    assert most == LARGEST / 6
    largest = float(torch.tensor(most, dtype=torch.float32))
    uploads = [upload(0.0, 0.0, 0.0, largest * 0.99)] * 2
    _, params, report = merge(FedAvg(), State(), START, cohort, zip(cohort, uploads, strict=True))
    assert report.rejected == {}
    assert params.flat.isfinite().all()


def test_two_finite_uploads_of_3e38_leave_state_and_parameters_and_are_named():
    cohort = [client(3), client(8)]
    uploads = [upload(3e38, 0.0, 0.0, 0.0)] * 2
    method = FedFIbOS()
    with pytest.raises(NoUploadError, match=r"client 3, 8: its update has values up to 3e\+38, too large to average"):
        merge(method, method.init(START), START, cohort, zip(cohort, uploads, strict=True))
    assert START.flat.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_merge_that_is_not_finite_is_refused_as_a_whole_and_names_the_largest_uploads():
    cohort = [client(0), client(1), client(2)]
    uploads = [SOUND, upload(0.0, 4e37, 0.0, 0.0), upload(0.0, 3e37, 0.0, 0.0)]
    with pytest.raises(
        NotFiniteMergeError,
        match=r"^the merge gave 1 values of parameter 'weight' that are not finite; it is refused, what was before it "
        r"stays; the largest uploads are of client 1, 2 \(values up to 4e\+37\)$",
    ):
        merge(FedAvg(server_lr=100.0), State(), START, cohort, zip(cohort, uploads, strict=True))
    assert START.flat.tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("weight", [1e39, 1e308])
def test_weights_whose_sum_no_float_holds_are_refused(weight):
    cohort = [client(0, weight), client(1, weight)]
    with pytest.raises(NoUploadError):
        merge(FedAvg(), State(), START, cohort, zip(cohort, (SOUND, SOUND), strict=True))


@dataclass(frozen=True)
class Own(FedAvg):
    """A user's method, with a fault in one of its verbs."""

    where: str = ""

    def init(self, params):
        return State({"mine": torch.full((2,), math.nan if self.where == "init" else 0.0)})

    def update(self, state, client, upload):
        return state.with_row(client.id, torch.tensor([math.inf])) if self.where == "update" else state

    def aggregate(self, state, params, sums):
        if self.where == "aggregate":
            return state.with_tensors(mine=torch.tensor([0.0, -math.inf])), params
        return state, params


def test_a_method_whose_state_is_not_finite_is_told_in_one_line():
    cohort = [client(4)]
    with pytest.raises(ValueError, match=r"^the state of Own\.init must be finite, got 2 values of the state's 'mine'"):
        first_state(Own(where="init"), START)
    with pytest.raises(ValueError, match=r"^the server's row of client 4 must be finite, got 1 values that are not$"):
        merge(Own(where="update"), State(), START, cohort, [(cohort[0], SOUND)])
    with pytest.raises(
        NotFiniteMergeError,
        match=r"^the merge gave 1 values of the state's 'mine' that are not finite; .*; no upload has values above 1: "
        r"the method's own arithmetic made it$",
    ):
        merge(Own(where="aggregate"), State(), START, cohort, [(cohort[0], SOUND)])


def test_initial_parameters_that_are_not_finite_are_named():
    broken = Params(LAYOUT, torch.tensor([1.0, math.nan, 3.0, 4.0]))
    with pytest.raises(
        ValueError,
        match=r"^the initial parameters must be finite, got 1 values of parameter 'weight' that are not finite$",
    ):
        first_state(FedFIbOS(), broken)


@pytest.mark.parametrize("memory", [True, False])
def test_a_row_that_is_not_finite_reaches_no_store(memory, tmp_path):
    rows = MemoryRows() if memory else FileRows(tmp_path)
    rows = rows.put(1, torch.tensor([1.0, 2.0]))
    message = "^the server's row of client 1 must be finite, got 1 values that are not$"
    with pytest.raises(ValueError, match=message):
        rows.put(1, torch.tensor([1.0, math.nan]))
    with pytest.raises(ValueError, match=message):
        rows.revise(1, torch.zeros(2), lambda row, span: row / torch.tensor([0.0, 1.0]))
    assert rows.get(1).tolist() == [1.0, 2.0]


@dataclass(frozen=True)
class Elbo(FedAvg):
    """A user's method whose loss and statistic may be below 0, and which says so."""

    signed = ("loss", "statistic")


def test_a_method_may_say_that_its_numbers_can_be_below_zero():
    bad = upload(0.5, 0.0, 0.0, 1.0, loss=-3.0, statistic=[-1.0, 0.0, 0.0, 0.0])
    cohort = [client(0)]
    _, _, report = merge(Elbo(), State(), START, cohort, [(cohort[0], bad)])
    assert report.rejected == {}
    assert report.loss == -3.0
    assert fault(bad) == "its statistic has 1 values below 0, down to -1: a mean of squares has none"
    assert fault(replace(bad, statistic=None)) == "its training loss is -3: a cross-entropy is at least 0"


def test_an_update_where_the_client_holds_nothing_is_refused():
    held = Mask(torch.tensor([True, False, True, True]), 3)
    assert (
        fault(Upload(held, torch.tensor([1.0, 0.5, 0.0, 0.0]), 0.5, 1)) == "its update is not 0 where it holds nothing"
    )
