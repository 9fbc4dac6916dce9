"""The wire format: what comes back is what was sent, in few bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from wire_cases import KINDS, LAYOUT, MODEL, D, client, params, submodel_of, upload_of

from fedfibos.model import model_of
from fedfibos.submodel import budget, mask_from_scores
from fedfibos.types import Upload
from fedfibos.wire.coding import (
    decode_download,
    decode_score,
    decode_upload,
    encode_download,
    encode_score,
    encode_upload,
)
from fedfibos.wire.envelope import token_of
from fedfibos.wire.payload import WireError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_download_of_parameters_that_are_not_finite_is_refused(kind, value):
    submodel = submodel_of(kind)
    broken = params()
    position = int(submodel.index[5]) if kind == "slice" else int(submodel_of("mask").held.nonzero()[5])
    broken.flat[position] = value
    payload = encode_download(client(), submodel, broken, MODEL)
    with pytest.raises(WireError, match=r"^the parameters of a download must be finite, got 1 values that are not$"):
        decode_download(payload, MODEL)


def test_what_cannot_be_below_zero_is_refused_unless_the_method_says_so():
    submodel = submodel_of("mask")
    payload = encode_upload(replace(upload_of(submodel), loss=-0.5), 7, 3, bytes(16), LAYOUT)
    with pytest.raises(WireError, match=r"^the training loss must be at least 0, as a cross-entropy is, got -0\.5$"):
        decode_upload(payload, 7, 3, bytes(16), submodel, LAYOUT)
    assert decode_upload(payload, 7, 3, bytes(16), submodel, LAYOUT, signed={"loss"}).loss == -0.5
    score = torch.zeros(D)
    score[3] = -2e-3
    payload = encode_score(7, 3, score, LAYOUT)
    with pytest.raises(WireError, match=r"^a score must be at least 0, as a mean of squares is, got -0\.002$"):
        decode_score(payload, 7, 3, LAYOUT)
    assert torch.equal(decode_score(payload, 7, 3, LAYOUT, signed={"statistic"}), score)


@pytest.mark.parametrize("kind", KINDS)
def test_download_round_trip(kind):
    submodel, sent = submodel_of(kind), params()
    payload = encode_download(client(), submodel, sent, MODEL)
    got = decode_download(payload, MODEL)
    assert (got.client, got.round, got.capacity) == (7, 3, 0.5)
    assert torch.equal(got.submodel.gather(got.params.flat), submodel.gather(sent.flat))
    if kind == "mask":
        assert torch.equal(got.submodel.held, submodel.held)
        assert got.submodel.num_held == submodel.num_held
        assert torch.equal(got.params.flat, submodel.gather(sent.flat)), "zero off the mask"
    if kind == "slice":
        assert (got.submodel.layout, got.submodel.widths) == (submodel.layout, submodel.widths)


@pytest.mark.parametrize("kind", KINDS)
def test_a_download_with_a_correction_round_trip(kind):
    submodel, correction = submodel_of(kind), params(seed=4).flat
    sender = replace(client(), correction=submodel.gather(correction))
    payload = encode_download(sender, submodel, params(), MODEL)
    got = decode_download(payload, MODEL, corrected=True)
    assert torch.equal(got.correction, submodel.gather(correction))
    assert torch.equal(got.params.flat, submodel.gather(params().flat))
    plain = encode_download(client(), submodel, params(), MODEL)
    assert len(payload) - len(plain) == 4 * submodel.num_held
    with pytest.raises(WireError):
        decode_download(plain, MODEL, corrected=True)
    with pytest.raises(WireError):
        decode_download(payload, MODEL)
    broken = replace(sender, correction=torch.full_like(sender.correction, math.nan))
    with pytest.raises(WireError, match=r"^the correction of a download must be finite, got"):
        decode_download(encode_download(broken, submodel, params(), MODEL), MODEL, corrected=True)


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("observed", [None, "held", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_upload_round_trip(kind, observed, with_rows):
    if kind == "slice" and observed is not None:
        upload = replace(upload_of(submodel_of(kind)), statistic=torch.zeros(D), observed=observed)
        with pytest.raises(ValueError, match="a statistic of coordinates goes with a mask"):
            encode_upload(upload, 7, 3, bytes(16), LAYOUT)
        return
    submodel = submodel_of(kind)
    upload = upload_of(submodel, observed, with_rows)
    payload = encode_upload(upload, 7, 3, bytes(16), LAYOUT)
    got = decode_upload(payload, 7, 3, bytes(16), submodel, LAYOUT)
    assert got.submodel is submodel
    assert torch.equal(got.delta, upload.delta)
    assert (got.loss, got.num_steps) == (upload.loss, upload.num_steps)
    if observed is None:
        assert got.statistic is None
    else:
        assert torch.equal(got.statistic, upload.statistic)
        assert got.observed == observed
    assert (got.counted is None) == (not with_rows)
    if with_rows:
        assert torch.equal(got.counted, upload.counted)


@pytest.mark.parametrize("kind", ["full", "slice"])
def test_a_statistic_of_channels_travels_as_one_number_each(kind):
    submodel, total = submodel_of(kind), MODEL.axes.num_units
    count = submodel.units.numel() if kind == "slice" else total
    assert count < total or kind == "full"
    numbers = torch.linspace(-1.0, 1.0, count)
    upload = replace(upload_of(submodel), statistic=numbers, observed="units")
    payload = encode_upload(upload, 7, 3, bytes(16), LAYOUT, "float16")
    assert len(payload) == len(encode_upload(upload_of(submodel), 7, 3, bytes(16), LAYOUT)) + 4 * count
    got = decode_upload(payload, 7, 3, bytes(16), submodel, LAYOUT, num_units=total)
    assert torch.equal(got.statistic, numbers)
    assert got.observed == "units"
    with pytest.raises(WireError, match="the statistic of client 7 is of units, the method has none such"):
        decode_upload(payload, 7, 3, bytes(16), submodel, LAYOUT)
    if kind == "full":
        other = encode_upload(upload_of(submodel, "all"), 7, 3, bytes(16), LAYOUT)
        with pytest.raises(WireError, match="is of all, the method has none such"):
            decode_upload(other, 7, 3, bytes(16), submodel, LAYOUT, num_units=total)


def test_score_round_trip():
    score = torch.rand(D, generator=torch.Generator().manual_seed(3))
    assert torch.equal(decode_score(encode_score(7, 3, score, LAYOUT), 7, 3, LAYOUT), score)
    score[5] = torch.nan
    with pytest.raises(WireError, match="a score must be finite"):
        decode_score(encode_score(7, 3, score, LAYOUT), 7, 3, LAYOUT)


@pytest.mark.parametrize("d", [20_000, 400_000])
@pytest.mark.parametrize("capacity", [0.5, 0.25, 0.125, 0.0625])
def test_a_download_is_within_five_percent_of_the_bound(d, capacity):
    """Entropy of a random mask of k of d, log2 C(d, k) bits, and the values: the whole payload, header and all."""
    model = model_of(nn.Linear(d // 10, 10, bias=False))
    d = model.layout.num_maskable
    scores = torch.rand(d, generator=torch.Generator().manual_seed(d))
    mask = mask_from_scores(scores, capacity, model.layout)
    k = budget(capacity, d)
    entropy = (math.lgamma(d + 1) - math.lgamma(k + 1) - math.lgamma(d - k + 1)) / math.log(2) / 8
    payload = encode_download(client(capacity), mask, model.initial_params(), model)
    assert len(payload) <= 1.05 * (entropy + 4 * mask.num_held)
    answer = Upload(mask, torch.zeros(d), 0.0, 1)
    assert len(encode_upload(answer, 7, 3, token_of(payload), model.layout)) <= 4 * mask.num_held + 100, (
        "the mask is not sent back"
    )
