"""What trains and evaluates clients needs to know, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from fedfibos.analysis.accuracy import Trial, answers
from fedfibos.analysis.class_priors import ClassPriors
from fedfibos.method import Method
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.round import outcome_of
from fedfibos.server.report import measured
from fedfibos.submodel import Submodel
from fedfibos.types import Client, Dataset, Upload


@dataclass(frozen=True)
class Setting:
    """What a worker needs to know, once: all but the parameters and the jobs.

    Attributes:
        method: The method.
        model: Architecture, layout, device.
        client_data: Client id -> its training examples.
        test: The test set.
        calibration: Training examples for the statistics of batch normalisation; None without any.
        batch_size: Examples a forward pass in evaluation.
        priors: Class frequencies of the clients that test examples belong to.
    """

    method: Method
    model: Model
    client_data: Callable[[int], Dataset]
    test: Dataset
    calibration: Dataset | None
    batch_size: int
    priors: ClassPriors | None = None

    def train(self, params: Params, client: Client, submodel: Submodel) -> Upload | str:
        """Train one client; a client that cannot train gives the reason."""
        client = replace(client, data=self.client_data(client.id))
        return measured(lambda: outcome_of(self.method, self.model, params, client, submodel))

    def hits(self, params: Params, trial: Trial) -> Tensor:
        """Evaluate one submodel; see :func:`fedfibos.analysis.accuracy.answers`."""
        return answers(self.model, params, trial, self.test, self.batch_size, self.calibration, self.priors)
