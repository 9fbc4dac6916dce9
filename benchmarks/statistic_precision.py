"""What half the bytes of the Fisher estimate do to the selection: bfloat16 and float16 against float32.

For every seed: the digits experiment in float32, and beside it, on the same parameters and uploads, the score that the
server would hold had the estimates travelled in fewer bits: Jaccard similarity of the two selections after every round.
And the experiment run with such estimates from the start: accuracies at the end.

Run: python benchmarks/statistic_precision.py results/flower/precision.json
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

from fedfibos.analysis.accuracy import answers, evaluate
from fedfibos.analysis.theory import jaccard
from fedfibos.config.experiment import load_experiment
from fedfibos.params import Layout
from fedfibos.round import merge, run_in_turn, sample, submodels
from fedfibos.runs.environment import commit, cpu_model
from fedfibos.simulation import World, build_world
from fedfibos.submodel import Mask, mask_from_scores
from fedfibos.types import Client, Upload
from fedfibos.wire.payload import Reader
from fedfibos.wire.precision import Precision, decode_statistic, encode_statistic

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "digits" / "fedfibos.toml"
SEEDS = (0, 1, 2)
HALVES: tuple[Precision, ...] = tuple(p for p in get_args(Precision) if p != "float32")


def travelled(upload: Upload, layout: Layout, precision: Precision) -> Upload:
    """The upload as it arrives."""
    assert upload.statistic is not None
    assert isinstance(upload.submodel, Mask)
    held = upload.submodel.held if upload.observed == "held" else None
    sent = encode_statistic(upload.statistic, held, layout, precision)
    return replace(upload, statistic=decode_statistic(Reader(sent), held, layout))


def cohorts(world: World, rounds: int, size: int, seed: int) -> Iterator[list[Client]]:
    """Every round's cohort, with its data."""
    for t in range(rounds):
        ids = sample(len(world.population), size, seed, t)
        yield [replace(client, data=world.population.data(client.id)) for client in world.population.clients(ids, t)]


def accuracies(world: World, state: Any, params: Any, t: int) -> dict[str, float | None]:
    """Global accuracy of the full model and of the submodels."""

    def run(params: Any, trials: Iterable[Any]) -> Iterator[torch.Tensor]:
        return (answers(world.model, params, trial, world.split.test, 500) for trial in trials)

    population = world.population
    clients = population.everyone(t)
    result = evaluate(world.method, world.model, state, params, clients, population.test_parts, run)["global"]
    return {"full": result["full"], "submodels": result["submodels"]["mean"]}


def one_seed(seed: int) -> dict[str, Any]:
    """Similarity of the selections along the float32 run, and accuracies of runs of their own."""
    experiment = load_experiment(EXPERIMENT, [f"seed={seed}"])
    world = build_world(experiment, device="cpu", data_dir=None, warn=lambda text: None)
    method, model, federation = world.method, world.model, experiment.federation
    layout = model.layout
    start = model.initial_params()
    ends: dict[str, Any] = {}
    similarity: dict[str, dict[str, list[float]]] = {p: {} for p in HALVES}
    for precision in get_args(Precision):
        params, state = start, method.init(start)
        beside = dict.fromkeys(HALVES, state)
        for cohort in cohorts(world, federation.rounds, federation.cohort, seed):
            jobs = submodels(method, model, state, params, cohort)
            outcomes = [
                (client, travelled(upload, layout, precision) if isinstance(upload, Upload) else upload)
                for client, upload in run_in_turn(method, model, params, jobs)
            ]
            if precision == "float32":
                for half in HALVES:
                    arrived = [(c, travelled(u, layout, half) if isinstance(u, Upload) else u) for c, u in outcomes]
                    beside[half], _, _ = merge(method, beside[half], params, cohort, arrived)
            state, params, _ = merge(method, state, params, cohort, outcomes)
            if precision == "float32":
                for half in HALVES:
                    for capacity in (c for c in federation.capacities if c < 1):
                        kept = [_selection(one.tensors["score"], capacity, layout) for one in (state, beside[half])]
                        similarity[half].setdefault(str(capacity), []).append(jaccard(*kept))
        ends[precision] = accuracies(world, state, params, federation.rounds)
    return {
        "jaccard": {
            half: {capacity: {"last": values[-1], "least": min(values)} for capacity, values in table.items()}
            for half, table in similarity.items()
        },
        "accuracy": ends,
    }


def _selection(score: torch.Tensor, capacity: float, layout: Layout) -> torch.Tensor:
    held = mask_from_scores(score, capacity, layout).held
    assert held is not None, f"capacity {capacity:g} holds everything"
    return held[: layout.num_maskable]


def main(out: Path) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    result = {
        "experiment": "experiments/digits/fedfibos.toml",
        "seeds": {str(seed): one_seed(seed) for seed in SEEDS},
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "commit": commit(),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["seeds"], indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
