"""Files on the disk, and their digests."""

import hashlib

import pytest
import torch
from safetensors.torch import load_file

from fedfibos.runs.synced import remove, sha256_of, sync_folder, sync_write, write_tensors


def test_tensors_are_written_with_the_digest_of_the_file(tmp_path):
    path = tmp_path / "a.safetensors"
    digest = write_tensors({"x": torch.arange(6.0).view(2, 3).T}, path)
    assert load_file(path)["x"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert digest == sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_bytes_replace_what_was_there(tmp_path):
    sync_write(tmp_path / "a", b"long before")
    sync_write(tmp_path / "a", b"now")
    sync_folder(tmp_path)
    assert (tmp_path / "a").read_bytes() == b"now"
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "missing")


def test_a_folder_a_file_or_nothing_is_removed(tmp_path):
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("folder", "link", "missing"):
        remove(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
