"""A user's own task: whatever goes wrong in its functions is one line that names the file and the line."""

from __future__ import annotations

from dataclasses import replace

from fedfibos.common.user_code import guard
from fedfibos.tasks.task import Task


def guarded_task(name: str, task: Task) -> Task:
    """The task with all its functions guarded, under the name that it goes by.

    Args:
        name: As the experiment names it, ``module:function``.
        task: The user's.
    """
    key = "task.name"
    return replace(
        task,
        loss=guard(key, name, task.loss),
        observe=guard(key, name, task.observe),
        metrics=tuple(replace(metric, value=guard(key, name, metric.value)) for metric in task.metrics),
        check=guard(key, name, task.check),
        check_targets=guard(key, name, task.check_targets),
        distance=None if task.distance is None else guard(key, name, task.distance),
        name=name,
    )
