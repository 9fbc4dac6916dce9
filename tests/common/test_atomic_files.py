"""A file is there whole or as it was before."""

import os

import pytest

from fedfibos.common.atomic_files import atomic_write, write_whole


def test_no_device_is_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is no regular file, wanted the name of a file to write"):
        write_whole(pipe, "text")
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_text_and_bytes_are_written_and_nothing_else_is_left(tmp_path):
    write_whole(tmp_path / "a.txt", "grün")
    write_whole(tmp_path / "b.bin", b"\x00\x01")
    assert (tmp_path / "a.txt").read_bytes() == "grün".encode()
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\x01"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.bin"]


def test_what_fails_half_way_leaves_the_file_as_it_was(tmp_path):
    write_whole(tmp_path / "a.txt", "before")

    def fail_half_way():
        with atomic_write(tmp_path / "a.txt") as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert (tmp_path / "a.txt").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
