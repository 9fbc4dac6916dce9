"""The methods, one file each, and their presets. This table is the whole lookup."""

from __future__ import annotations

from typing import Any

from fedfibos.methods import fedfibos as _fedfibos
from fedfibos.methods.fedavg import FedAvg
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.types import Method

METHODS: dict[str, type[Any]] = {
    "fedavg": FedAvg,
    "fedfibos": FedFIbOS,
}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "fedavg": {},
    "fedfibos": _fedfibos.PRESETS,
}
"""Method -> preset -> field values; fields given beside a preset override it."""

__all__ = ["METHODS", "PRESETS", "FedAvg", "FedFIbOS", "Method"]
