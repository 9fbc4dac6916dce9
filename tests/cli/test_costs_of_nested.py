"""``fedfibos methods FILE`` where the file trains nested steps: the levels follow from the capacities, as in a run."""

from __future__ import annotations

import json

from fedfibos.cli import main

EXPERIMENT = """
[data]
name = "digits"
[model]
name = "mlp"
options = { hidden = [8] }
[federation]
clients = 4
cohort = 2
rounds = 1
capacities = { 1.0 = 0.5, 0.25 = 0.5 }
[method]
name = "fedfibos"
preset = "recommended"
[local]
nested = 0.5
"""


def test_every_method_that_nests_has_its_costs(tmp_path, capsys):
    file = tmp_path / "my.toml"
    file.write_text(EXPERIMENT)
    assert main(["methods", str(file), "--json"]) == 0
    said = capsys.readouterr()
    rows = [(row["method"], row["capacity"]) for row in json.loads(said.out)]
    shown = list(dict.fromkeys(method for method, _ in rows))
    assert {"fedfibos", "fedfibos-channels", "fiarse", "heterofl"} <= set(shown)
    assert rows == [(method, capacity) for method in shown for capacity in (1.0, 0.25)]
    assert "local.levels" not in said.err
