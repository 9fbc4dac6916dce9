"""How far selections by scores of two bytes differ from those by float32, on real scores.

One run of the CIFAR-10 study with per-client scores (``algorithm1``) keeps every row twice: in float32, which selects,
and in two bytes, rounded anew at every participation. Needs FEDFIBOS_DATA.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from fedfibos.backend.topk import top_k
from fedfibos.config.study import load_study
from fedfibos.params import Params
from fedfibos.round import federated_round, sample
from fedfibos.scores.files import FileRows
from fedfibos.scores.rows import MemoryRows
from fedfibos.simulation import build_world
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.workers import InProcess
from fedfibos.submodel import budget

STUDY = Path(__file__).parent.parent / "experiments" / "small" / "cifar10.toml"
CELL = ("split=high", "mix=non-uniform", "method=algorithm1", "seed=0")
ROUNDS = 300
CAPACITIES = (0.5, 0.25, 0.125, 0.0625)


@dataclass(frozen=True)
class Both:
    """Rows in float32, and the same rows as they would be in files of two bytes a score."""

    exact: MemoryRows
    halves: FileRows

    def get(self, client: int) -> Tensor | None:
        """The exact row."""
        return self.exact.get(client)

    def put(self, client: int, row: Tensor) -> Both:
        """Both replaced."""
        return Both(self.exact.put(client, row), self.halves.put(client, row))

    def revise(self, client: int, initial: Tensor, change: Callable[[Tensor, slice], Tensor]) -> Both:
        """Both changed, each from its own."""
        return Both(self.exact.revise(client, initial, change), self.halves.revise(client, initial, change))

    def clients(self) -> list[int]:
        """As of any store of rows."""
        return self.exact.clients()


def disagreement() -> dict[str, Any]:
    """Share of the coordinates in which the two selections differ, over clients, by capacity."""
    (run,) = load_study(STUDY, (), CELL).runs
    experiment = run.experiment
    world = build_world(experiment, device="cpu", data_dir=None, warn=print)
    model, method, population = world.model, world.method, world.population
    engine = InProcess(Setting(method, model, population.data, world.split.test, None, 500))
    params: Params = model.initial_params()
    with tempfile.TemporaryDirectory() as folder:
        rows: Any = Both(MemoryRows(), FileRows(Path(folder), score_bytes=2))
        state = replace(method.init(params), rows=rows)
        for t in range(ROUNDS):
            ids = sample(experiment.federation.clients, experiment.federation.cohort, experiment.seed, t)
            cohort = population.clients(ids, t)
            state, params, _ = federated_round(method, model, state, params, cohort, engine.train)
        found: dict[str, list[float]] = {f"{capacity:g}": [] for capacity in CAPACITIES}
        rows = state.rows
        for client in rows.clients():
            for capacity in CAPACITIES:
                k = budget(capacity, model.layout.num_maskable)
                one, other = top_k(rows.get(client), k), top_k(rows.halves.get(client), k)
                found[f"{capacity:g}"].append(float((one != other).double().mean()))
    return {
        "rounds": ROUNDS,
        "clients": len(rows.clients()),
        "scores": model.layout.num_maskable,
        "mean": {capacity: sum(shares) / len(shares) for capacity, shares in found.items()},
        "largest": {capacity: max(shares) for capacity, shares in found.items()},
    }
