"""How often the client of a test example has which class: what is known without any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClassPriors:
    """How often the client that a test example belongs to has which class.

    Attributes:
        row: Which row of ``table`` is each test example's; int64, shape ``(n,)``.
        table: Log class frequencies, -inf where a client has none of a class; float32, shape ``(rows, classes)``.
    """

    row: Tensor
    table: Tensor

    @classmethod
    def of(cls, labels: Tensor, parts: Sequence[Tensor], owner: Tensor, num_classes: int) -> ClassPriors:
        """From training labels and what belongs to whom.

        Args:
            labels: Class of every training example; int64.
            parts: Positions in it, by client id.
            owner: The client of each test example, -1 for nobody's: zeros; int64, shape ``(n,)``.
            num_classes: C.
        """
        owners, row = owner.unique(return_inverse=True)
        table = torch.zeros(len(owners), num_classes)
        for number, client in enumerate(owners.tolist()):
            if client >= 0:
                counts = torch.bincount(labels[parts[client]], minlength=num_classes).float()
                table[number] = (counts / counts.sum()).log()
        return cls(row, table)
