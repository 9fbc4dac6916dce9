"""What was changed on the way is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_cases import LAYOUT, PAYLOADS, D, decode, sealed, submodel_of, upload_of

from fedfibos.model import model_of
from fedfibos.models import build
from fedfibos.submodel import Mask, budget, full
from fedfibos.types import Upload
from fedfibos.wire.coding import (
    decode_download,
    decode_mask,
    decode_score,
    decode_upload,
)
from fedfibos.wire.envelope import TOKEN_SIZE
from fedfibos.wire.payload import WireError


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
