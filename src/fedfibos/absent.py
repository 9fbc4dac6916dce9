"""The classifier's entries of classes that a client has no example of."""

from __future__ import annotations

import torch
from torch import Tensor

from fedfibos.model import Model
from fedfibos.params import Layout


def without_absent_classes(model: Model, layout: Layout, labels: Tensor) -> Tensor:
    """bool, shape ``(layout.size,)``: False on the classifier's entries of classes without an example.

    Args:
        model: Knows which dimensions are classes (from its axes).
        layout: The full layout, or that of a slice.
        labels: Classes of the client's examples.

    Raises:
        ValueError: The model's table of axes names no classes.
    """
    if not model.axes.classes:
        raise ValueError(
            "absent_labels = 'mask' needs the classifier's class rows, got a table of axes without classes"
        )
    held = torch.ones(layout.size, dtype=torch.bool)
    present = labels.unique().cpu()
    for name, view in zip(layout.names, layout.views(held), strict=True):
        if (dim := model.axes.classes.get(name)) is not None:
            absent = torch.ones(view.shape[dim], dtype=torch.bool)
            absent[present] = False
            view.index_fill_(dim, absent.nonzero().squeeze(1), False)
    return held
