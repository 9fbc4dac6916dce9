"""How much weight each coordinate has, summed over the clients that count as its holders."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfibos.types import Upload

MOST = torch.iinfo(torch.uint8).max


class Tally:
    """Sums of weights, coordinate by coordinate: float32, in the order in which they are added.

    As long as every weight is 1 the sums are whole numbers, the same in any order. Masks are then counted in bytes,
    which takes a sixth of the time.
    """

    def __init__(self, size: int, device: torch.device | None = None, total: Tensor | None = None) -> None:
        """Start from nothing, or from sums.

        Args:
            size: Number of coordinates.
            device: Where the sums lie.
            total: float32, shape ``(size,)``; changed in place.
        """
        self._size, self._device = size, device
        self._total = total
        self._counts: Tensor | None = None
        self._pending = 0  # masks in the counts
        self._whole = True

    @property
    def total(self) -> Tensor:
        """The sums so far, shape ``(size,)``; the next :meth:`add` changes them."""
        if self._counts is not None and self._pending:
            now = self._counts.to(torch.float32)
            self._total = now if self._total is None else self._total.add_(now)
            self._counts.zero_()
            self._pending = 0
        if self._total is None:
            self._total = torch.zeros(self._size, device=self._device)
        return self._total

    def add(self, upload: Upload, weight: float) -> None:
        """Add a weight on every coordinate that the upload counts as holding, of the first ``size``."""
        submodel, counted = upload.submodel, upload.counted
        self._whole &= weight == 1.0
        if self._whole and submodel.widths is None:
            self._count(submodel.held if counted is None else counted)
        elif counted is None:
            submodel.count_in(self.total, weight)
        else:
            submodel.add_to(self.total, counted[: self._size].to(torch.float32), weight)

    def _count(self, where: Tensor | None) -> None:
        if self._counts is None:
            self._counts = torch.zeros(self._size, dtype=torch.uint8, device=self._device)
        if self._pending == MOST:
            _ = self.total
        self._counts.add_(1 if where is None else where[: self._size].view(torch.uint8))
        self._pending += 1
