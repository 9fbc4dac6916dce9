"""A client's task without the model's weights: what a device builds where the server sends the outline."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

from fedfibos.common.formatting import first_line
from fedfibos.common.unallocated import without_weights
from fedfibos.flower.task import FleetTask, OutlinedSettings, Settings
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel
from fedfibos.types import Client, State
from fedfibos.wire.model_outline import outline_of
from fedfibos.wire.outline import decode_outline, encode_outline

LOG = logging.getLogger("flwr")


def lean_task(make: Callable[[Settings], FleetTask], config: Settings, outline: bytes | None) -> FleetTask | None:
    """The task on a module without weights; None where there is no outline, or the app's model is not to be built so.

    Then the client builds the whole model, as the server does. The log of the device says why.

    Args:
        make: The app's.
        config: The run configuration.
        outline: From the server.

    Raises:
        WireError: The outline cannot be read.
    """
    if outline is None:
        return None
    known = decode_outline(outline)
    try:
        with without_weights(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*copying from a non-meta parameter")  # values are not wanted
            task = make(OutlinedSettings(config, known))
        if not task.model.has_values and task.untrained_sha256 != known.untrained:
            raise ValueError("its frozen weights or buffers are others than the server's")
    except Exception as error:
        LOG.info("the model is built whole: %s: %s", type(error).__name__, first_line(error))
        return None
    return task


class SentOutline:
    """The outline that the server sends beside its questions: where the method cuts channels, and nowhere else."""

    def __init__(self, task: FleetTask) -> None:
        self._task = task
        self._encoded: bytes | None = None

    def at_enrolment(self, state: State, params: Params) -> bytes | None:
        """What new clients are sent; None where a half of the model, as things stand, is no slice of it."""
        task = self._task
        if task.federation.scores == "client" or "memory" in task.federation.budget:
            return None  # those are masks; what a slice takes of memory is measured on the model
        half = Client(0, 0.5, 0, task.seed, task.local, budget=task.federation.budget)
        try:
            return self.beside(task.method.extract(task.model, state, params, half))
        except ValueError:  # the model cannot be cut, or not to a half: clients are told so when they have come
            return None

    def beside(self, submodel: Submodel) -> bytes | None:
        """What a submodel is sent with: the first slice and whatever follows it."""
        if self._encoded is None and submodel.widths is not None:
            task = self._task
            macs = "macs" in task.federation.budget or _counts(task.model)
            self._encoded = encode_outline(outline_of(task.model, untrained=task.untrained_sha256, macs=macs))
        return self._encoded


def _counts(model: Model) -> bool:
    """Whether operations of slices are known: a device may count its seconds by them, and has no weights to try."""
    try:
        model.macs  # noqa: B018 (remembered)
    except ValueError:
        return False
    return True
