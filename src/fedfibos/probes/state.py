"""State that a module keeps between calls, besides its parameters: buffers, and whatever Python holds."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from types import CellType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedfibos.common.inputs import Inputs, forward
from fedfibos.common.user_code import LIBRARIES
from fedfibos.params import is_normalisation
from fedfibos.probes.trial import TrialCopy

CALLS = 3
"""Calls of each mode whose outcomes must agree."""
MORE_CALLS = 10
"""Of a module that keeps something from each call, which may or may not matter."""
DEPTH = 3
"""Of containers in containers that are looked into."""
LARGE = 1000
"""Entries from which on a container is only counted, and a tensor not looked at."""

Seen = dict[str, tuple[bool, object]]
"""Where something lies -> whether it is state for certain (a number, a generator) once it changes, and what it is."""


def state_cautions(module: nn.Module, example: Inputs) -> list[str]:
    """A line for each thing by which calls of a module differ that have the same inputs, tensors and random numbers.

    Copies of it are called a few times under one seed, each time from the same parameters and buffers, in training and
    in evaluation. Neither the module nor any training step is touched.

    Args:
        module: Not changed and not run.
        example: A batch.
    """
    lines = [
        f"training changes the buffer {buffer!r} of the model, which no client keeps: every round and evaluation begin "
        "with its first value (statistics of normalisation layers alone are recomputed)"
        for buffer in changed_buffers(module, example)
    ]
    for training in (True, False):
        try:
            found = _kept(module, example, training)
        except Exception:  # what is wrong with the module is told where it is checked
            continue
        if found:
            return lines + found
    return lines


def changed_buffers(module: nn.Module, example: Inputs) -> list[str]:
    """Buffers other than statistics of normalisation that a forward pass in training changes.

    Every client begins with their first values, and evaluation keeps these: only statistics of normalisation are
    recomputed on training data.
    """
    try:
        trial = TrialCopy(module)
        before = {name: buffer.clone() for name, buffer in trial.module.named_buffers()}
        with torch.no_grad():
            trial.logits(example)
    except Exception:  # it needs more than two examples, say; training itself tells what is wrong
        return []
    return [
        name
        for name, buffer in trial.module.named_buffers()
        if not is_normalisation(trial.module.get_submodule(name.rpartition(".")[0]))
        and (name not in before or not torch.equal(buffer, before[name]))
    ]


def _kept(module: nn.Module, example: Inputs, training: bool) -> list[str]:
    """What calls in one mode keep from each other, in a line each."""
    trial, again = TrialCopy(module), TrialCopy(module)
    first = _call(trial, example, training)
    lines = [f"forward draws from {name}, which is seeded anew for every client here" for name in first.drawn]
    lines = [f"{line}; torch's random numbers are everywhere" for line in lines]
    calls, seen, uncertain = 1, first.seen, False
    certain: list[str] = []
    differs = not _alike(first.logits, _call(again, example, training).logits)
    while calls < CALLS or (uncertain and calls < MORE_CALLS and not differs and not certain):
        now = _call(trial, example, training)
        changed = [key for key in now.seen.keys() | seen.keys() if now.seen.get(key) != seen.get(key)]
        certain += [key for key in changed if key in now.seen and seen.get(key, (False, 0))[0] and key not in certain]
        uncertain = uncertain or bool(changed)
        differs = differs or not _alike(first.logits, now.logits)
        seen, calls = now.seen, calls + 1
    if certain or differs:
        where = f" ({', '.join(sorted(certain)[:3])})" if certain else ""
        lines.append(
            f"forward keeps state in Python from call to call{where}: what a client computes depends on the calls "
            "before it in its process, so results differ between numbers of workers, between machines and after a "
            "resumption; keep it in a buffer, and draw from torch's global random numbers"
        )
    return lines


class _Call:
    """What one call gave: its logits, which global streams it drew from, and what Python holds after it."""

    def __init__(self, logits: Tensor, drawn: list[str], seen: Seen) -> None:
        self.logits, self.drawn, self.seen = logits, drawn, seen


def _call(trial: TrialCopy, example: Inputs, training: bool) -> _Call:
    trial.put_back()
    drawn: list[str] = []

    def watched(module: nn.Module, inputs: Inputs) -> Tensor:
        before = _streams()
        logits = forward(module, inputs)
        drawn.extend(name for name, state in _streams().items() if state != before[name])
        return logits

    with torch.no_grad():
        logits = trial.logits(example, training=training, run=watched)
    return _Call(logits, drawn, dict(_seen_in(trial.module)))


def _streams() -> dict[str, object]:
    """Where the global random streams are that torch does not know."""
    return {"random": random.getstate(), "numpy.random": _comparable(np.random.get_state())}  # noqa: NPY002


def _comparable(state: Any) -> tuple[object, ...]:
    """A state of NumPy's older generator, whose words are an array."""
    return tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in state)


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two calls gave the same, to rounding."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)


