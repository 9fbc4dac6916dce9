"""Numbers as people write them."""

import re

import pytest

from fedfibos.common.formatting import bytes_in


def test_numbers_of_bytes():
    texts = ("3000000", "3MB", "3 MB", "1.5kB", ".5GB", "2.GB", "1KiB", "2MiB", "0.5GiB", "7B")
    wanted = (3e6, 3e6, 3e6, 1500, 5e8, 2e9, 1024, 2 * 1024**2, 2**29, 7)
    assert tuple(map(bytes_in, texts)) == wanted


@pytest.mark.parametrize("text", ["", "MB", "3 mb", "3Mb", "-3MB", "3MB/s", "1e6", "nan", "3 M", "3,000"])
def test_other_texts_are_one_line_with_examples(text):
    message = f"a number of bytes must be one such as 3000000, 3MB, 1.5GB or 512KiB, got {text!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bytes_in(text)
