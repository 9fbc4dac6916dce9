"""A user's own code beside a run."""

import hashlib
import sys

import pytest

from fedfibos.runs.own_code import changed_code, keep_code, own_code

CONFIG = '[data]\nname = "kept_of_the_test:data"\n[model]\nname = "mlp"\n[method]\nname = "fedavg"\n'
CODE = "def data(folder): ...\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "kept_of_the_test.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("kept_of_the_test", None)


def test_the_file_is_noted_and_kept(own):
    digest = hashlib.sha256(CODE.encode()).hexdigest()
    assert own_code(CONFIG) == {"own": {"kept_of_the_test:data": digest}}
    keep_code(own / "run", CONFIG)
    assert (own / "run" / "code" / "kept_of_the_test.py").read_text() == CODE


def test_names_of_ours_and_paths_are_no_code():
    assert own_code('[data]\nname = "csv:table.csv"\n[model]\nname = "mlp"\n') == {}


def test_what_changed():
    assert changed_code({"own": {"a:b": "1", "c:d": "2"}}, {"own": {"a:b": "1", "c:d": "3"}}) == ["c:d"]
    assert changed_code({}, {"own": {"a:b": "1"}}) == ["a:b"]
    assert changed_code({"own": {"a:b": "1"}}, {}) == []
