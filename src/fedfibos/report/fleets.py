"""Run directories of a Flower app, read as an experiment that a report can set beside others of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedfibos.common.formatting import first_line
from fedfibos.common.validation import checked
from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.experiment import Experiment
from fedfibos.config.federation import Federation
from fedfibos.config.limits import Seed
from fedfibos.config.sections import Data, Evaluation
from fedfibos.config.task import TaskChoice
from fedfibos.data.partition import Partition
from fedfibos.privacy.settings import Privacy
from fedfibos.runs.reading import RecordError
from fedfibos.server.settings import Server
from fedfibos.tasks import TASKS
from fedfibos.training import LocalTraining

DATA, MODEL = "flower:clients", "flower:app"
"""Names of what only the app and its clients know: their data, and the module."""

UNMEASURED: Mapping[str, Any] = {"jaccard": {}, "kept_shares": {}, "cv_f": None, "cv_magnitude": None}
"""What an evaluation lacks where the clients hold their scores."""


def is_fleet(settings: Mapping[str, Any]) -> bool:
    """Whether a ``config.toml`` is that of a Flower app: it names no model, which the app makes itself."""
    return "model" not in settings and "method" in settings and "federation" in settings


def fleet_experiment(settings: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]], where: str) -> Experiment:
    """What was run, with the clients that took part and the capacities that they last had.

    Args:
        settings: Of its ``config.toml``; the app's own keys (its table ``app``) tell problems apart.
        rounds: Lines of its ``rounds.jsonl``.
        where: The file, for messages.

    Raises:
        RecordError: It is no such experiment, or nobody took part in any round.
    """
    capacities: dict[str, float] = {}
    for record in rounds:
        capacities |= record.get("capacities", {})
    if not capacities:
        raise RecordError(f"{where}: the run of a Flower app in which nobody has taken part yet: nothing to report")
    levels = list(capacities.values())
    fleet = settings["federation"]
    own = settings.get("app", {})
    method = dict(settings["method"])
    try:
        return Experiment(
            data=Data(DATA, Partition("natural"), own),
            model=ModelChoice(MODEL, held=tuple(settings.get("held", ()))),
            federation=checked(
                Federation,
                {
                    "clients": len(capacities),
                    "cohort": min(fleet["cohort"], len(capacities)),
                    "rounds": fleet["rounds"],
                    **_growth(fleet, len(capacities)),
                    "capacities": {level: levels.count(level) / len(levels) for level in sorted(set(levels))},
                    "weighting": _weighting(fleet.get("weighting", "uniform"), capacities),
                    "budget": fleet.get("budget", ["parameters"]),
                },
                "federation",
            ),
            method=checked(MethodChoice, {"name": method.pop("name"), "settings": method}, "method"),
            local=checked(LocalTraining, settings.get("local", {}), "local"),
            evaluation=Evaluation(
                every=fleet.get("evaluate_every", 10), submodel_clients=fleet.get("submodel_clients")
            ),
            seed=checked(Seed, settings.get("seed", 0), "seed"),
            server=checked(Server, settings.get("server", {}), "server"),
            privacy=checked(Privacy, settings["privacy"], "privacy") if "privacy" in settings else None,
            task=TaskChoice(task) if (task := str(settings.get("task"))) in TASKS else TaskChoice(),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{where}: not the settings of a Flower app of this version: {first_line(error)}") from None


def _weighting(found: Any, capacities: Mapping[str, float]) -> Any:
    """The weighting; of a list the numbers of the clients that took part."""
    return [found[int(client)] for client in sorted(capacities, key=int)] if isinstance(found, list) else found


def _growth(fleet: Mapping[str, Any], clients: int) -> dict[str, int]:
    """How the cohort grew, as an experiment of so many clients may have it."""
    if "grow_from" not in fleet:
        return {}
    return {"grow_from": min(fleet["grow_from"], fleet["cohort"], clients), "grow_over": fleet["grow_over"]}
