"""Fields are checked where an object is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytest

from fedfibos.common.field_checks import check_fields, check_positive


@dataclass(frozen=True)
class Settings:
    word: Literal["mean", "sum"] | Callable[[object], object] = "mean"
    count: int | None = None
    rate: float = 0.5
    on: bool = False
    free: object = None

    def __post_init__(self):
        check_fields(self)
        check_positive(self, "rate")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"word": "maen"}, "word must be one of 'mean', 'sum', got 'maen'; did you mean 'mean'?"),
        ({"count": 2.5}, "count must be an integer, got 2.5"),
        ({"count": True}, "count must be an integer, got True"),
        ({"rate": float("nan")}, "rate must be a finite number, got nan"),
        ({"rate": "x"}, "rate must be a finite number, got 'x'"),
        ({"on": 1}, "on must be True or False, got 1"),
        ({"rate": 0.0}, "rate must be a positive number, got 0.0"),
    ],
)
def test_what_a_field_is_not_is_said(values, message):
    with pytest.raises(ValueError, match="^" + message.replace("?", r"\?") + "$"):
        Settings(**values)


def test_what_may_be_is_taken():
    made = Settings(word=len, count=3, rate=1, free="anything")
    assert (made.word, made.count, made.rate) == (len, 3, 1)
