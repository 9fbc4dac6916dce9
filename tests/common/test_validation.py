"""Errors of what people write: one line, with the nearest valid name."""

from dataclasses import dataclass
from typing import Literal

import pytest

from fedfibos.common.validation import ExperimentError, check_name, checked, listed, nearest, toml_text


@dataclass(frozen=True)
class Inner:
    size: int = 1
    rate: float = 0.1
    kind: Literal["mean", "sum"] = "mean"


@dataclass(frozen=True)
class Outer:
    inner: Inner
    names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("values", "message", "key"),
    [
        ({"inner": {"size": "3"}}, "study.inner.size must be an integer, got '3'", "study.inner.size"),
        ({"inner": {"rate": True}}, "study.inner.rate must be a number, got true", "study.inner.rate"),
        ({"inner": 3}, "study.inner must be a table, got 3", "study.inner"),
        ({}, "study.inner is missing, and has no default", "study.inner"),
        ({"inner": {}, "names": "a"}, "study.names must be an array, got 'a'", "study.names"),
        (
            {"inner": {"kind": "maen"}},
            "study.inner.kind must be one of 'mean' or 'sum', got 'maen'; did you mean 'mean'?",
            "study.inner.kind",
        ),
    ],
)
def test_the_key_what_was_wanted_and_what_was_got(values, message, key):
    with pytest.raises(ExperimentError) as error:
        checked(Outer, values, "study")
    assert str(error.value) == message
    assert error.value.key == key


def test_sound_values_are_taken():
    assert checked(Outer, {"inner": {"size": 2}, "names": ["a"]}, "study") == Outer(Inner(2), ("a",))


def test_the_nearest_name_whatever_its_capitals_and_hyphens():
    assert nearest("Fed-Rolex", ["fedrolex", "heterofl"]) == "fedrolex"
    assert nearest("xyz", ["fedrolex"]) is None
    with pytest.raises(ValueError, match=r"^method must be one of 'alpha', 'b', got 'alpah'; did you mean 'alpha'\?$"):
        check_name("method", "alpah", ["alpha", "b"])
    assert (listed(["a"]), listed([])) == ("'a'", "absent")


def test_values_as_toml_writes_them():
    assert [toml_text(value) for value in (True, 0.5, (1, "a"), float("inf"))] == ["true", "0.5", "[1, 'a']", "inf"]
