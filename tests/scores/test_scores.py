"""Score homes: the same run in each, files that never change under a reader, resume, damage, memory."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment
from fedfibos.methods import FedFIbOS
from fedfibos.scores import files as scores
from fedfibos.scores.files import FileRows
from fedfibos.scores.rows import MemoryRows
from fedfibos.scores.sixteen_bit import from_halves, to_halves
from fedfibos.simulation import Interrupted, simulate

EXPERIMENT = """
seed = 3
[data]
name = "digits"
[model]
name = "mlp"
options = { hidden = [16] }
[federation]
clients = 8
cohort = 4
rounds = 6
capacities = { "1.0" = 0.25, "0.5" = 0.25, "0.25" = 0.5 }
[method]
name = "fedfibos"
sharing = "client"
[local]
steps = 2
[evaluation]
every = 6
[run]
checkpoint_every = 4
"""


@pytest.fixture
def toml(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(EXPERIMENT)
    return path


def run(toml, out, *overrides, **options):
    return simulate(load_experiment(toml, overrides), out, **{"workers": 1, **options})


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
    meta = json.loads((tmp_path / "run/checkpoint/round-000004/meta.json").read_text())
    row = tmp_path / "run/checkpoint/rows" / next(iter(meta["rows"].values()))
    content = bytearray(row.read_bytes())
    content[-1] ^= 1
    row.write_bytes(content)
    warnings: list[str] = []
    run(toml, tmp_path / "run", "run.score_home=disk", resume=True, on_warning=warnings.append)
    assert any("does not have the recorded SHA-256" in text for text in warnings)


@pytest.mark.parametrize("block", [1, 3, 100])
def test_rows_in_files_are_rows_in_memory(tmp_path, monkeypatch, block):
    monkeypatch.setattr(scores, "BLOCK", block)
    files, memory = FileRows(tmp_path), MemoryRows()
    initial = torch.arange(7.0)
    for client in (4, 2, 4):

        def change(row, span):
            return row * 0.5 + torch.arange(10.0, 17.0)[span]

        files, memory = files.revise(client, initial, change), memory.revise(client, initial, change)
    files, memory = files.put(9, initial), memory.put(9, initial)
    assert files.clients() == memory.clients() == [2, 4, 9]
    for client in files.clients():
        assert torch.equal(files.get(client), memory.get(client))
        assert torch.equal(load_file(tmp_path / files.files[client].name)["row"], memory.get(client))
    assert files.get(0) is None


def test_two_bytes_a_score_keep_order_and_a_thousandth():
    """A code is the exponent and ten bits of fraction: 1.5 · 2⁻⁵⁰ is exact, 1 + 2⁻¹¹ is half way to 1 + 2⁻¹⁰."""
    exact = torch.tensor([0.0, 1.5 * 2.0**-60, 1.5 * 2.0**-50, 1.0, 1 + 2.0**-10, 8.0])
    assert torch.equal(from_halves(to_halves(exact)), exact)
    rounded = from_halves(to_halves(torch.tensor([1e-40, 1 + 2.0**-12, 1 + 2.0**-11, 1e9])))
    assert rounded.tolist() == [0.0, 1.0, 1 + 2.0**-10, 16 - 2.0**-7]
    scores = torch.randn(100_000, generator=torch.Generator().manual_seed(0)).mul_(4).sub_(16).exp_()
    kept = from_halves(to_halves(scores))
    assert float(((kept - scores).abs() / scores).max()) <= 2.0**-11
    assert torch.equal(kept[scores.argsort()], kept.sort().values)
    assert from_halves(to_halves(torch.tensor([-0.0]))).tolist() == [0.0]
    for bad in (-1e-9, math.nan):
        with pytest.raises(ValueError, match="two bytes hold scores of at least 0"):
            to_halves(torch.tensor([1.0, bad]))


@pytest.mark.parametrize("block", [3, 100])
def test_rows_of_two_bytes_are_rounded_rows(tmp_path, monkeypatch, block):
    monkeypatch.setattr(scores, "BLOCK", block)
    row = torch.randn(7, generator=torch.Generator().manual_seed(1)).square()
    rows = FileRows(tmp_path, score_bytes=2).put(1, row)
    assert torch.equal(rows.get(1), from_halves(to_halves(row)))
    changed = rows.revise(1, row, lambda old, span: old * 0.5)
    assert torch.equal(changed.get(1), from_halves(to_halves(row)) * 0.5)
    file = tmp_path / changed.files[1].name
    assert load_file(file)["row"].dtype == torch.uint16
    exact = replace(changed, score_bytes=4).revise(1, row, lambda old, span: old + 1e-3)
    assert torch.equal(exact.get(1), changed.get(1) + 1e-3)  # a folder may hold both


@pytest.mark.parametrize("home", ["disk", "client"])
@pytest.mark.parametrize("overrides", [(), ("method.prior=none",)])
def test_a_run_with_two_bytes_a_score_resumes_and_stays_near(toml, tmp_path, home, overrides):
    settings = (f"run.score_home={home}", "run.score_bytes=2", *overrides)

    def stop(record):
        if record["round"] == 5:
            raise KeyError

    with pytest.raises(KeyError):
        run(toml, tmp_path / "cut", *settings, on_round=stop)
    again = run(toml, tmp_path / "cut", *settings, resume=True)
    whole = run(toml, tmp_path / "whole", *settings)
    run(toml, tmp_path / "exact", f"run.score_home={home}", *overrides)
    assert again["params_sha256"] == whole["params_sha256"]
    sizes = [sum(f.stat().st_size for f in (tmp_path / run_).rglob("0*.safetensors")) for run_ in ("whole", "exact")]
    assert sizes[0] < 0.55 * sizes[1]


def test_two_bytes_a_score_need_files(toml):
    with pytest.raises(ExperimentError, match="score_bytes = 2 is for files"):
        load_experiment(toml, ["run.score_bytes=2"])


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


def test_changing_a_row_takes_less_memory_than_a_row(tmp_path):
    done = subprocess.run([sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 32_000 * 0.75  # KiB; a row is 32 MB


def test_the_server_of_per_client_scores_stores_the_prior_once():
    class Params:
        pass

    params = Params()
    params.flat, params.layout = torch.randn(6), Params()
    params.layout.num_maskable = 4
    assert FedFIbOS(sharing="client").init(params).tensors.keys() == {"prior"}
