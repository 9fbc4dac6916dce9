"""A value of another kind than a record's is named."""

from __future__ import annotations

import json
import re

import pytest

from fedfibos.report.records import read_record
from fedfibos.runs.reading import RecordError

WRONG = [
    ("environment.json", ("cpu",), None),
    ("environment.json", ("cores",), "2"),
    ("environment.json", ("resumed",), {}),
    ("environment.json", ("resumed",), [None]),
    ("environment.json", ("own",), ["a"]),
    ("environment.json", ("dealt_sha256",), 5),
    ("final.json", ("seed",), "0"),
    ("final.json", ("seed",), True),
    ("final.json", ("rounds",), 1.5),
    ("final.json", ("rounds",), -1),
    ("final.json", ("params_sha256",), None),
    ("final.json", ("global_accuracy",), []),
    ("final.json", ("global_accuracy", "full"), 0.5),
    ("final.json", ("global_accuracy", "full", "last"), "0.5"),
    ("final.json", ("global_accuracy", "submodels"), {}),
    ("final.json", ("global_accuracy", "submodels", "mean"), {}),
    ("final.json", ("local_accuracy", "by_capacity"), None),
    ("final.json", ("local_accuracy", "adjusted"), 1),
    ("final.json", ("bytes", "up"), 0.5),
    ("final.json", ("silent",), "none"),
    ("rounds.jsonl", ("round",), "1"),
    ("rounds.jsonl", ("round",), 2),
    ("rounds.jsonl", ("loss",), None),
    ("rounds.jsonl", ("rejected",), []),
    ("rounds.jsonl", ("rejected",), {"3": None}),
    ("rounds.jsonl", ("bytes",), 13),
    ("rounds.jsonl", ("bytes", "down"), -1),
    ("rounds.jsonl", ("seconds",), "fast"),
    ("rounds.jsonl", ("participants",), "all"),
    ("rounds.jsonl", ("participants",), ["1"]),
    ("rounds.jsonl", ("evaluation",), None),
    ("rounds.jsonl", ("evaluation", "global"), {}),
    ("rounds.jsonl", ("evaluation", "global", "full"), []),
    ("rounds.jsonl", ("evaluation", "local", "mean"), "high"),
    ("rounds.jsonl", ("evaluation", "jaccard"), None),
    ("rounds.jsonl", ("evaluation", "cv_f"), "0"),
]


@pytest.mark.parametrize(("name", "keys", "value"), WRONG, ids=lambda value: str(value))
def test_a_value_of_another_kind_is_named(run, name, keys, value):
    content = json.loads((run / name).read_text())
    table = content
    for key in keys[:-1]:
        table = table[key]
    table[keys[-1]] = value
    (run / name).write_text(json.dumps(content) + "\n")
    with pytest.raises(RecordError, match=re.escape(str(run / name))) as caught:
        read_record(run)
    assert keys[-1] in str(caught.value)
    assert "\n" not in str(caught.value)