_TORCHS = vars(nn.Module()).keys()


def _seen_in(module: nn.Module) -> Iterator[tuple[str, tuple[bool, object]]]:
    """What Python holds of a module: attributes of its parts and of their classes, globals that their forward names."""
    for name, part in module.named_modules():
        prefix = f"{name}." if name else ""
        for key, value in vars(part).items():
            if key not in _TORCHS:
                yield from _seen(f"{prefix}{key}", value, DEPTH)
        kind = type(part)
        function = getattr(kind.forward, "__code__", None)
        if function is None or function.co_filename.startswith(LIBRARIES):
            continue
        for key, value in vars(kind).items():
            if not key.startswith("__"):
                yield from _seen(f"{kind.__name__}.{key}", value, DEPTH)
        yield from _seen_by(f"{kind.__name__}.forward", kind.forward, DEPTH)


STATES: dict[type, Callable[[Any], object]] = {
    bool: repr,
    int: repr,
    float: repr,
    str: repr,
    count: repr,
    torch.Generator: lambda value: value.get_state().numpy().tobytes(),
    random.Random: lambda value: value.getstate(),
    np.random.Generator: lambda value: repr(value.bit_generator.state),
    np.random.RandomState: lambda value: _comparable(value.get_state()),
}
"""What is state once it changes: kind -> its value, in a form that can be compared later."""


def _seen(where: str, value: Any, depth: int) -> Iterator[tuple[str, tuple[bool, object]]]:
    """What a value is, in a form that can be compared later; nothing of what is no state."""
    as_compared = next((compared for kind, compared in STATES.items() if isinstance(value, kind)), None)
    if as_compared is not None:
        yield where, (True, as_compared(value))
    elif isinstance(value, Tensor | np.ndarray):
        if int(np.prod(value.shape)) < LARGE:
            yield where, (False, repr(value.tolist()))
    elif isinstance(value, list | tuple | deque | set | dict):
        yield where, (False, len(value))
        if depth and len(value) < LARGE:
            for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _seen(f"{where}[{key!r}]", entry, depth - 1)
    elif depth:
        yield from _seen_within(where, value, depth - 1)


def _seen_within(where: str, value: Any, depth: int) -> Iterator[tuple[str, tuple[bool, object]]]:
    """What a function or an object of the user's keeps."""
    if isinstance(value, FunctionType):
        if not value.__code__.co_filename.startswith(LIBRARIES):
            yield from _seen_by(where, value, depth)
    elif hasattr(value, "__dict__") and _is_users(type(value)):
        for key, entry in vars(value).items():
            yield from _seen(f"{where}.{key}", entry, depth)


def _seen_by(where: str, function: Any, depth: int) -> Iterator[tuple[str, tuple[bool, object]]]:
    """What a function of the user's keeps: variables around it, defaults, attributes, globals that it names."""
    code = function.__code__
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        if cell != CellType():
            yield from _seen(f"{where}.{key}", cell.cell_contents, depth)
    for at, default in enumerate(function.__defaults__ or ()):
        yield from _seen(f"{where}, default {at}", default, depth)
    for key, value in vars(function).items():
        yield from _seen(f"{where}.{key}", value, depth)
    for key in code.co_names:
        yield from _seen(key, function.__globals__.get(key), depth)


def _is_users(kind: type) -> bool:
    """Whether a class is written in a user's own file."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and not file.startswith(LIBRARIES) and not issubclass(kind, nn.Module)
