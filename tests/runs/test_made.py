"""Where a run was made and gone on with."""

import json

import pytest

from fedfibos.runs.made import DEALT, latest_environment, note_environment
from fedfibos.runs.reading import RecordError


def note(folder, dealt="aa", own=None, warn=lambda line: None):
    note_environment(folder, "cpu", {} if own is None else {"own": own}, warn, {DEALT: dealt})


def test_the_same_place_is_noted_once_and_another_is_added(tmp_path):
    assert latest_environment(tmp_path) == {}
    note(tmp_path)
    first = (tmp_path / "environment.json").read_bytes()
    note(tmp_path)
    assert (tmp_path / "environment.json").read_bytes() == first
    warnings = []
    note(tmp_path, own={"mine:net": "00"}, warn=warnings.append)
    made = json.loads((tmp_path / "environment.json").read_text())
    assert [each["own"] for each in made["resumed"]] == [{"mine:net": "00"}]
    assert latest_environment(tmp_path)["own"] == {"mine:net": "00"}
    assert warnings == [
        f"the file of mine:net has changed since {tmp_path} was last run: this may be another experiment"
    ]


def test_other_examples_are_refused(tmp_path):
    note(tmp_path)
    with pytest.raises(RecordError, match="holds a run whose clients had other examples"):
        note(tmp_path, dealt="bb")
