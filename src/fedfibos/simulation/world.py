"""An experiment's world before its first round: load the data, deal them, check what would fail later, build.

``run``, ``--dry-run``, ``sweep``, ``methods``, ``evaluate`` and the other commands on a finished run all begin here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import torch
from torch import nn

from fedfibos.analysis.accuracy import trained_norms
from fedfibos.analysis.cautions import cautions
from fedfibos.analysis.first_steps import first_step_cautions
from fedfibos.analysis.fitting import Work, examples_of, fits
from fedfibos.common.copies import uncompiled
from fedfibos.common.formatting import count_of
from fedfibos.common.inputs import Inputs, check_inputs, on_cpu
from fedfibos.common.norms import has_batch_norm, keeps_statistics
from fedfibos.common.streams import stream
from fedfibos.common.user_code import UserCodeError, is_own, naming
from fedfibos.common.validation import listed
from fedfibos.config.experiment import Experiment
from fedfibos.config.idle import idle
from fedfibos.data import Split, incomplete, load
from fedfibos.data.consistent import inconsistencies
from fedfibos.data.finite import check_finite
from fedfibos.data.forms.form import form_of
from fedfibos.data.forms.targets import CLASSES
from fedfibos.data.matching import matching_test_split, own_test_split, proportional_test_split
from fedfibos.data.partition import BY_CLASS, Scheme, partition
from fedfibos.data.split import check_parts, unseen_classes
from fedfibos.data.suspects import suspects
from fedfibos.method import Method
from fedfibos.model import Model, model_of
from fedfibos.models import build, check_module, check_test_inputs, encode, outputs_of
from fedfibos.models.extremes import check_extremes
from fedfibos.params import Params
from fedfibos.privacy.refusals import unused
from fedfibos.probes.bounds import bound_cautions
from fedfibos.probes.reach import unreached
from fedfibos.simulation.devices import fleet_of
from fedfibos.simulation.population import Parts, Population
from fedfibos.simulation.private import check_private
from fedfibos.simulation.setting import Setting
from fedfibos.steps.loss import check_local
from fedfibos.tasks import Task
from fedfibos.tasks.trial import pairing_cautions, try_task
from fedfibos.types import State

Warn = Callable[[str], None]


@dataclass(frozen=True)
class World:
    """Everything an experiment is made of, before its first round."""

    method: Method
    model: Model
    population: Population
    split: Split

    def __repr__(self) -> str:
        """Short: the data themselves would fill pages."""
        return (
            f"World({self.method}, {self.model.layout.size:,} parameters, {count_of(len(self.population), 'client')}, "
            f"{len(self.split.train):,} training and {len(self.split.test):,} test examples)"
        )

    def cautions(self, t: int, state: State, params: Params) -> list[str]:
        """What can be said, before round t is trained, of how this fleet will fare: one line each."""
        fleet = self.population.everyone(t)
        lines = cautions(self.method, self.model, state, params, fleet)
        if t == 0:
            told = unreached(self.model.module, self.model.example) if self.model.example is not None else ()
            lines += first_step_cautions(self.model, params, self.split.train, fleet[0], told)
            lines += [*inconsistencies(self.split), *suspects(self.split)]
        return lines


def build_world(
    experiment: Experiment, *, device: str = "cpu", data_dir: Path | None = None, warn: Warn = lambda text: None
) -> World:
    """Load the data, deal them, check what would fail later, build the model and the method.

    Raises:
        ValueError, FileNotFoundError: The data are not there or not what they should be; the experiment asks for
            something that cannot be; one line each.
    """
    lr = experiment.method.settings.get("server_lr")
    for line in [*idle(experiment), *experiment.server.cautions(lr)]:
        warn(line)
    split = load_split(experiment, data_dir, warn)
    train, test = first_batches(split)
    if torch.device(device).type != "cpu":
        split = split.to(torch.device(device))
    task = task_on(experiment, split)
    for line in unseen_classes(split) if task.classes else ():
        warn(line)
    population = deal(experiment, split, warn)
    made = initial_module(experiment, split, task, train)
    if (module := uncompiled(made)) is not made:
        warn("the model is trained as it is without torch.compile: each copy and each width would be compiled anew")
    check(experiment, split, task, population, module, train, test, warn)
    choice = experiment.model
    model = model_of(
        module,
        held=choice.held,
        whole=choice.whole,
        frozen_whole=choice.frozen_whole,
        example=train,
        device=device,
        channels_last=choice.channels_last,
        task=task,
    )
    method = experiment.build_method()
    check_private(experiment, method, model)
    for line in unused(experiment.privacy, method, model) if experiment.privacy is not None else ():
        warn(line)
    if experiment.federation.devices:
        found = fits(method, model, experiment.federation.devices, work_of(experiment, split, population))
        fleet = fleet_of(found, len(population), experiment.seed)
        for line in (*fleet.left_out(), *fleet.short_of(experiment.federation.cohort)):
            warn(line)
        population = population.with_fleet(fleet)
    return World(method, model, population, split)


def work_of(experiment: Experiment, split: Split, population: Population) -> Work:
    """What a client does in a round: of the one with the most examples, where epochs are trained."""
    local, largest = experiment.local, int(population.parts.sizes().max())
    first = split.train.subset(torch.arange(2))
    return Work(first, local, experiment.federation.budget, examples_of(local, largest))


def load_published(experiment: Experiment, data_dir: Path | None, warn: Warn) -> Split:
    """The data as they are published, with held-out training examples for the test set where the run wants that."""
    data = experiment.data
    wanted = CLASSES if form_of(data.name) is None else experiment.task.wanted()
    split = load(data.name, data_dir, data.options, wanted)
    for line in incomplete(split):
        warn(line)
    if experiment.evaluation.validation:
        split = split.validation(experiment.evaluation.validation, stream(experiment.seed, "validation"))
    return split


def load_split(experiment: Experiment, data_dir: Path | None, warn: Warn) -> Split:
    """The data as the model reads them, checked."""
    split = load_published(experiment, data_dir, warn)
    choice = experiment.model
    split = replace(
        split,
        train=encode(choice.name, split.train, choice.options),
        test=encode(choice.name, split.test, choice.options),
    )
    if len(split.train) < 2:
        raise ValueError(f"data set {split.name!r}: it must have at least 2 training examples, got {len(split.train)}")
    check_parts(split)
    check_finite(split, warn)
    return split


def task_on(experiment: Experiment, split: Split) -> Task:
    """The experiment's task on its data.

    Raises:
        ValueError: Targets, local training or data that are none of the task's.
    """
    task = experiment.task.build(split.train.labels, split.classes)
    with naming(f"task.name = {experiment.task.name!r}"):
        for what, data in (("training", split.train), ("test", split.test)):
            try:
                task.check_targets(data.labels)
            except UserCodeError:
                raise
            except ValueError as error:
                raise ValueError(f"data set {split.name!r}, {what} examples: {error}") from error
        if task.classes and not split.has_classes:
            raise ValueError(f"data set {split.name!r} must have classes, int64 of shape (n,), and name them")
    check_local(task, experiment.local)
    return task


def first_batches(split: Split) -> tuple[Inputs, Inputs]:
    """Two training and two test examples, on the CPU: the module is built and its channels are traced with them."""
    train = split.train.batch(torch.arange(2))
    test = split.test.batch(torch.arange(min(2, len(split.test))))
    check_inputs(f"data set {split.name!r}", train)
    check_inputs(f"data set {split.name!r}", test)
    return train, test


def deal(experiment: Experiment, split: Split, warn: Warn) -> Population:
    """Deal the data and the capacities.

    Raises:
        ValueError: The partition cannot be made (fewer examples than clients, more classes a client than there are).
    """
    federation, seed = experiment.federation, experiment.seed
    spec, labels = experiment.data.partition, split.train.labels
    if spec.scheme in BY_CLASS and not split.has_classes:
        others = [name for name in get_args(Scheme) if name not in BY_CLASS]
        raise ValueError(
            f"data.partition.scheme = {spec.scheme!r} deals by class, the targets of data set {split.name!r} are no "
            f"classes: choose {listed(others)}, or your own 'module:function'"
        )
    parts = partition(labels, spec, federation.clients, stream(seed, "partition"), split.owners)
    if spec.scheme == "natural" and split.owners is not None and split.test_owners is not None:
        test_parts = own_test_split(split.owners, parts, split.test_owners)
    elif not split.has_classes:
        test_parts = proportional_test_split(parts, len(split.test), stream(seed, "test split"))
    else:
        test_parts = matching_test_split(labels, parts, split.test.labels, stream(seed, "test split"))
    for clients, what in (
        (
            [n for n, part in enumerate(parts) if len(part) < experiment.local.batch_size],
            f"fewer examples than the batch size of {experiment.local.batch_size}; their batches are all they have",
        ),
        (
            [n for n, part in enumerate(test_parts) if len(part) == 0],
            "no test example of their own and are left out of local accuracy",
        ),
    ):
        if clients:
            warn(f"{clients_named(clients, len(parts))} have {what}")
    return Population(
        split.train,
        Parts(parts),
        Parts(test_parts),
        experiment.capacities(),
        experiment.local,
        federation.rounds,
        seed,
        federation.weighting,
        federation.budget,
        sampling="fixed" if experiment.privacy is None else experiment.privacy.sampling,
    )


def initial_module(experiment: Experiment, split: Split, task: Task, example: Inputs) -> nn.Module:
    """The experiment's module with its initial values."""
    choice = experiment.model
    return build(
        choice.name,
        num_classes=task.outputs or len(split.classes) or 1,
        input_shape=tuple(example.shape[1:]) if isinstance(example, torch.Tensor) else (),
        norm=choice.norm,
        seed=experiment.seed,
        **choice.options,
    )


