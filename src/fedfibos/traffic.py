"""Bytes that a round sends, counted from the submodels (before any compression)."""

from __future__ import annotations

from fedfibos.params import Layout
from fedfibos.submodel import Submodel
from fedfibos.types import Upload

BYTES_PER_VALUE = 4


def download_bytes(submodel: Submodel, layout: Layout) -> int:
    """Server to client: the held values, and for a mask the d bits that say which they are.

    A slice needs no bitmap: its channels follow from the method, the round and the width.
    """
    bitmap = -(-layout.num_maskable // 8) if submodel.held is not None else 0
    return BYTES_PER_VALUE * submodel.num_held + bitmap


def upload_bytes(upload: Upload, layout: Layout) -> int:
    """Client to server: the update on the held coordinates, and the statistic where it is an estimate.

    A statistic of the held coordinates covers the maskable ones alone; those of normalisation are always held. Where
    the client counts as a holder of less than it holds, a bit for each says of what.
    """
    statistic = 0
    counted = 0 if upload.counted is None else -(-upload.submodel.num_held // 8)
    if upload.statistic is not None:
        held = upload.submodel.num_held - (layout.size - layout.num_maskable)
        statistic = held if upload.observed == "held" else upload.statistic.numel()
    return BYTES_PER_VALUE * (upload.submodel.num_held + statistic) + counted
