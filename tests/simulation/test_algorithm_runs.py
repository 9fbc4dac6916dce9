"""Server optimisers, robust merges, proximal terms and control variates in whole runs: workers, resuming, homes."""

from __future__ import annotations

import json

import pytest

from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.simulation import simulate
from fedfibos.simulation.world import build_world

CHANGES = """
federation = { clients = 10, cohort = 4, rounds = 4 }
local.steps = 3
evaluation.every = 4
run.checkpoint_every = 2
"""
SETTINGS = {
    "adam": ("server.optimizer=adam", "method.server_lr=0.02"),
    "momentum-median": ("server.optimizer=momentum", "server.merge=median"),
    "trimmed-mean": ("server.merge=trimmed-mean", "federation.weighting=samples"),
    "proximal": ("local.proximal=0.1", "method.name=fiarse"),
    "scaffold": ("local.scaffold=true",),
    "scaffold-slices": (
        "local.scaffold=true",
        "method.name=heterofl",
        "server.optimizer=yogi",
        "method.server_lr=0.02",
    ),
    "scaffold-client-scores": ("local.scaffold=true", "method.sharing=client", "run.score_home=disk"),
    "scaffold-halves": (
        "local.scaffold=true",
        "method.sharing=client",
        "run.score_home=client",
        "run.score_bytes=2",
    ),
}


@pytest.fixture
def toml(experiment_file):
    return experiment_file(CHANGES)


@pytest.mark.slow_where("scaffold-slices", "scaffold-client-scores", "trimmed-mean", "momentum")
@pytest.mark.parametrize("name", SETTINGS)
def test_workers_and_an_interruption_do_not_matter(name, toml, tmp_path):
    experiment = load_experiment(toml, SETTINGS[name])
    whole = simulate(experiment, tmp_path / "whole", workers=1)
    assert simulate(experiment, tmp_path / "two", workers=2)["params_sha256"] == whole["params_sha256"]

    class Killed(Exception):
        pass

    def kill(record):
        if record["round"] == 3:
            raise Killed

    with pytest.raises(Killed):
        simulate(experiment, tmp_path / "killed", workers=1, on_round=kill)
    resumed = simulate(experiment, tmp_path / "killed", workers=1, resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]


def test_where_variates_live_does_not_matter(toml, tmp_path):
    digests = set()
    for home in ("memory", "disk", "client"):
        overrides = ("local.scaffold=true", "method.sharing=client", f"run.score_home={home}")
        digests.add(simulate(load_experiment(toml, overrides), tmp_path / home, workers=1)["params_sha256"])
    assert len(digests) == 1
    assert len(list((tmp_path / "memory/checkpoint/variates").glob("*.safetensors"))) > 4
    assert list((tmp_path / "client/clients/variates").glob("*.safetensors"))
    assert not (tmp_path / "client/checkpoint/variates").exists()


def test_a_damaged_variate_costs_rounds_and_not_the_run(toml, tmp_path):
    experiment = load_experiment(toml, ("local.scaffold=true",))
    whole = simulate(experiment, tmp_path / "whole", workers=1)
    meta = json.loads((tmp_path / "whole/checkpoint/round-000004/meta.json").read_text())
    before = json.loads((tmp_path / "whole/checkpoint/round-000002/meta.json").read_text())
    new = sorted(meta["variates"].items() - before["variates"].items())[0][1]
    (tmp_path / "whole/checkpoint/variates" / new).write_bytes(b"x")
    said = []
    again = simulate(experiment, tmp_path / "whole", workers=1, resume=True, on_warning=said.append)
    assert again["params_sha256"] == whole["params_sha256"]
    assert any(f"{new} does not have the recorded SHA-256" in line for line in said)


def test_overwriting_a_run_removes_its_variates(toml, tmp_path):
    simulate(load_experiment(toml, ("local.scaffold=true",)), tmp_path / "run", workers=1)
    simulate(load_experiment(toml), tmp_path / "run", workers=1, overwrite=True)
    assert not (tmp_path / "run/checkpoint/variates").exists()


def test_settings_are_written_out_and_what_has_no_effect_is_said(toml):
    experiment = load_experiment(toml, ("server.optimizer=adam", "server.momentum=0.5", "server.trim=0.2"))
    assert 'optimizer = "adam"' in to_toml(experiment)
    said = []
    build_world(experiment, warn=said.append)
    assert "server.momentum = 0.5 has no effect without server.optimizer = 'momentum'" in said
    assert "server.trim = 0.2 has no effect without server.merge = 'trimmed-mean'" in said
    assert any("method.server_lr a round: 1 is very large" in line for line in said)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("server.optimiser=adam", "unknown key 'server.optimiser'; did you mean 'server.optimizer'?"),
        ("server.lr=0.1", "did you mean 'method.server_lr'?"),
        ("server.optimizer=adm", "'adam'"),
        ("local.mu=0.1", "did you mean 'local.proximal'?"),
        ("local.scaffold=3", "local.scaffold"),
    ],
)
def test_a_wrong_setting_is_one_line(toml, override, said):
    with pytest.raises(ValueError, match=said.replace("?", r"\?")) as raised:
        load_experiment(toml, (override,))
    assert "\n" not in str(raised.value)
