"""Statistics in fewer bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from wire_cases import LAYOUT, D, submodel_of, upload_of

from fedfibos.submodel import budget
from fedfibos.wire.coding import (
    decode_upload,
    encode_upload,
)


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
