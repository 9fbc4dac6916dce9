"""Numbers as people write them."""

import re

import pytest

from fedfibos.common.formatting import bytes_in, bytes_text, short_text


def test_numbers_of_bytes():
    texts = ("3000000", "3MB", "3 MB", "1.5kB", ".5GB", "2.GB", "1KiB", "2MiB", "0.5GiB", "7B")
    wanted = (3e6, 3e6, 3e6, 1500, 5e8, 2e9, 1024, 2 * 1024**2, 2**29, 7)
    assert tuple(map(bytes_in, texts)) == wanted


@pytest.mark.parametrize("text", ["", "MB", "3 mb", "3Mb", "-3MB", "3MB/s", "1e6", "nan", "3 M", "3,000"])
def test_other_texts_are_one_line_with_examples(text):
    message = f"a number of bytes must be one such as 3000000, 3MB, 1.5GB or 512KiB, got {text!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bytes_in(text)


def test_short_texts_have_two_or_three_digits_whatever_the_size():
    numbers = (0, 7, 0.13, 0.0995, 0.0592, 0.00123, 4e-9, 9.996, 1234567, 999_600, 2.5e13, 4.5e20)
    wanted = ("0", "7", "0.13", "0.10", "0.059", "0.0012", "4e-09", "10.0", "1.23 M", "1.00 M", "25 T", "4.5e+20")
    assert tuple(map(short_text, numbers)) == wanted
    assert (bytes_text(1234567), bytes_text(12), bytes_text(4e20)) == ("1.23 MB", "12 B", "4e+20 B")
