"""``final.json`` read back: what must be there of its first metric, whatever that is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from fedfibos.runs.measures import Measure, measures_of
from fedfibos.runs.reading import check
from fedfibos.runs.shapes import FINAL_SHAPE, FLEET_FINAL_SHAPE, Curve, Global, LocalBoth
from fedfibos.runs.stored import read_object


def read_final(path: Path, *, fleet: bool = False) -> dict[str, Any]:
    """The results of a run, with those of its first metric (:mod:`fedfibos.runs.measures`) in their places.

    Args:
        path: ``final.json``.
        fleet: Whether it is that of a Flower app, which may have none.

    Raises:
        RecordError: It is damaged.
    """
    final = read_object(path, FLEET_FINAL_SHAPE if fleet else FINAL_SHAPE)
    first = measures_of(final)[0]
    check(str(path), final, _shape(first, fleet))
    return final


def _shape(first: Measure, fleet: bool) -> TypeAdapter[Any]:
    """What must be there of a metric."""
    whole, own = Global[Curve], LocalBoth[Curve]
    keys = {
        first.global_key: NotRequired[whole] if fleet else whole,
        first.local_key: NotRequired[own] if fleet else own,
    }
    return TypeAdapter(TypedDict("Measured", keys))  # type: ignore[operator]
