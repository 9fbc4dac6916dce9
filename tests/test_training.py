"""Settings of local training are what they are declared as."""

from __future__ import annotations

import math

import pytest

from fedfibos.training import LocalTraining


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("steps", 2.5, "an integer, got 2.5"),
        ("steps", "5", "an integer, got '5'"),
        ("epochs", True, "an integer, got True"),
        ("lr", "x", "a finite number, got 'x'"),
        ("momentum", math.nan, "a finite number, got nan"),
        ("momentum", 1.0, r"a number in \[0, 1\), got 1.0"),
    ],
)
def test_local_training_is_what_it_is_declared_as(field, value, said):
    with pytest.raises(ValueError, match=f"^{field} must be {said}$"):
        LocalTraining(**{field: value})
