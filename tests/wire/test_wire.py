"""The wire format: what comes back is what was sent, in few bytes; what was changed on the way is refused."""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from fedfibos.methods._slicing import prefix
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.params import Params
from fedfibos.submodel import Mask, budget, full, mask_from_scores
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Upload
from fedfibos.wire.bitmap import pack_bits, pack_mask, unpack_bits, unpack_mask
from fedfibos.wire.coding import (
    decode_download,
    decode_mask,
    decode_score,
    decode_upload,
    encode_download,
    encode_mask,
    encode_score,
    encode_upload,
)
from fedfibos.wire.envelope import TOKEN_SIZE, token_of
from fedfibos.wire.payload import Reader, WireError

MODEL: Model = model_of(build("cnn", 4, (1, 8, 8), seed=1, channels=[8, 16]), example=torch.zeros(2, 1, 8, 8))
LAYOUT = MODEL.layout
D = LAYOUT.num_maskable
KINDS = ("full", "mask", "slice")


def client(capacity=0.5, t=3):
    return Client(7, capacity, t, 0, LocalTraining())


def params(seed=0):
    return Params(LAYOUT, torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(seed)))


def submodel_of(kind, capacity=0.5):
    if kind == "full":
        return full(LAYOUT)
    scores = torch.rand(D, generator=torch.Generator().manual_seed(2))
    return mask_from_scores(scores, capacity, LAYOUT) if kind == "mask" else prefix(MODEL, capacity)


def upload_of(submodel, observed=None, with_rows=False):
    generator = torch.Generator().manual_seed(5)
    delta = submodel.gather(torch.randn(LAYOUT.size, generator=generator))
    statistic = None
    if observed is not None:
        statistic = torch.rand(D, generator=generator).square() * 1e-7
        statistic = submodel.gather(statistic) if observed == "held" else statistic
    held = None
    if with_rows:
        inside = torch.ones(LAYOUT.size, dtype=torch.bool)
        held = submodel.gather(inside.float()) * (torch.rand(delta.numel(), generator=generator) < 0.7) > 0
        delta = torch.where(held, delta, 0.0)
    return Upload(submodel, delta, 0.25, 4, statistic, observed or "held", held)


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


def sealed(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=TOKEN_SIZE).digest()


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


@pytest.mark.parametrize("capacity", [1.0, 0.5, 0.0625])
def test_mask_round_trip(capacity):
    mask = submodel_of("mask", capacity)
    got = decode_mask(encode_mask(7, 3, mask, LAYOUT), 7, 3, budget(capacity, D), LAYOUT)
    assert got.num_held == mask.num_held
    assert (mask.held is None and got.held is None) or torch.equal(got.held, mask.held)


def test_score_round_trip():
    score = torch.rand(D, generator=torch.Generator().manual_seed(3))
    assert torch.equal(decode_score(encode_score(7, 3, score, LAYOUT), 7, 3, LAYOUT), score)
    score[5] = torch.nan
    with pytest.raises(WireError, match="a score must be finite"):
        decode_score(encode_score(7, 3, score, LAYOUT), 7, 3, LAYOUT)


def test_a_mask_beyond_its_capacity_is_refused():
    payload = encode_mask(7, 3, submodel_of("mask", 0.5), LAYOUT)
    with pytest.raises(WireError, match=f"must hold 1 to {budget(0.25, D)} coordinates, got {budget(0.5, D)}"):
        decode_mask(payload, 7, 3, budget(0.25, D), LAYOUT)
    nothing = torch.ones(LAYOUT.size, dtype=torch.bool)
    nothing[:D] = False
    with pytest.raises(WireError, match="got 0"):
        decode_mask(encode_mask(7, 3, Mask(nothing, 0), LAYOUT), 7, 3, D, LAYOUT)


@given(st.lists(st.booleans(), max_size=2000), st.sampled_from([pack_mask, pack_bits]))
@example([True] + [False] * 254 + [True], pack_mask)
@example([False] * 255 + [True], pack_mask)
@example([False] * 1500 + [True], pack_mask)
@example([], pack_mask)
@settings(deadline=None)
def test_any_bits_round_trip(bits, pack):
    held = np.array(bits, dtype=np.bool_)
    reader = Reader(pack(held))
    got = unpack_mask(reader, held.size) if pack is pack_mask else unpack_bits(reader, held.size)
    reader.end()
    assert (got == held).all()


