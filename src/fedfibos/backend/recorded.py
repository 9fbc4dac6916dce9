"""A step that is run many times: on a GPU recorded once and replayed, without the cost of launching its kernels.

Many small clients are bound by launches: a ResNet-18's step is some hundred kernels of a few microseconds each. A
recording (a CUDA graph) launches all of them at once, and the processor is free to start the next client meanwhile.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from fedfibos.common.inputs import Inputs

Run = Callable[[Inputs, Tensor], None]
"""One step in place: (inputs, labels). What it changes must be tensors; Python runs it only until it is recorded."""

Recorder = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes a function of tensors down and returns what runs it again. Taking it down must not run it."""


LOG = logging.getLogger(__name__)

EXPERIMENTAL = "run.cuda_graphs is experimental: results/bench has no GPU's record of it (benchmarks/gpu.py makes one)"
"""Said of every run that records its steps, and nowhere else."""


class NotRecordableError(RuntimeError):
    """A step that a device cannot record: its Python waits for the device, or copies to it."""


class CudaRecorder:
    """Records into CUDA graphs, one after another, in one pool of memory.

    The last two recordings are kept alive. The device may still be running one when its client's code is over; and a
    recording that is freed takes the workspace of the matrix library's along, which the next one has written down.
    Nothing is recorded on the default stream, which cannot be. After a step that could not be recorded no other is
    tried: torch leaves the pool as if it were still recording.
    """

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.kept: list[torch.cuda.CUDAGraph] = []
        self.failed = False

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record on the current stream.

        Raises:
            NotRecordableError: The function does what a recording cannot hold. It has not run.
        """
        if self.failed:
            raise NotRecordableError
        del self.kept[:-1]
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # a collection could free another graph, which is not allowed meanwhile
        try:
            # torch.cuda.graph() would wait for the whole device first, and with it for all other clients.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                function()
            finally:
                graph.capture_end()
        except RuntimeError as error:
            self.failed = True
            self._let_go(graph)
            raise NotRecordableError(str(error.__context__ or error).partition("\n")[0]) from error
        finally:
            if collecting:
                gc.enable()
        self.kept.append(graph)
        replay: Callable[[], None] = graph.replay
        return replay

    def _let_go(self, graph: torch.cuda.CUDAGraph) -> None:
        """What torch leaves as it was in the middle of a recording that failed: the pool, and the random state."""
        self.kept.append(graph)  # the allocator still asks it
        device = torch.cuda.current_device()
        with suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(device, self.pool)
        generator = torch.cuda.default_generators[device]
        with suppress(RuntimeError, AttributeError):
            generator.graphsafe_set_state(generator.clone_state())


def recorder(device: torch.device) -> Recorder | None:
    """The recorder of a device, where it has one."""
    return CudaRecorder() if device.type == "cuda" else None


def can_record(device: torch.device) -> bool:
    """Whether the current stream can be recorded."""
    return device.type != "cuda" or torch.cuda.current_stream(device) != torch.cuda.default_stream(device)


class Replayed:
    """A step that is run as it is the first time, and recorded the second time that it gets inputs of that shape.

    The first time settles what a recording must not contain: kernels are chosen, optimiser state is made. Inputs of any
    other shape (a last, smaller batch; padded texts) are run as they are, and so is a step that draws random numbers
    (dropout): all recordings of a device share one random state, which those side by side would race for. What cannot
    be recorded is run as it is, with a warning.

    Args:
        run: The step.
        record: None: never record.
        changed: Whether the step has put other tensors in place of those that it works on: a recording would go on with
            the old ones.
    """

    def __init__(self, run: Run, record: Recorder | None, changed: Callable[[], bool] = lambda: False) -> None:
        self.run = run
        self.record = record
        self.changed = changed
        self.shape: object = None
        self.replay: Callable[[], None] | None = None
        self.inputs: Inputs
        self.labels: Tensor

    def __call__(self, inputs: Inputs, labels: Tensor) -> None:
        """One step."""
        shape = _shape(inputs, labels)
        if self.record is None or (self.shape is not None and shape != self.shape):
            self.run(inputs, labels)
        elif self.shape is None:
            self.shape = shape
            before = _random_states(labels.device)
            self.run(inputs, labels)
            if not all(map(torch.equal, before, _random_states(labels.device))) or self.changed():
                self.record = None
        else:
            if self.replay is None:
                self.inputs, self.labels = _copy(inputs), labels.clone()
                try:
                    self.replay = self.record(lambda: self.run(self.inputs, self.labels))
                except NotRecordableError as error:
                    if str(error):  # said once
                        LOG.warning("a training step cannot be recorded (%s); it is launched kernel by kernel", error)
                    self.record = None
                    return self.run(inputs, labels)
            else:
                _overwrite(self.inputs, inputs)
                self.labels.copy_(labels)
            self.replay()
        return None


def _random_states(device: torch.device) -> list[Tensor]:
    """Where the random streams are that a step may draw from: a draw on the CPU can decide what a device does."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _shape(inputs: Inputs, labels: Tensor) -> object:
    if isinstance(inputs, Tensor):
        return inputs.shape, labels.shape
    return {name: tensor.shape for name, tensor in inputs.items()}, labels.shape


def _copy(inputs: Inputs) -> Inputs:
    return inputs.clone() if isinstance(inputs, Tensor) else {name: tensor.clone() for name, tensor in inputs.items()}


def _overwrite(static: Inputs, inputs: Inputs) -> None:
    if isinstance(static, Tensor) and isinstance(inputs, Tensor):
        static.copy_(inputs)
    elif not isinstance(static, Tensor) and not isinstance(inputs, Tensor):
        for name, tensor in static.items():
            tensor.copy_(inputs[name])
