"""Layers that normalise over so few values that only signs are left."""

import pytest
import torch
from torch import nn

from fedfibos.probes.flat_norms import flat_norms

IMAGES = torch.randn(3, 4, 1, 1, generator=torch.Generator().manual_seed(0))
VECTORS = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("norm", "example", "values"),
    [
        (nn.LayerNorm(1), VECTORS[:, :1], 1),
        (nn.LayerNorm(2), VECTORS[:, :2], 2),
        (nn.LayerNorm(3), VECTORS[:, :3], None),
        (nn.RMSNorm(1), VECTORS[:, :1], 1),
        (nn.RMSNorm(2), VECTORS[:, :2], None),
        (nn.GroupNorm(4, 4), IMAGES, 1),
        (nn.GroupNorm(2, 4), IMAGES, 2),
        (nn.GroupNorm(1, 4), IMAGES, None),
        (nn.GroupNorm(4, 4), IMAGES.expand(3, 4, 2, 2), None),
        (nn.BatchNorm2d(4), IMAGES, None),
    ],
    ids=lambda value: str(value) if isinstance(value, nn.Module) else "",
)
def test_a_layer_is_named_exactly_where_no_gradient_passes_it(norm, example, values):
    """Of values some ten apart, a norm of three passes hundredths; of two it passes what its epsilon leaves."""
    module = nn.Sequential(norm)
    assert flat_norms(module, example) == ({} if values is None else {"0": values})
    inputs, weights = torch.randn(2, *example.shape, generator=torch.Generator().manual_seed(1))
    inputs = (30 * inputs).requires_grad_()
    (module(inputs) * weights).sum().backward()
    assert (float(inputs.grad.abs().max()) < 1e-3) == (values is not None)


def test_a_module_that_cannot_run_is_let_be():
    assert flat_norms(nn.Sequential(nn.Linear(3, 2)), VECTORS) == {}
