"""Which metrics a record has, which way is better of each, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedfibos.common.formatting import percent

METRICS = "metrics"
"""Key of an evaluation and of ``final.json``: metric -> ``better`` and ``share``, the first one first."""

CLASSIFICATION: Mapping[str, Mapping[str, Any]] = {
    name: {"better": "higher", "share": True} for name in ("accuracy", "balanced_accuracy", "macro_f1")
}
"""Those of records that do not say, which are older than other tasks."""

WORDS = {
    "macro_f1": "macro F1",
    "auc": "AUC",
    "r2": "R²",
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "miou": "mean IoU",
    "iou": "IoU",
    "f1": "F1",
    "micro_f1": "micro F1",
}
"""Metric -> what it is called where its name alone would not do."""


@dataclass(frozen=True)
class Measure:
    """A metric as a record has it.

    Attributes:
        name: Its key.
        better: ``higher`` or ``lower``.
        share: Whether it is a share in [0, 1], written in %.
    """

    name: str
    better: str = "higher"
    share: bool = True

    @property
    def words(self) -> str:
        """What it is called: ``balanced accuracy``."""
        first, space, rest = self.name.partition(" ")  # of a class: its name follows
        return WORDS.get(first, first.replace("_", " ")) + space + rest

    @property
    def directed(self) -> str:
        """What it is called, and which way is better where that is not the usual one."""
        return self.words if self.better == "higher" else f"{self.words} (lower is better)"

    @property
    def heading(self) -> str:
        """With its unit, and with which way is better where that is not the usual one."""
        unit = " in %" if self.share else ""
        return f"{self.words}{unit}{'' if self.better == 'higher' else ' (lower is better)'}"

    @property
    def global_key(self) -> str:
        """Key of ``final.json``: on the whole test set, where the measure comes first."""
        return f"global_{self.name}"

    @property
    def local_key(self) -> str:
        """Key of ``final.json``: on the clients' own test examples, where the measure comes first."""
        return f"local_{self.name}"

    @property
    def scale(self) -> float:
        """What numbers are multiplied by where the unit stands elsewhere."""
        return 100.0 if self.share else 1.0

    @property
    def sign(self) -> int:
        """1 where higher is better, else −1."""
        return 1 if self.better == "higher" else -1

    def digits(self, value: float) -> int:
        """Decimals of a value in a table: one of a share in %; else four figures, and at most three decimals."""
        if self.share:
            return 1
        figures = len(str(int(abs(value)))) if abs(value) < 1e15 else 4
        return min(3, max(0, 4 - figures))

    def text(self, value: float | None) -> str:
        """A value for reading: ``81.2 %``, ``3.142``."""
        return percent(value) if self.share or value is None else f"{value:.4g}"

    def best(self, values: Iterable[float]) -> float:
        """The best of some."""
        return max(values) if self.better == "higher" else min(values)


ACCURACY = Measure("accuracy")


def measures_of(record: Mapping[str, Any]) -> tuple[Measure, ...]:
    """The metrics of an evaluation or of ``final.json``, the first one first."""
    found: Mapping[str, Any] = record.get(METRICS) or CLASSIFICATION
    return tuple(Measure(name, of["better"], of["share"]) for name, of in found.items())
