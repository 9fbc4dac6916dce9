"""Decoded images are kept, and never used in the place of others."""

from __future__ import annotations

import os

import pytest
import torch
from tiny_cifar import (
    TINY10,
    check_split,
    png,
    rows,
    write,
    write_parquet,
)


def test_decoded_images_are_kept_and_used(tmp_path, monkeypatch):
    source = write("parquet", tmp_path, TINY10)
    check_split(TINY10.read(source), TINY10)
    assert len(list((tmp_path / "cache" / "fedfibos").iterdir())) == 2
    monkeypatch.setattr("fedfibos.data.parquet._decode", None)
    check_split(TINY10.read(source), TINY10)


def test_a_changed_file_never_meets_an_old_result(tmp_path):
    source = write("parquet", tmp_path, TINY10)
    TINY10.read(source)
    stamp = (source / "train.parquet").stat()
    write_parquet(source, TINY10, image=[png(p) for p in rows(TINY10, 0)[0][::-1]])
    os.utime(source / "train.parquet", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    pixels = TINY10.read(source).train.pixels
    assert torch.equal(pixels, torch.from_numpy(rows(TINY10, 0)[0][::-1].copy()).view(-1, 3, 32, 32))


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100])
def test_a_damaged_result_is_decoded_again(tmp_path, damage):
    source = write("parquet", tmp_path, TINY10)
    TINY10.read(source)
    for kept in (tmp_path / "cache" / "fedfibos").iterdir():
        kept.write_bytes(damage)
    check_split(TINY10.read(source), TINY10)
    assert all(kept.stat().st_size > 3072 for kept in (tmp_path / "cache" / "fedfibos").iterdir())


def test_decoding_is_logged_the_one_time_that_it_is_done(tmp_path, caplog):
    source = write("parquet", tmp_path, TINY10)
    with caplog.at_level("INFO", "fedfibos"):
        TINY10.read(source)
        said = [record.getMessage() for record in caplog.records]
        TINY10.read(source)
    assert len(said) == len(caplog.records) == 4
    assert said[0].startswith("decoding train")
    assert said[1].startswith("kept for next time in ")


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    check_split(TINY10.read(write("parquet", tmp_path, TINY10)), TINY10)
