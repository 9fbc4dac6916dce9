"""Bytes of the tensors that are alive at once while something runs, at most."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def peak_memory(run: Callable[[], object]) -> int:
    """Bytes at the peak: of every tensor that an operation gives while ``run`` runs, until nobody holds its memory.

    Memory that was there before counts from the first operation that gives a view of it or changes it. What an
    operation takes and gives back on its way (a convolution's buffers) is not seen.
    """
    watched = _Watched()
    with watched:
        run()
    return watched.peak


@dataclass(frozen=True)
class Lifetimes:
    """Which memory is there when, while something runs.

    Attributes:
        sizes: Bytes of each piece of memory, in the order in which they come.
        order: What happens, one after another: ``i``, piece i comes; ``~i``, it goes.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]


def lifetimes(run: Callable[[], object]) -> Lifetimes:
    """What :func:`peak_memory` counts, piece by piece."""
    watched = _Watched()
    with watched:
        run()
    return Lifetimes(tuple(watched.sizes), tuple(watched.order))


class _Watched(TorchDispatchMode):
    """Notes the memory of what operations give, and when it is released."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: dict[int, tuple[int, object]] = {}
        self.total = self.peak = 0
        self.sizes: list[int] = []
        self.order: list[int] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's switch: False, or it imports its compiler at the first operation, 50 MiB of it and seconds."""
        return False

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(given):
            if isinstance(leaf, Tensor):
                self._note(leaf)
        return given

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.alive:
            number = len(self.sizes)
            released = weakref.ref(storage, lambda _: self._release(key))
            self.alive[key] = number, released
            self.sizes.append(storage.nbytes())
            self.order.append(number)
            self.total += storage.nbytes()
            self.peak = max(self.peak, self.total)

    def _release(self, key: int) -> None:
        number, _ = self.alive.pop(key)
        self.order.append(~number)
        self.total -= self.sizes[number]
