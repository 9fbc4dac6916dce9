"""Checkpoints: what is saved is loaded, damage is seen, the one before is used, old ones go."""

from __future__ import annotations

import errno
import json
import shutil

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from fedfibos.params import Params, layout_of
from fedfibos.runs import checkpoint as module
from fedfibos.runs import synced
from fedfibos.runs.checkpoint import Checkpoint, CheckpointStore, OtherModelError
from fedfibos.types import State

LAYOUT = layout_of(nn.Linear(3, 2))


def at(t: int, state: State | None = None) -> Checkpoint:
    params = Params(LAYOUT, torch.full((LAYOUT.size,), float(t)))
    return Checkpoint(t, params, state or State({"score": torch.arange(6.0) + t}))


def fail(text: str) -> None:
    raise AssertionError(f"unexpected warning: {text}")


def test_round_trip(tmp_path):
    state = State({"score": torch.arange(6.0)}).with_row(3, torch.ones(6)).with_row(1, torch.zeros(6))
    CheckpointStore(tmp_path).save(at(7, state))
    loaded = CheckpointStore(tmp_path).load_latest(LAYOUT, fail)
    assert loaded.round == 7
    assert torch.equal(loaded.params.flat, torch.full((LAYOUT.size,), 7.0))
    assert torch.equal(loaded.state.tensors["score"], torch.arange(6.0))
    assert loaded.state.rows.clients() == [1, 3]
    assert torch.equal(loaded.state.rows.get(3), torch.ones(6))


def test_nothing_saved_is_none(tmp_path):
    assert CheckpointStore(tmp_path).load_latest(LAYOUT, fail) is None


def test_only_the_last_two_and_their_rows_are_kept(tmp_path):
    store, state = CheckpointStore(tmp_path), State({"score": torch.zeros(6)})
    for t in range(1, 5):
        state = state.with_row(0, torch.full((6,), float(t)))
        state = state if 9 in state.rows.clients() else state.with_row(9, torch.ones(6))
        store.save(at(t, state))
    assert sorted(p.name for p in (tmp_path / "checkpoint").glob("round-*")) == ["round-000003", "round-000004"]
    rows = sorted(p.name for p in (tmp_path / "checkpoint" / "rows").iterdir())
    assert rows == ["000000-000003.safetensors", "000000-000004.safetensors", "000009-000001.safetensors"]


@pytest.mark.parametrize("name", ["params.safetensors", "state.safetensors", "meta.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path, name, damage):
    store = CheckpointStore(tmp_path)
    store.save(at(1))
    store.save(at(2))
    file = tmp_path / "checkpoint" / "round-000002" / name
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-3] ^= 0xFF
        file.write_bytes(content)
    elif damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()
    warnings: list[str] = []
    loaded = CheckpointStore(tmp_path).load_latest(LAYOUT, warnings.append)
    assert loaded.round == 1
    assert len(warnings) == 1
    assert warnings[0].startswith("checkpoint round-000002 is damaged")
    assert "\n" not in warnings[0]


def test_a_damaged_row_is_seen(tmp_path):
    store = CheckpointStore(tmp_path)
    state = State({"score": torch.zeros(6)}).with_row(0, torch.ones(6))
    store.save(at(1, state))
    store.save(at(2, state.with_row(0, torch.zeros(6))))
    file = tmp_path / "checkpoint" / "rows" / "000000-000002.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    warnings: list[str] = []
    assert CheckpointStore(tmp_path).load_latest(LAYOUT, warnings.append).round == 1
    assert len(warnings) == 1


def test_another_models_checkpoint_is_no_damage_to_pass_over(tmp_path):
    CheckpointStore(tmp_path).save(at(1))
    with pytest.raises(OtherModelError, match="round-000001 is of a model of 8 parameters, got one of 10"):
        CheckpointStore(tmp_path).load_latest(layout_of(nn.Linear(4, 2)), fail)
    held = layout_of(nn.Linear(3, 2), ["bias"])  # the same parameters in another order
    with pytest.raises(
        OtherModelError, match="round-000001 is of a model with other tensors, or with other parts held"
    ):
        CheckpointStore(tmp_path).load_latest(held, fail)


def test_a_copy_that_somebody_put_there_is_no_checkpoint(tmp_path):
    CheckpointStore(tmp_path).save(at(1))
    shutil.copytree(tmp_path / "checkpoint" / "round-000001", tmp_path / "checkpoint" / "round-000001.bak")
    assert CheckpointStore(tmp_path).load_latest(LAYOUT, fail).round == 1
    CheckpointStore(tmp_path).save(at(2))
    assert (tmp_path / "checkpoint" / "round-000001.bak").exists()


def test_a_half_written_checkpoint_is_not_a_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(at(1))
    partial = tmp_path / "checkpoint" / ".round-000002.tmp"
    partial.mkdir()
    (partial / "params.safetensors").write_bytes(b"half")
    assert CheckpointStore(tmp_path).load_latest(LAYOUT, fail).round == 1
    CheckpointStore(tmp_path).save(at(2))
    assert CheckpointStore(tmp_path).load_latest(LAYOUT, fail).round == 2


def test_no_space_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path)
    store.save(at(1))

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "sync_write", full)
    with pytest.raises(OSError, match="No space left"):
        store.save(at(2))
    assert [p.name for p in (tmp_path / "checkpoint").iterdir() if p.name != "rows"] == ["round-000001"]
    assert CheckpointStore(tmp_path).load_latest(LAYOUT, fail).round == 1