def check(
    experiment: Experiment,
    split: Split,
    task: Task,
    population: Population,
    module: nn.Module,
    train: Inputs,
    test: Inputs,
    warn: Warn,
) -> None:
    """Refuse a module that could not be trained or evaluated, and warn of what it would do unasked.

    Raises:
        ValueError: In a line, now and not in the middle of a run.
    """
    with naming(f"model.name = {experiment.model.name!r}"):
        targets = split.train.labels[:2].cpu()
        check_module(module, train, lambda outputs: task.check(outputs, targets), experiment.seed)
        check_test_inputs(module, train, test)
        check_extremes(module, split)
    with naming(f"task.name = {experiment.task.name!r}"):
        try_task(task, outputs_of(module, train), targets)
    if is_own(experiment.task.name):
        few = torch.linspace(0, len(split.train) - 1, min(8, len(split.train))).long()
        outputs = outputs_of(module, on_cpu(split.train.batch(few)))
        for line in pairing_cautions(task, outputs, split.train.labels[few].cpu()):
            warn(line)
    for line in bound_cautions(module, train, split.train.labels) if task.gives == "values" else ():
        warn(line)
    if keeps_statistics(module):
        trained_norms(module)  # said before the first round, not at its evaluation
    if has_batch_norm(module) and experiment.local.batch_size == 1:
        raise ValueError("local.batch_size = 1: the model has batch normalisation, which wants at least 2 examples")
    alone = (population.parts.sizes() == 1).nonzero().flatten().tolist() if has_batch_norm(module) else []
    if alone:
        who = clients_named(alone, len(population))
        warn(f"{who} have one training example and are rejected each time: batch normalisation wants at least 2")


def clients_named(clients: Sequence[int], number: int) -> str:
    """``7 of 20 clients (ids 0, 1, 2, 3, 4, ...)``."""
    named = ", ".join(map(str, clients[:5])) + (", ..." if len(clients) > 5 else "")
    return f"{len(clients)} of {number} clients (ids {named})"


def setting_of(experiment: Experiment, world: World) -> Setting:
    """What trains and evaluates the experiment's clients needs to know."""
    calibration = None
    if keeps_statistics(world.model.module):
        calibration = world.population.calibration(experiment.evaluation.recalibration_samples)
    return Setting(
        world.method,
        world.model,
        world.population.data,
        world.split.test,
        calibration,
        experiment.evaluation.batch_size,
        world.population.class_priors(len(world.split.test), len(world.split.classes))
        if world.model.task.classes
        else None,
    )
