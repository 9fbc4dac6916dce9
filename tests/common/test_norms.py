"""Which normalisation needs more than one example, and which keeps statistics."""

import pytest
from torch import nn

from fedfibos.common.norms import has_batch_norm, keeps_statistics


@pytest.mark.parametrize(
    ("norm", "over_a_batch", "kept"),
    [
        (nn.BatchNorm1d(3), True, True),
        (nn.InstanceNorm1d(3), False, False),
        (nn.InstanceNorm1d(3, track_running_stats=True), False, True),
        (nn.GroupNorm(1, 3), False, False),
        (nn.LayerNorm(3), False, False),
    ],
)
def test_of_every_kind(norm, over_a_batch, kept):
    module = nn.Sequential(nn.Linear(2, 3), norm)
    assert (has_batch_norm(module), keeps_statistics(module)) == (over_a_batch, kept)
