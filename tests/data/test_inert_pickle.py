"""Pickles are read without executing anything in them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from tiny_cifar import (
    TINY10,
    one_line,
    python2_array,
    python2_dict,
    python_files,
    rows,
    write_folder,
)

from fedfibos.data.inert_pickle import read_pickled_dict


def test_a_python3_pickle_of_the_same_dictionary_is_read_too():
    pixels = rows(TINY10, 1)[0]
    content = read_pickled_dict(pickle.dumps({b"data": pixels, "labels": [1]}, protocol=4), "here")
    assert np.array_equal(content["data"], pixels)
    assert content["labels"] == [1]


class Harm:
    """Unpickles to a call of ``os.mkdir``."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_is_refused_and_not_executed(tmp_path, protocol):
    target = tmp_path / "made-by-the-pickle"
    content = pickle.dumps({"data": Harm(target)}, protocol=protocol)
    source = write_folder(tmp_path / TINY10.python_folder, {**python_files(TINY10), "test_batch": content})
    with pytest.raises(ValueError, match=r"test_batch.*names (posix|nt)\.mkdir") as caught:
        TINY10.read(source)
    one_line(caught)
    assert not target.exists()
    pickle.loads(content)  # the same bytes do execute when they are allowed to
    assert target.is_dir()


@pytest.mark.parametrize(
    "program",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\n__builtins__\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dtype\x93.",
        b"cfedfibos.data.inert_pickle\nio.open\n.",
        b"Pid\n.",
        b"(dS'data'\ncnumpy\nndarray\n(I1\ntbs.",
    ],
)
def test_a_pickle_can_name_nothing_else(program):
    with pytest.raises(ValueError, match=r"^here: must be a pickle of plain values and arrays") as caught:
        read_pickled_dict(program, "here")
    one_line(caught)


@pytest.mark.parametrize(
    "array",
    [
        python2_array(np.zeros((2, 3), np.uint8)).replace(b"J\x02\x00\x00\x00", b"J\x03\x00\x00\x00"),
        python2_array(np.zeros((2, 3), np.uint8)).replace(b"U\x02u1", b"U\x02O8"),
        python2_array(np.zeros((2, 3), np.uint8)).replace(b"\x89T", b"\x88T"),
    ],
    ids=["more rows than bytes", "objects", "column-major"],
)
def test_an_array_that_is_not_plain_bytes_is_refused(array):
    with pytest.raises(ValueError, match=r"^here: must hold row-major uint8 arrays") as caught:
        read_pickled_dict(python2_dict({"data": array}), "here")
    one_line(caught)
