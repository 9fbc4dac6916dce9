"""Classes of devices in their own units: memory, speed, seconds and bytes a round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedfibos.common.formatting import bytes_in
from fedfibos.common.validation import FieldError, check_name, checked, toml_text
from fedfibos.config.capacities import SHARES_TOLERANCE, counts

LONGEST = 24
"""Characters of a class's name, so that tables hold it."""


def _bytes(value: object) -> object:
    """A whole number of bytes, from a number or from text with a unit."""
    if isinstance(value, str):
        value = bytes_in(value)
    return int(value) if isinstance(value, float) and math.isfinite(value) else value


Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=1)]
Speed = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Device:
    """A class of devices, in its own units. What is not set does not limit it.

    Attributes:
        name: Name of the class, at most 24 characters.
        share: Share of the clients, in (0, 1]. The shares of all classes sum to 1.
        memory: Bytes that it has for a client's process beyond imports and torch's code (``200 MB``, or a number):
            messages, the model, local training.
        macs_per_second: Multiply-accumulate operations that it makes in a second of training; a step counts as three
            forward passes.
        examples_per_second: In place of that: examples a second when it trains the whole model. ``fedfibos plan
            --measure`` measures both.
        seconds: Seconds that a round's local training may take.
        bytes: Bytes that a round may send, down and up together, before compression (``20 MB``, or a number).
    """

    name: str
    share: Annotated[float, Field(gt=0, le=1)]
    memory: Bytes | None = None
    macs_per_second: Speed | None = None
    examples_per_second: Speed | None = None
    seconds: Speed | None = None
    bytes: Bytes | None = None

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > LONGEST or not self.name.isprintable():
            raise FieldError("name", f"name must be 1 to {LONGEST} printable characters, got {self.name[:40]!r}")
        if self.macs_per_second is not None and self.examples_per_second is not None:
            raise ValueError(f"device {self.name!r} must have macs_per_second or examples_per_second, got both")
        if self.seconds is not None and self.macs_per_second is None and self.examples_per_second is None:
            raise ValueError(
                f"device {self.name!r} has seconds = {self.seconds:g} and no speed: give it macs_per_second or "
                "examples_per_second (fedfibos plan --measure measures them)"
            )


def _classes(value: object) -> object:
    """Classes from an array of tables; a table of them by name is one too."""
    if isinstance(value, Mapping):
        value = [{"name": name, **of} if isinstance(of, Mapping) else of for name, of in value.items()]
    if not isinstance(value, list | tuple):
        raise ValueError(f"devices must be an array of tables, [[federation.devices]], got {toml_text(value)}")
    return tuple(of if isinstance(of, Device) else _class(of, place) for place, of in enumerate(value))


def _class(value: object, place: int) -> Device:
    """One class; what is wrong with it is said by its name."""
    name = value.get("name") if isinstance(value, Mapping) else None
    where = f"federation.devices.{name if isinstance(name, str) and name else place}"
    for key in value if isinstance(value, Mapping) else ():
        check_name(f"a key of {where}", key, [field.name for field in dataclasses.fields(Device)])
    device: Device = checked(Device, value, where)
    return device


Devices = Annotated[tuple[Device, ...], BeforeValidator(_classes)]


def check_devices(devices: tuple[Device, ...], num_clients: int) -> None:
    """Raise ValueError unless the classes can be dealt to that many clients, each of them to one at least."""
    names = [device.name for device in devices]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise FieldError("devices", f"devices must have different names, got {twice!r} twice")
    total = math.fsum(device.share for device in devices)
    if abs(total - 1.0) > SHARES_TOLERANCE:
        raise FieldError("devices", f"the shares of the devices must sum to 1, got {total:g}")
    for device, count in zip(devices, clients_of(devices, num_clients), strict=True):
        if count == 0:
            raise FieldError(
                "devices",
                f"every class of devices must get at least one client, got none for {device.name!r}: its share is "
                f"{toml_text(device.share)} of {num_clients} clients",
            )


def clients_of(devices: tuple[Device, ...], num_clients: int) -> tuple[int, ...]:
    """Number of clients of each class, by largest remainder (:func:`fedfibos.config.capacities.counts`)."""
    return counts({float(place): device.share for place, device in enumerate(devices)}, num_clients)


def device_tables(devices: tuple[Device, ...]) -> list[dict[str, Any]]:
    """The classes as tables of TOML, without what is not set."""
    return [{key: value for key, value in vars(device).items() if value is not None} for device in devices]
