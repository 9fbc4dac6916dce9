"""A small model, its submodels and uploads, for tests of the wire."""

from __future__ import annotations

import hashlib

import torch

from fedfibos.methods._slicing import prefix
from fedfibos.model import Model, model_of
from fedfibos.models import build
from fedfibos.params import Params
from fedfibos.submodel import budget, full, mask_from_scores
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Upload
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
from fedfibos.wire.envelope import TOKEN_SIZE

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


def sealed(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=TOKEN_SIZE).digest()


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
