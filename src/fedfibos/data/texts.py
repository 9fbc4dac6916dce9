"""Labelled texts, and the same as token ids in batches padded to their longest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedfibos.data.images import check_targets


@dataclass(frozen=True, eq=False)
class TextData:
    """Labelled texts as they were published; a model of text turns them into :class:`TokenData`.

    Attributes:
        texts: One string an example.
        labels: int64, shape ``(n,)``.
    """

    texts: tuple[str, ...]
    labels: Tensor

    def __post_init__(self) -> None:
        check_targets(self.labels, len(self.texts))

    def __len__(self) -> int:
        return len(self.texts)

    def batch(self, indices: Tensor, augment: torch.Generator | None = None) -> Tensor:
        """Texts are no numbers.

        Raises:
            ValueError: Always: they must be tokenised first.
        """
        raise ValueError("texts must be tokenised before they are a batch (fedfibos.models.encode)")

    def subset(self, indices: Tensor) -> TextData:
        """The examples at those positions, in that order."""
        return TextData(tuple(self.texts[i] for i in indices.tolist()), self.labels[indices])


@dataclass(frozen=True, eq=False)
class TokenData:
    """Labelled token ids, one text behind the other; a subset shares them and holds positions only.

    Attributes:
        ids: int32, shape ``(tokens,)``: the ids of all texts.
        starts: int64, shape ``(m + 1,)``: where each text begins; the last entry is the number of tokens.
        classes: int64, shape ``(m,)``: the class of each.
        pad: Id that fills a batch up; masked out.
        chosen: int64, shape ``(n,)``: positions among the m texts of those in this data set; None for all of them.
    """

    ids: Tensor
    starts: Tensor
    classes: Tensor
    pad: int
    chosen: Tensor | None = None

    def __post_init__(self) -> None:
        check_targets(self.classes, len(self.starts) - 1)

    @cached_property
    def labels(self) -> Tensor:
        """Class of every example; int64, shape ``(n,)``."""
        return self.classes if self.chosen is None else self.classes[self.chosen]

    def __len__(self) -> int:
        return len(self.classes) if self.chosen is None else len(self.chosen)

    def batch(self, indices: Tensor, augment: torch.Generator | None = None) -> dict[str, Tensor]:
        """``input_ids`` and ``attention_mask``; int64, shape ``(b, longest text of the batch)``.

        Args:
            indices: int64, shape ``(b,)``, positions in this data set.
            augment: Not used.
        """
        texts = indices if self.chosen is None else self.chosen[indices]
        first = self.starts[texts]
        lengths = self.starts[texts + 1] - first
        place = torch.arange(int(lengths.max()) if len(lengths) else 0)
        inside = place < lengths[:, None]
        ids = torch.full(inside.shape, self.pad, dtype=torch.int64)
        ids[inside] = self.ids[(first[:, None] + place)[inside]].long()
        return {"input_ids": ids, "attention_mask": inside.long()}

    def subset(self, indices: Tensor) -> TokenData:
        """The texts at those positions of this data set, in that order; no token is copied."""
        return replace(self, chosen=indices if self.chosen is None else self.chosen[indices])
