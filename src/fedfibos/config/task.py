"""Which task an experiment trains for, and its settings; the user's own too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic.dataclasses import dataclass
from torch import Tensor

from fedfibos.common.user_code import find, is_own, naming
from fedfibos.common.validation import ExperimentError, check_name, checked
from fedfibos.config.choices import field_names
from fedfibos.config.limits import CONFIG
from fedfibos.data.forms.targets import CLASSES, Wanted
from fedfibos.tasks import TASKS, Task
from fedfibos.tasks.own import guarded_task


@dataclass(frozen=True, config=CONFIG)
class TaskChoice:
    """What the model is trained for.

    Attributes:
        name: A key of :data:`fedfibos.tasks.TASKS`, or your own: ``module:name``, a :class:`fedfibos.tasks.Task` or a
            function that gives one; it is called with the settings, by name.
        settings: Of a task of ours, all of them after construction.
    """

    name: str = "classification"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if is_own(self.name):  # see ``resolved``: a record is read without its user's code
            return
        check_name("task.name", self.name, TASKS)
        task = TASKS[self.name]
        for key in self.settings:
            check_name(f"a setting of task {self.name}", key, field_names(task))
        settings = dataclasses.asdict(checked(task, dict(self.settings), "task"))
        object.__setattr__(self, "settings", settings)

    def resolved(self) -> TaskChoice:
        """The same, once a user's own task is seen to be there.

        Raises:
            ExperimentError: It is not.
        """
        if is_own(self.name):
            found = find("task.name", self.name, TASKS, Task)
            if isinstance(found, Task) and self.settings:
                key = next(iter(self.settings))
                raise ExperimentError(f"{self.name} is a value and has no settings, got {key}", f"task.{key}")
        return self

    def wanted(self) -> Wanted:
        """What the task wants as targets of data that lie in files."""
        if is_own(self.name):
            return CLASSES if self._own().classes else Wanted("any", self.name)
        return Wanted(TASKS[self.name].targets, self.name, self.settings.get("ignore", -100))

    def build(self, targets: Tensor, classes: tuple[str, ...]) -> Task:
        """The task on a data set.

        Args:
            targets: Of its training examples.
            classes: Names of its classes; empty where it has none.

        Raises:
            ValueError: The task is not one of these data, or a user's own gives none; one line.
        """
        if is_own(self.name):
            return self._own()
        chosen = TASKS[self.name](**self.settings)
        with naming(f"task.name = {self.name!r}"):
            if chosen.needs_classes and not classes:
                raise ValueError("the data set must name its classes (Split.classes), it names none")
            return chosen.task(targets, classes)

    def _own(self) -> Task:
        found: Any = find("task.name", self.name, TASKS, Task)
        made = found if isinstance(found, Task) else found(**self.settings)
        if not isinstance(made, Task):
            got = type(made).__name__
            raise ValueError(f"task.name = {self.name!r}: it must be or give a fedfibos.tasks.Task, got {got}")
        return guarded_task(self.name, made)
