"""The passes over the parameters that a client of FedFIbOS costs: those that it makes, and the fewest that it must.

The first are seen by watching torch's operations in a round. The others are loops in C (``fused.c``), compiled here
with ``cc``.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from engine import METHODS, bare_rounds, engine_rounds
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from workloads import LR, Workload

from fedfibos import submodel
from fedfibos.backend import topk

LONG = 1_000_000
"""Elements from which on a tensor counts."""

STAGES = {
    "extract_submodel": "select",
    "gather": "start",
    "load": "start",
    "indicator": "start",
    "_Passes": "forward and backward",
    "FisherObserver": "observe",
    "move": "update of the step",
    "estimate": "estimate",
    "local_training": "update",
    "look_at": "look",
    "add": "sums",
    "federated_round": "the server's step",
}
"""A function of the library, or a class that is called -> what it is for; the innermost of them counts."""

UNREAD = ("copy_", "zero_", "fill_", "zeros", "ones", "empty")
"""Operations that do not read what they write."""

FREE = ("slice", "empty", "empty_like", "new_empty")
"""Operations that touch nothing."""

Key = tuple[str, str]


class Watched(TorchDispatchMode):
    """Notes (stage, operation) -> how often, bytes read and written, seconds of processor time; long tensors only."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[Key, list[float]] = {}
        self.apart = False

    def note(self, key: Key, read: float, written: float, seconds: float) -> None:
        """Add one pass."""
        row = self.seen.setdefault(key, [0.0, 0.0, 0.0, 0.0])
        self.seen[key] = [old + new for old, new in zip(row, (1, read, written, seconds), strict=True)]

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        clock = time.process_time()
        given = function(*args, **kwargs)
        seconds = time.process_time() - clock
        name = str(function.__name__).partition(".")[0]
        if self.apart or name in FREE:
            return given
        changed = [kwargs.pop("out")] if "out" in kwargs else list(args[:1]) if name.endswith("_") else []
        results, inputs = _long(given), _long([args, kwargs])
        owned = {tensor.untyped_storage().data_ptr() for tensor in _long(args)}
        if not changed and results and all(tensor.untyped_storage().data_ptr() in owned for tensor in results):
            return given  # a view
        read = inputs if name not in UNREAD else [t for t in inputs if not any(t is c for c in _long(changed))]
        written = _long(changed) or results
        if read or written:
            self.note((_stage(), name), _bytes(read), _bytes(written), seconds)
        return given

    @contextmanager
    def top_k(self) -> Iterator[None]:
        """See top-k as one pass: it goes through NumPy."""

        def timed(scores: Tensor, k: int, out: Tensor | None = None) -> Tensor:
            clock, self.apart = time.process_time(), True
            mask = topk.top_k(scores, k, out)
            self.apart = False
            self.note(("select", "top_k"), scores.nbytes, mask.nbytes, time.process_time() - clock)
            return mask

        submodel.top_k = timed  # type: ignore[attr-defined]
        try:
            yield
        finally:
            submodel.top_k = topk.top_k  # type: ignore[attr-defined]


def _long(values: Any) -> list[Tensor]:
    leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.numel() >= LONG]
    return list({id(leaf): leaf for leaf in leaves}.values())


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _stage() -> str:
    """What the calling code is for."""
    frame = sys._getframe(2)
    while frame is not None:
        name = type(frame.f_locals.get("self")).__name__ if frame.f_code.co_name == "__call__" else frame.f_code.co_name
        if name in STAGES:
            return STAGES[name]
        frame = frame.f_back  # type: ignore[assignment]
    return "other"


def client_passes(workload: Workload, rounds: int) -> list[dict[str, Any]]:
    """The passes of a round, for each client on average: bytes a parameter and milliseconds of processor time."""
    run, _ = engine_rounds(workload, METHODS["fedfibos"])
    size = sum(p.numel() for p in workload.module().parameters())
    for _ in range(2):  # from the third round on every coordinate has been observed
        run()
    watched = Watched()
    with watched.top_k(), watched:
        for _ in range(rounds):
            run()
    shares = rounds * workload.clients
    order = list(dict.fromkeys(STAGES.values()))
    return [
        {
            "stage": stage,
            "operation": operation,
            "times": round(times / shares, 2),
            "read": round(read / size / shares, 2),
            "written": round(written / size / shares, 2),
            "ms": round(1000 * seconds / shares, 3),
        }
        for (stage, operation), (times, read, written, seconds) in sorted(
            watched.seen.items(), key=lambda item: (order.index(item[0][0]), -item[1][3])
        )
    ]


def fewest_passes(workload: Workload, repeats: int) -> dict[str, Any]:
    """Milliseconds of each pass that a masked client needs, in C; and of those that the bare loop makes."""
    if (compiler := shutil.which("cc")) is None:
        return {"skipped": "a C compiler is needed, there is none"}
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "fused.so"
        source = Path(__file__).parent / "fused.c"
        flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, str(source), "-o", str(library), "-lm"], check=True)
        loops = ctypes.CDLL(str(library))
    calls = _calls(loops, workload.module())
    return {name: round(1000 * median(_seconds(call, repeats)), 3) for name, call in calls.items()}


def _calls(loops: ctypes.CDLL, module: torch.nn.Module) -> dict[str, Callable[[], object]]:
    size = sum(p.numel() for p in module.parameters())
    generator = torch.Generator().manual_seed(0)
    a, b, c, e = (torch.randn(size, generator=generator) for _ in range(4))
    scores = torch.randn(size, generator=generator).square()
    held, holders = torch.rand(size, generator=generator) > 0.5, torch.zeros(size, dtype=torch.uint8)
    mask, places, found = torch.empty_like(held), torch.empty(size, dtype=torch.int32), torch.empty(size)
    low, high = torch.quantile(scores[:: size // 100_000], torch.tensor([0.4965, 0.5035])).tolist()
    d, largest = ctypes.c_size_t(size), torch.zeros(1)

    def loop(name: str, *arguments: Any) -> Callable[[], object]:
        return lambda: getattr(loops, name)(*map(_as_c, arguments))

    return {
        "select_scores": loop("select_scores", scores, d, low, high, mask, places, found),
        "start": loop("start", a, held, b, c, d),
        "only_step": loop("only_step", e, a, c, held, LR, d),
        "step": loop("step", e, a, c, held, LR, d),
        "finish": loop("finish", b, c, d),
        "estimate": loop("estimate", e, held, 32.0, d),
        "look": loop("look", b, held, d, largest),
        "add": loop("add", c, b, d),
        "count": loop("count", holders, held, d),
        "bare: copy": lambda: c.copy_(a),
        "bare: update": lambda: c.add_(a, alpha=-LR),
    }


def _as_c(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_float(value) if isinstance(value, float) else value


def _seconds(call: Callable[[], object], repeats: int) -> list[float]:
    call()
    seconds = []
    for _ in range(10 * repeats):
        clock = time.process_time()
        call()
        seconds.append(time.process_time() - clock)
    return seconds


def passes(workload: Workload, repeats: int) -> dict[str, Any]:
    """Both, and a client's milliseconds in the bare loop."""
    bare = bare_rounds(workload)
    return {
        "bare_ms": round(1000 * median(_seconds(bare, repeats)) / workload.clients, 3),
        "made": client_passes(workload, 2 * repeats),
        "fewest": fewest_passes(workload, repeats),
    }
