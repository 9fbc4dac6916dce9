"""``fedfibos methods FILE`` where the file trains nested steps: the levels follow from the capacities, as in a run."""

from __future__ import annotations

import json

from fedfibos.cli import main

CHANGES = """
federation.capacities = { 1.0 = 0.5, 0.25 = 0.5 }
method.preset = "recommended"
local.nested = 0.5
"""


def test_every_method_that_nests_has_its_costs(experiment_file, capsys):
    file = experiment_file(CHANGES)
    assert main(["methods", str(file), "--json"]) == 0
    said = capsys.readouterr()
    rows = [(row["method"], row["capacity"]) for row in json.loads(said.out)]
    shown = list(dict.fromkeys(method for method, _ in rows))
    assert {"fedfibos", "fedfibos-channels", "fiarse", "heterofl"} <= set(shown)
    assert rows == [(method, capacity) for method in shown for capacity in (1.0, 0.25)]
    assert "local.levels" not in said.err
