"""Memory of a client's process as the operating system counts it: an upper bound, from what is known before it runs.

What is added up was fitted to fresh processes of ``benchmarks/device_memory.py``, and raised above all of them.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import torch
from torch.nn import functional

from fedfibos.backend.resident import peak_resident
from fedfibos.model import Model
from fedfibos.submodel import Submodel

MIB = 2**20

BESIDE = 16 * MIB
"""Flower's threads, Python's objects, small buffers: up to 11 MiB were seen."""

WITHIN = 1.25
"""Tensors that are alive, and buffers within operations and what the allocator leaves between them."""

WHOLE, DERIVED = 4, 6
"""Copies of the whole model where a client builds it: its values, those of the method's state, those at work; and those
that finding its axes takes."""

IMPORTS, FLOWER = 360 * MIB, 64 * MIB
"""Resident memory after imports and a step where it cannot be measured; of Flower's, where Flower is not installed."""

_IMPORTS = """
import fedfibos.local
missing = 0
try:
    import flwr.supernode.runtime.run_clientapp, fedfibos.flower.client_app
except ImportError:
    missing = 1
from fedfibos.analysis.process_memory import now_resident
print(missing, now_resident(0))
"""


def process_memory(before: int, tensors: int, down: int, up: int, building: int) -> int:
    """Bytes that are resident at most in a client's process, from its start to its answer.

    A client that builds the module without its weights has let the message's pieces go when it trains, and its
    gradients when it writes its answer. There the answer lies as values, encoded, in one piece and in several.

    Args:
        before: Resident before the message is read: the interpreter, imports, torch's code of a step, the client's
            examples.
        tensors: Alive at once in local training, at most (:func:`~fedfibos.backend.memory.peak_memory`).
        down: Bytes of the message; it lies there in pieces and in one, and its values beside it.
        up: Bytes of the answer.
        building: Bytes that the model itself takes; see :func:`to_build`.
    """
    if building == 0:
        return before + BESIDE + max(int(WITHIN * tensors) + down, 2 * down + 4 * up)
    return before + BESIDE + int(WITHIN * (tensors + down)) + 2 * down + up + building


def to_build(model: Model, submodel: Submodel, whole: bool | None = None) -> int:
    """Bytes that a client of a submodel takes to build the model; none, but for its slice, without the weights.

    Args:
        model: The model.
        submodel: What the client holds. Of a mask it always builds the whole model.
        whole: Whether the client of a slice does so too, and does not build the module without its weights
            (:mod:`fedfibos.flower.lean`); None: as one with frozen weights makes it.
    """
    module = model.module
    size = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
    if submodel.widths is None:
        return 0 if whole is False else WHOLE * size
    if whole is None:
        whole = any(not parameter.requires_grad for parameter in module.parameters())
    return DERIVED * size if whole else 0


@cache
def after_imports() -> int:
    """Bytes resident in a fresh process of this Python's that has imported what a client does, and made a step."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True, timeout=120
        ).stdout.split()
        missing, peak = map(int, done[-2:])
    except (OSError, subprocess.SubprocessError, ValueError):
        return IMPORTS
    return peak + missing * FLOWER if peak else IMPORTS


def now_resident(unknown: int = IMPORTS) -> int:
    """Bytes that were resident in this process at most, up to now, torch's code of a step included.

    Args:
        unknown: What is said where the system does not say.
    """
    _small_step()
    return peak_resident() or unknown


def _small_step() -> None:
    """A step of a tiny network: how much of torch's code is resident then depends on how the system reads files."""
    ones, zeros = torch.ones(8), torch.zeros(8)
    weights = [torch.ones(8, 3, 3, 3), torch.ones(8), torch.ones(4, 8)]
    for weight in weights:
        weight.requires_grad_()
    hidden = functional.conv2d(torch.ones(2, 3, 8, 8), weights[0], padding=1)
    hidden = functional.batch_norm(hidden, zeros, ones, weights[1], zeros, training=True).relu()
    logits = functional.linear(hidden.mean((2, 3)), weights[2])
    loss = functional.cross_entropy(logits, torch.zeros(2, dtype=torch.int64))
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        torch._foreach_add_(weights, gradients, alpha=-0.1)
