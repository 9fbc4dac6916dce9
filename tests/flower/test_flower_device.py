"""Names of devices that torch cannot compute on are one line."""

import pytest

from fedfibos.flower.accelerator import device_named
from fedfibos.wire.payload import WireError


def test_the_processor_is_usable():
    assert device_named("cpu", "device").type == "cpu"


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "hpu", "privateuseone", "meta", ""])
def test_a_device_that_cannot_be_computed_on(name):
    with pytest.raises(
        WireError, match=rf"^federation\.device must be one that torch can use here, got '{name}': "
    ) as raised:
        device_named(name, "federation.device")
    assert "\n" not in str(raised.value)