@given(st.integers(1, 5000), st.floats(0, 0.5), st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_sparse_masks_round_trip(size, density, seed):
    held = np.random.default_rng(seed).random(size) < density
    assert (unpack_mask(Reader(pack_mask(held)), size) == held).all()


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


PAYLOADS = {
    **{f"download {kind}": encode_download(client(), submodel_of(kind), params(), MODEL) for kind in KINDS},
    **{
        f"upload {kind}": encode_upload(
            upload_of(submodel_of(kind), None if kind == "slice" else "held", True), 7, 3, bytes(16), LAYOUT
        )
        for kind in KINDS
    },
    "mask": encode_mask(7, 3, submodel_of("mask", 0.125), LAYOUT),
    "score": encode_score(7, 3, torch.rand(D, generator=torch.Generator().manual_seed(3)), LAYOUT),
}


def decode(name, payload):
    if name == "mask":
        return decode_mask(payload, 7, 3, budget(0.125, D), LAYOUT)
    if name == "score":
        return decode_score(payload, 7, 3, LAYOUT)
    if name.startswith("download"):
        return decode_download(payload, MODEL)
    return decode_upload(payload, 7, 3, bytes(16), submodel_of(name.removeprefix("upload ")), LAYOUT)


@st.composite
def mutated(draw, original: bytes):
    """The payload with bytes changed, put in, cut out or cut off."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        # the fields lie in front: half of the changes are made there
        position = draw(st.integers(0, max(len(data) - 1, 0)) | st.integers(0, min(120, max(len(data) - 1, 0))))
        kind = draw(st.sampled_from(["change", "insert", "delete", "cut"]))
        if kind == "change" and data:
            data[position] ^= draw(st.integers(1, 255))
        elif kind == "insert":
            data[position:position] = draw(st.binary(min_size=1, max_size=40))
        elif kind == "delete":
            del data[position : position + draw(st.integers(1, 40))]
        else:
            del data[position:]
    return bytes(data)


@pytest.mark.parametrize("name", PAYLOADS)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_mutated_payloads_are_refused(name, data):
    payload = data.draw(mutated(PAYLOADS[name]))
    if payload != PAYLOADS[name]:
        with pytest.raises(WireError) as error:
            decode(name, payload)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", PAYLOADS)
@given(data=st.data())
@settings(deadline=None, max_examples=80)
def test_payloads_mutated_by_one_who_can_seal_them_never_crash(name, data):
    """With the checksum made anew, a payload is either refused or as well-formed as any."""
    decoded_or_refused(name, sealed(data.draw(mutated(PAYLOADS[name][:-TOKEN_SIZE]))))


def decoded_or_refused(name, payload):
    """Whether it was decoded; what is decoded is what is wanted, and what is not is refused in a line."""
    try:
        got = decode(name, payload)
    except WireError as error:
        lines = str(error).count("\n") + 1
    else:
        assert_sound(name, got)
        return True
    assert lines == 1
    return False


def assert_sound(name, got):
    """What is decoded is what is wanted, with values that can be."""
    if isinstance(got, Upload):
        assert got.delta.shape == upload_of(submodel_of(name.removeprefix("upload "))).delta.shape
        assert math.isfinite(got.loss)
        assert got.loss >= 0
        assert got.statistic is None or got.statistic.shape == (D,)
    elif isinstance(got, torch.Tensor):
        assert got.shape == (D,)
        assert bool(torch.isfinite(got).all())
        assert bool((got >= 0).all())
    elif isinstance(got, Mask):
        assert 1 <= got.num_held <= budget(0.125, D) + LAYOUT.size - D
    else:
        assert got.submodel.gather(got.params.flat).numel() in (got.submodel.num_held, LAYOUT.size)
        assert bool(torch.isfinite(got.params.flat).all())
        assert 0 < got.capacity <= 1


def damaged(original: bytes, numbers: np.random.Generator) -> bytes:
    """As :func:`mutated`, drawn a hundred times as fast; bits are flipped and bytes made extreme too."""
    data = bytearray(original)
    for _ in range(numbers.integers(1, 5)):
        if not data:
            break
        front = numbers.random() < 0.5
        at = int(numbers.integers(min(len(data), 120) if front else len(data)))
        kind = numbers.integers(6)
        if kind == 0:
            data[at] ^= 1 << int(numbers.integers(8))
        elif kind == 1:
            data[at] = int(numbers.integers(256))
        elif kind == 2:
            data[at : at + 4] = (b"\x00\x00\xc0\x7f", b"\xff\xff\xff\xff", b"\x00\x00\x80\xff")[numbers.integers(3)]
        elif kind == 3:
            data[at:at] = numbers.bytes(int(numbers.integers(1, 41)))
        elif kind == 4:
            del data[at : at + int(numbers.integers(1, 41))]
        elif numbers.random() < 0.2:
            del data[at:]
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAYLOADS)
def test_a_hundred_thousand_damaged_payloads_are_decoded_or_refused(name):
    """With the checksum made anew: nothing but the decoder stands between them and the server."""
    numbers = np.random.default_rng(list(PAYLOADS).index(name))
    body, each = PAYLOADS[name][:-TOKEN_SIZE], -(-100_000 // len(PAYLOADS))
    taken = sum(decoded_or_refused(name, sealed(damaged(body, numbers))) for _ in range(each))
    assert 0.01 * each < taken < 0.9 * each  # both ends of the decoder are met


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_random_bytes_are_refused(payload):
    for name in PAYLOADS:
        with pytest.raises(WireError):
            decode(name, payload)
        with pytest.raises(WireError):
            decode(name, sealed(PAYLOADS[name][:40] + payload))


def test_a_bomb_is_not_unpacked():
    """Compressed data that claim, or would give, more than a mask's size are refused before they are unpacked."""
    bomb = zstandard.compress(bytes(10**8))
    head = PAYLOADS["mask"][:26]
    for encoding in (0, 1):
        payload = sealed(head + struct.pack("<BII", encoding, D, len(bomb)) + bomb)
        with pytest.raises(WireError, match="at most"):
            decode("mask", payload)


@pytest.mark.parametrize("name", PAYLOADS)
def test_another_model_is_named(name):
    other = model_of(build("cnn", 4, (1, 8, 8), seed=1, channels=[8, 32]), example=torch.zeros(2, 1, 8, 8))
    read = {
        "mask": lambda: decode_mask(PAYLOADS[name], 7, 3, D, other.layout),
        "download": lambda: decode_download(PAYLOADS[name], other),
        "score": lambda: decode_score(PAYLOADS[name], 7, 3, other.layout),
        "upload": lambda: decode_upload(PAYLOADS[name], 7, 3, bytes(16), full(other.layout), other.layout),
    }[name.split()[0]]
    with pytest.raises(WireError, match="different models"):
        read()


@pytest.mark.parametrize("largest", [1e-34, 1e-38, 1e-42])
def test_a_statistic_near_the_least_floats_stays_finite(largest):
    mask = submodel_of("mask", 0.5)
    statistic = mask.gather(torch.rand(D, generator=torch.Generator().manual_seed(1))) * largest
    payload = encode_upload(replace(upload_of(mask), statistic=statistic), 7, 3, bytes(16), LAYOUT, "float16")
    got = decode_upload(payload, 7, 3, bytes(16), mask, LAYOUT).statistic
    assert bool(torch.isfinite(got).all())
    assert float((got - statistic).abs().max()) <= 2e-3 * largest + 1e-44 * 65504


@pytest.mark.parametrize(("precision", "bound"), [("float32", 0.0), ("bfloat16", 2**-8), ("float16", 2**-11)])
@pytest.mark.parametrize("observed", ["held", "all"])
def test_precision_of_a_statistic(precision, bound, observed):
    """Relative error of half a unit in the last place, over ten decades; bytes as many as the type has."""
    mask = submodel_of("mask", 0.5)
    statistic = 10.0 ** (torch.rand(D, generator=torch.Generator().manual_seed(1)) * 6 - 14)
    statistic = mask.gather(statistic) if observed == "held" else statistic
    upload = replace(upload_of(mask), statistic=statistic, observed=observed)
    payload = encode_upload(upload, 7, 3, bytes(16), LAYOUT, precision)
    got = decode_upload(payload, 7, 3, bytes(16), mask, LAYOUT).statistic
    error = (got - statistic).abs() / statistic.clamp(min=1e-30)
    assert float(error.max()) <= bound
    count = budget(0.5, D) if observed == "held" else D
    without = len(encode_upload(upload_of(mask), 7, 3, bytes(16), LAYOUT))
    width = 4 if precision == "float32" else 2
    assert len(payload) - without - width * count in (1, 1 + 4 * LAYOUT.num_maskable_tensors)
