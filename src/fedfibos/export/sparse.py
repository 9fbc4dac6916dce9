"""Tensors of which most values are zero, in a safetensors file that does not store the zeros.

A tensor ``NAME`` that is smaller so lies in the file as two: ``NAME.held``, a bit a value in row-major order (uint8,
least significant bit first, 1 where the value is not zero), and ``NAME.values``, those values. All others lie there as
they are. The metadata's key ``sparse`` is JSON, name -> shape, of the tensors that were split.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor


def write_sparse(tensors: Mapping[str, Tensor], path: Path, about: Mapping[str, str] | None = None) -> None:
    """Write named tensors, each in the smaller of its two forms.

    Args:
        tensors: Name -> tensor on the CPU.
        path: The file.
        about: Further metadata.
    """
    shapes, written = {}, {}
    for name, tensor in tensors.items():
        held = (tensor != 0).flatten()
        saved = (held.numel() - int(held.count_nonzero())) * tensor.element_size()
        if saved > math.ceil(held.numel() / 8):
            shapes[name] = list(tensor.shape)
            written[f"{name}.held"] = torch.from_numpy(np.packbits(held.numpy(), bitorder="little"))
            written[f"{name}.values"] = tensor.flatten()[held]
        else:
            written[name] = tensor.contiguous()
    save_file(written, path, {**(about or {}), "sparse": json.dumps(shapes)})


def read_sparse(path: Path) -> dict[str, Tensor]:
    """The tensors of such a file, whole again: a state dict for ``load_state_dict(..., strict=False)``.

    Not strict where tensors are tied: one that a module has under several names is written once.
    """
    with safe_open(path, "pt") as file:
        shapes: dict[str, list[int]] = json.loads(file.metadata()["sparse"])
        pieces = {f"{name}.{piece}" for name in shapes for piece in ("held", "values")}
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys() if name not in pieces}  # noqa: SIM118
        for name, shape in shapes.items():
            bits = np.unpackbits(file.get_tensor(f"{name}.held").numpy(), count=math.prod(shape), bitorder="little")
            values = file.get_tensor(f"{name}.values")
            whole = torch.zeros(math.prod(shape), dtype=values.dtype)
            whole[torch.from_numpy(bits).bool()] = values
            tensors[name] = whole.reshape(shape)
    return tensors
