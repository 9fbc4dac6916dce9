"""What a model is trained for: a file a task, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping

from fedfibos.tasks.classification import Classification
from fedfibos.tasks.language_modelling import LanguageModelling
from fedfibos.tasks.multilabel import MultiLabel
from fedfibos.tasks.regression import Regression
from fedfibos.tasks.segmentation import Segmentation
from fedfibos.tasks.task import Metric, Task

TaskSettings = type[Classification | MultiLabel | Regression | Segmentation | LanguageModelling]
"""A frozen dataclass: its fields are the task's settings, ``task(targets, classes)`` gives the task on a data set."""

TASKS: Mapping[str, TaskSettings] = {
    "classification": Classification,
    "multilabel": MultiLabel,
    "regression": Regression,
    "segmentation": Segmentation,
    "language-modelling": LanguageModelling,
}

__all__ = ["TASKS", "Metric", "Task", "TaskSettings"]
