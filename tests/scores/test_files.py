"""Scores in files: the same bytes as in memory, also after an interruption."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from score_homes import run

from fedfibos.scores.files import FileRows
from fedfibos.simulation import Interrupted


@pytest.mark.slow_where("overrides1")
@pytest.mark.parametrize("overrides", [(), ("method.prior=none",), ("method.sharing=blend", "method.fisher=held")])
def test_every_home_gives_the_same_bytes(toml, tmp_path, overrides):
    digests = {
        home: run(toml, tmp_path / home, f"run.score_home={home}", *overrides)["params_sha256"]
        for home in ("memory", "disk", "client")
    }
    assert len(set(digests.values())) == 1
    folders = {"memory": "checkpoint/rows", "disk": "checkpoint/rows", "client": "clients"}
    present = {home: list((tmp_path / home / folder).iterdir()) for home, folder in folders.items()}
    assert all(path.suffix == ".safetensors" for paths in present.values() for path in paths)
    meta = json.loads((tmp_path / "client/checkpoint/round-000006/meta.json").read_text())
    assert all(file.startswith("../../clients/") for file in meta["files"] if "rows" not in file and "/" in file)
    assert not (tmp_path / "client/checkpoint/rows").exists()


@pytest.mark.parametrize("home", ["disk", "client"])
def test_an_interrupted_run_goes_on_to_the_same_bytes(toml, tmp_path, home):
    whole = run(toml, tmp_path / "whole", f"run.score_home={home}")

    class Stop(Exception):
        pass

    def stop(record):
        if record["round"] == 5:  # one round after a checkpoint
            raise Stop

    with pytest.raises((Stop, Interrupted)):
        run(toml, tmp_path / "cut", f"run.score_home={home}", on_round=stop)
    again = run(toml, tmp_path / "cut", f"run.score_home={home}", resume=True)
    assert again["params_sha256"] == whole["params_sha256"]


def test_a_damaged_row_file_is_seen(toml, tmp_path):
    def stop(record):
        if record["round"] == 5:
            raise KeyError

    with pytest.raises(KeyError):
        run(toml, tmp_path / "run", "run.score_home=disk", on_round=stop)
    newest = max((tmp_path / "run/checkpoint").glob("round-*"))
    meta = json.loads((newest / "meta.json").read_text())
    row = tmp_path / "run/checkpoint/rows" / next(iter(meta["rows"].values()))
    content = bytearray(row.read_bytes())
    content[-1] ^= 1
    row.write_bytes(content)
    warnings: list[str] = []
    run(toml, tmp_path / "run", "run.score_home=disk", resume=True, on_warning=warnings.append)
    assert any("does not have the recorded SHA-256" in text for text in warnings)


def test_an_earlier_state_keeps_its_rows(tmp_path):
    first = FileRows(tmp_path).put(1, torch.zeros(5))
    second = first.put(1, torch.ones(5))
    read = second.get(1)
    read.fill_(7.0)  # a reader's copy: the file does not change
    assert torch.equal(first.get(1), torch.zeros(5))
    assert torch.equal(second.get(1), torch.ones(5))


def test_a_row_file_that_ends_early_is_named(tmp_path):
    rows = FileRows(tmp_path).put(1, torch.zeros(50))
    path = tmp_path / rows.files[1].name
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"000001-000001.safetensors ends early, 2 scores are missing"):
        rows.revise(1, torch.zeros(50), lambda row, span: row)


MEMORY = """
import resource, sys, torch
from pathlib import Path
from fedfibos.scores.files import FileRows
size, initial = 8_000_000, torch.ones(8_000_000)
rows = FileRows(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for n in (0, 1, 0, 1):
    rows = rows.revise(n, initial, lambda row, span: row * 0.5)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_changing_a_row_takes_less_memory_than_a_row(tmp_path):
    done = subprocess.run([sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 32_000 * 0.75  # KiB; a row is 32 MB