def test_a_disk_that_fills_up_under_the_tensors_is_an_os_error(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path)
    store.save(at(1))

    def full(tensors, path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(synced, "save_file", full)
    with pytest.raises(OSError, match=r"the one before it is kept: .*No space left on device"):
        store.save(at(2))
    assert CheckpointStore(tmp_path).load_latest(LAYOUT, fail).round == 1


def test_meta_names_every_file_with_its_digest(tmp_path):
    CheckpointStore(tmp_path).save(at(1, State({"score": torch.zeros(6)}).with_row(2, torch.ones(6))))
    meta = json.loads((tmp_path / "checkpoint" / "round-000001" / "meta.json").read_text())
    assert meta["files"].keys() == {"params.safetensors", "state.safetensors", "../rows/000002-000001.safetensors"}
    assert all(len(digest) == 64 for digest in meta["files"].values())


def test_a_row_that_is_damaged_between_checkpoints_is_not_taken_for_sound(tmp_path):
    """A checkpoint names the digest of what it wrote, not of what has become of the file."""
    store = CheckpointStore(tmp_path)
    state = State({"score": torch.zeros(6)}).with_row(0, torch.ones(6))
    store.save(at(1, state))
    file = tmp_path / "checkpoint" / "rows" / "000000-000001.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 0xFF
    file.write_bytes(content)
    store.save(at(2, state))
    warnings: list[str] = []
    assert CheckpointStore(tmp_path).load_latest(LAYOUT, warnings.append) is None
    assert [warning.split(" is")[0] for warning in warnings] == ["checkpoint round-000002", "checkpoint round-000001"]


def test_a_row_read_back_keeps_its_digest(tmp_path):
    state = State({"score": torch.zeros(6)}).with_row(0, torch.ones(6))
    CheckpointStore(tmp_path).save(at(1, state))
    store = CheckpointStore(tmp_path)
    store.save(at(2, store.load_latest(LAYOUT, fail).state))
    one, two = (
        json.loads((tmp_path / "checkpoint" / f"round-00000{t}" / "meta.json").read_text())["files"] for t in (1, 2)
    )
    row = "../rows/000000-000001.safetensors"
    assert one[row] == two[row]


def test_rounds_are_in_order_beyond_six_digits(tmp_path):
    store = CheckpointStore(tmp_path)
    for t in (999_998, 999_999, 1_000_000, 1_000_001):
        store.save(at(t))
    assert store.load_latest(LAYOUT, fail).round == 1_000_001
    assert sorted(path.name for path in (tmp_path / "checkpoint").glob("round-*")) == ["round-1000000", "round-1000001"]
