"""Fields off the front of a payload."""

import pytest

from fedfibos.wire.payload import Reader, WireError


def test_fields_come_in_order_and_nothing_may_be_left():
    reader = Reader(b"\x01\x02\x00" + b"\x00\x00\x80\x3f" + b"rest")
    assert reader.unpack("<BH") == (1, 2)
    assert reader.floats(1).tolist() == [1.0]
    with pytest.raises(WireError, match=r"^the payload is 4 bytes too long$"):
        reader.end()
    assert bytes(reader.take(4)) == b"rest"
    reader.end()


def test_more_than_is_left_is_refused():
    with pytest.raises(WireError, match=r"^the payload is too short: 8 more bytes wanted, got 3$"):
        Reader(b"abc").floats(2)
