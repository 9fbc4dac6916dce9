"""A table of channel axes as the Python that writes it: to read what was derived, or to fill in what was not."""

from __future__ import annotations

from torch import nn

from fedfibos.channels.axes import Axes, Dimension, Part

HEAD = "def channel_axes(self):\n    return axes_table(\n        self,\n"


def table_text(module: nn.Module, axes: Axes | None) -> str:
    """A method ``channel_axes`` to paste into a module.

    Args:
        module: The model.
        axes: Its table; None gives a skeleton, in which every dimension of every parameter is still whole.

    Returns:
        Python. Tensors with nothing to slice are left out of a known table, as ``axes_table`` takes them for whole.
    """
    tensors = {**dict(module.named_parameters()), **(dict(module.named_buffers()) if axes is not None else {})}
    lines = []
    for name, tensor in tensors.items():
        entries = ["None"] * tensor.dim() if axes is None else [_entry(dim) for dim in axes.dims[name]]
        if axes is None or any(entry != "None" for entry in entries):
            comma = "," if len(entries) == 1 else ""
            lines.append(f"            {name!r}: ({', '.join(entries)}{comma}),  # {tuple(tensor.shape)}\n")
    sizes = {} if axes is None else dict(axes.sizes)
    classes = {} if axes is None else dict(axes.classes)
    return (
        f"from fedfibos import Part, axes_table\n\n\n{HEAD}"
        f"        sizes={_mapping(sizes, 'axis -> its number of channels')}\n"
        f"        dims={{\n{''.join(lines)}        }},\n"
        f"        classes={_mapping(classes, 'tensor -> the dimension that has an entry a class')}\n"
        "    )\n"
    ).replace("'", '"')


def _mapping(values: dict[str, int], meaning: str) -> str:
    """A dict over several lines; an empty one says what belongs into it."""
    if not values:
        return f"{{}},  # {meaning}"
    return "{\n" + "".join(f"            {name!r}: {value},\n" for name, value in values.items()) + "        },"


def _entry(dim: Dimension) -> str:
    """One dimension as ``axes_table`` takes it."""
    if all(part.axis is None for part in dim):
        return "None"
    if len(dim) == 1 and dim[0] == Part(dim[0].axis):
        return repr(dim[0].axis)
    parts = [_part(part) for part in dim]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _part(part: Part) -> str:
    more = [f"{name}={getattr(part, name)}" for name in ("before", "after") if getattr(part, name) != 1]
    return f"Part({', '.join([repr(part.axis), *more])})"
