"""A network as an ExecuTorch program: XNNPACK computes what it can, portable operators the rest."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import Tensor, nn

from fedfibos.common.extras import extra
from fedfibos.common.inputs import Inputs
from fedfibos.export.tracing import ExportError, first_tensor, repeated, trace

MOST = 64
"""Examples at a time, at most, of a program for any number: its memory is planned when it is written."""

ABOUT = "about_"
"""What methods of the program are called that give its metadata: ``about_method``, ``about_widths``, ..."""


def write_pte(
    module: nn.Module, examples: Inputs, path: Path, about: dict[str, str], any_batch: bool, output: str
) -> Tensor:
    """Write a program, load it in ExecuTorch's own runtime, and give the outputs that it computes.

    Raises:
        ExportError: The network cannot be traced, or lowered.
    """
    with _quiet(), extra("executorch"):
        with _held_back():
            import executorch.exir  # noqa: F401 (first: its parts import each other)
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower
            from executorch.runtime import Runtime

        # Lowering a convolution that was traced on fewer than 16 examples allows at most 15.
        most = max(MOST, len(first_tensor(examples)))
        program = trace(module, repeated(examples, most) if any_batch else examples, any_batch, most)
        named = {f"{ABOUT}{key}": text for key, text in about.items()}
        try:
            lowered = to_edge_transform_and_lower(
                program, partitioner=[XnnpackPartitioner()], constant_methods=named
            ).to_executorch()
        except Exception as error:  # whatever a pass of the lowering stumbled over
            said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ExportError(f"the network cannot be lowered for ExecuTorch ({said[:300]})") from error
        path.write_bytes(lowered.buffer)
        given = [examples] if isinstance(examples, Tensor) else list(examples.values())
        with _held_back():
            method = Runtime.get().load_program(path).load_method("forward")
            (outputs,) = method.execute(given)
        answer: Tensor = outputs.clone()  # of memory that the program reuses
        return answer


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what other libraries warn of while they lower: deprecations in torch, kernels of other machines."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(max(before, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(before)


@contextmanager
def _held_back() -> Iterator[None]:
    """Without what the runtime, which is no Python, says of the processor; where it fails, that is shown after all."""
    try:
        kept = os.dup(2)
    except OSError:  # the process has no standard error
        yield
        return
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            with suppress(OSError):
                os.write(kept, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
