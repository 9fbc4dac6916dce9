"""The methods, one file each, and their presets. This table is the whole lookup."""

from __future__ import annotations

from typing import Any

from fedfibos.method import Idle, Method
from fedfibos.methods import channels as _channels
from fedfibos.methods import fedbrb as _fedbrb
from fedfibos.methods import fedfibos as _fedfibos
from fedfibos.methods import fedrolex as _fedrolex
from fedfibos.methods import fiarse as _fiarse
from fedfibos.methods import heterofl as _heterofl
from fedfibos.methods.channels import FedFIbOSChannels
from fedfibos.methods.fedavg import FedAvg
from fedfibos.methods.fedbrb import FedBRB
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.methods.fedrolex import FedRolex
from fedfibos.methods.fiarse import FIARSE
from fedfibos.methods.heterofl import HeteroFL

METHODS: dict[str, type[Any]] = {
    "fedavg": FedAvg,
    "heterofl": HeteroFL,
    "fedrolex": FedRolex,
    "fedbrb": FedBRB,
    "fiarse": FIARSE,
    "fedfibos": FedFIbOS,
    "fedfibos-channels": FedFIbOSChannels,
}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "fedavg": {},
    "heterofl": _heterofl.PRESETS,
    "fedrolex": _fedrolex.PRESETS,
    "fedbrb": _fedbrb.PRESETS,
    "fiarse": _fiarse.PRESETS,
    "fedfibos": _fedfibos.PRESETS,
    "fedfibos-channels": _channels.PRESETS,
}
"""Method -> preset -> field values; fields given beside a preset override it."""

IDLE: dict[str, tuple[Idle, ...]] = {"fedfibos": _fedfibos.IDLE, "fedfibos-channels": _channels.IDLE}
"""Method -> settings of its own that change nothing because of others."""

__all__ = [
    "FIARSE",
    "IDLE",
    "METHODS",
    "PRESETS",
    "FedAvg",
    "FedBRB",
    "FedFIbOS",
    "FedFIbOSChannels",
    "FedRolex",
    "HeteroFL",
    "Method",
]
