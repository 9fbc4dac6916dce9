"""The sections of an experiment: what each setting means and which values it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from fedfibos.common.user_code import find
from fedfibos.common.validation import did_you_mean, listed, nearest
from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.federation import Federation
from fedfibos.config.limits import CONFIG, LARGEST, Positive
from fedfibos.config.task import TaskChoice
from fedfibos.config.watched import Trackers, checked_metric
from fedfibos.data import DATA_SETS
from fedfibos.data import check_options as check_data_options
from fedfibos.data.forms.form import FORMS, form_of
from fedfibos.data.partition import Partition
from fedfibos.privacy.settings import Privacy
from fedfibos.scores.files import Bytes, Home
from fedfibos.server.settings import Server
from fedfibos.training import LocalTraining


def _check_data_name(name: str) -> None:
    """Raise ValueError for a name that is no data set of ours, no form with a path and no function of a module."""
    forms = ", ".join(f"'{form}:PATH'" for form in FORMS)
    before, colon, rest = name.partition(":")
    own = f"a file or folder as one of {forms}, or your own function as 'module:function'"
    if not colon and name not in DATA_SETS:
        raise ValueError(f"data.name must be {listed(DATA_SETS)}, {own}, got {name!r}{did_you_mean(name, DATA_SETS)}")
    if before.endswith(".py") and rest.isidentifier():
        raise ValueError(f"data.name must be {own}, got {name!r}; did you mean {before[:-3] + ':' + rest!r}?")
    if colon and before not in FORMS and not rest.isidentifier():
        near = nearest(before, FORMS)
        meant = f"; did you mean {f'{near}:{rest}'!r}?" if near else ""
        raise ValueError(f"data.name must be {own}, got {name!r}{meant}")


@dataclass(frozen=True, config=CONFIG)
class Data:
    """What the clients hold.

    Attributes:
        name: A key of :data:`fedfibos.data.DATA_SETS`; ``form:PATH`` for data as they lie, with one of the forms
            ``folder``, ``csv``, ``parquet``, ``npz``, ``leaf``, ``hf``; or your own: ``module:function``, which is
            called with the data folder (or None) and gives a :class:`fedfibos.data.Split`.
        partition: How the examples are dealt to the clients.
        options: Of the form, all of them after construction; or what your own function is called with, by name.
    """

    name: str = "digits"
    partition: Partition = Partition()
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_data_name(self.name)
        object.__setattr__(self, "options", check_data_options(self.name, self.options))

    def resolved(self) -> Data:
        """The same, once a user's own function is seen to be there.

        Raises:
            ValueError: It is not.
        """
        if form_of(self.name) is None:
            find("data.name", self.name, DATA_SETS)
        return self


@dataclass(frozen=True, config=CONFIG)
class Evaluation:
    """When and how accuracy is measured.

    Attributes:
        every: Rounds between evaluations; the last round is always evaluated.
        batch_size: Test examples at a time.
        submodel_clients: For methods whose submodels differ between clients of equal capacity: how many clients of each
            capacity are averaged, at most, for the global accuracy of submodels. None: all.
        recalibration_samples: Training examples that batch normalisation is recalibrated on.
        validation: Share of the training examples that no client gets and that accuracies are measured on, in place
            of the test set: for choosing hyperparameters. 0: the test set, for reporting.
    """

    every: Positive = 10
    batch_size: Positive = 500
    submodel_clients: Positive | None = None
    recalibration_samples: Annotated[int, Field(ge=2, le=LARGEST)] = 5000
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0


@dataclass(frozen=True, config=CONFIG)
class Checkpoints:
    """Which checkpoints are kept beside the last two.

    Attributes:
        best: A number of a round as ``final.json`` names it, such as ``local_accuracy.mean`` or
            ``global_accuracy.submodels.0.25``, or ``loss``: the checkpoint of the round where it is best is kept.
    """

    best: Annotated[str, AfterValidator(checked_metric)] | None = None


@dataclass(frozen=True, config=CONFIG)
class Run:
    """How the run is carried out; nothing here but ``score_bytes`` changes its result.

    Attributes:
        checkpoint_every: Rounds between checkpoints; the last round always leaves one.
        score_home: Where per-client scores live: ``memory``; ``disk``, a file a client in the server's checkpoint
            folder; ``client``, a file a client in a folder of the clients' own (a simulation plays both sides).
        score_bytes: Of a score in a file: 4 is exact; 2 halves the files and changes, on average, less than a
            thousandth of a selection (docs/explanation/evidence/performance.md).
        log: Trackers that draw the run's numbers: ``tensorboard``, ``wandb``, ``mlflow``, ``trackio``, or several. Each
            is an extra of this package, and stays on this machine where it can.
        client_records: Whether each round's line has every client's loss, seconds, bytes and memory, and
            ``clients.parquet`` the same as a table.
        cuda_graphs: With ``--device cuda``: clients train side by side, each on a stream of its own, and their steps
            are recorded as CUDA graphs. Experimental. Without it they train one after another, kernel by kernel.
    """

    checkpoint_every: Positive = 10
    score_home: Home = "memory"
    score_bytes: Bytes = 4
    log: Trackers = ()
    client_records: bool = False
    cuda_graphs: bool = False

    def __post_init__(self) -> None:
        if self.score_bytes == 2 and self.score_home == "memory":
            raise ValueError("score_bytes = 2 is for files, score_home = 'disk' or 'client', got 'memory'")


SECTIONS: Mapping[str, type[Any]] = {
    "data": Data,
    "task": TaskChoice,
    "model": ModelChoice,
    "federation": Federation,
    "method": MethodChoice,
    "local": LocalTraining,
    "server": Server,
    "evaluation": Evaluation,
    "run": Run,
    "checkpoint": Checkpoints,
    "privacy": Privacy,
}
"""The sections of an experiment file, in the order in which they are written."""

ABSENT = ("privacy",)
"""Sections that stand for nothing where a file has none, rather than for their defaults."""
