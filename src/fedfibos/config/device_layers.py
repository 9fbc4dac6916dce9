"""Classes of devices in layers: a later layer replaces them, or sets some limits of theirs."""

from __future__ import annotations

from typing import Any

from fedfibos.common.validation import check_name


def devices_over(old: Any, new: Any) -> Any:
    """Classes of devices: those of a later layer alone, or the earlier ones where it sets but some limits of theirs."""
    if isinstance(old, list) and all(isinstance(of, dict) and "name" in of for of in old):
        known = {of["name"]: of for of in old}
    else:
        known = old if isinstance(old, dict) else {}
    if not isinstance(new, dict) or not all(isinstance(of, dict) for of in new.values()):
        return new
    if unknown := [name for name, of in new.items() if name not in known]:
        if known and not any("share" in of for of in new.values()):
            check_name("a class of federation.devices", unknown[0], known)
        return new
    if all("share" in of for of in new.values()):
        return new
    return {name: {**of, **new.get(name, {})} for name, of in known.items()}
