"""What noise does to a coordinate that few hold, and to a ranking of many scores or of few.

First table: of each method at the non-uniform mix, which share of the parameters has which expected number of holders,
and so how much noise its average update gets, as a multiple of FedAvg's; and the same summed over all parameters.

Second table: 50 clients that hold everything send one estimate each, clipped to the median norm. The sum with noise z'
ranks the weights or the channels. Written down: which share of the better half of the clean ranking is in the better
half of the noisy one (half of it is by chance), for networks of three widths.

Run: python benchmarks/private_scores.py results/bench/privacy.json
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfibos.backend.determinism import reproducible
from fedfibos.config.experiment import load_experiment
from fedfibos.privacy.mechanism import clip, gaussian, noise_per_coordinate
from fedfibos.privacy.settings import Privacy
from fedfibos.round import run_in_turn, submodel_for
from fedfibos.runs.environment import describe
from fedfibos.simulation import World, build_world
from fedfibos.soundness import first_state

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "digits" / "private.toml"
METHODS = ("fedavg", "heterofl", "fedrolex", "fedbrb", "fiarse", "fedfibos", "fedfibos-channels")
HIDDEN, NOISES, CLIENTS, DRAWS = (16, 64, 256), (0.5, 1.0, 2.0, 4.0, 8.0), 50, 5


def world(method: str, hidden: int = 32) -> World:
    """The study's experiment with another method and width."""
    return build_world(load_experiment(EXPERIMENT, [f"method.name={method}", f"model.options.hidden=[{hidden}]"]))


def noise_of(method: str) -> dict[str, Any]:
    """Share of the parameters by the multiple of FedAvg's noise, at the first round; ``all``: the norm of all of it."""
    made = world(method)
    params = made.model.initial_params()
    state, levels = first_state(made.method, params), made.population.levels([], CLIENTS, 0)
    submodels = [submodel_for(made.method, made.model, state, params, level.client) for level in levels]
    weights = [level.expected for level in levels]
    deviation = noise_per_coordinate(submodels, weights, Privacy(1.0, 1.0), params.layout.size) * sum(weights)
    held = deviation[deviation.isfinite()]
    values, counts = held.round(decimals=2).unique(return_counts=True)
    shares = {
        f"{value:g}": count / deviation.numel() for value, count in zip(values.tolist(), counts.tolist(), strict=True)
    }
    return {"shares": shares, "all": float(held.norm()) / deviation.numel() ** 0.5}


def estimates(made: World) -> Tensor:
    """One round's estimates of clients that hold everything; shape ``(clients, scores)``."""
    params = made.model.initial_params()
    state = first_state(made.method, params)
    clients = [
        replace(client, capacity=1.0, data=made.population.data(client.id))
        for client in made.population.clients(list(range(CLIENTS)), 0)
    ]
    jobs = ((client, submodel_for(made.method, made.model, state, params, client)) for client in clients)
    found = [upload.statistic for _, upload in run_in_turn(made.method, made.model, params, jobs)]  # type: ignore[union-attr]
    return torch.stack([statistic.clamp_min(0.0) for statistic in found if statistic is not None])


def kept(clean: Tensor, noisy: Tensor) -> float:
    """Share of the better half of one ranking that is in the better half of the other."""
    half = clean.numel() // 2
    first, second = (set(scores.topk(half).indices.tolist()) for scores in (clean, noisy))
    return len(first & second) / half


def ranking(method: str, hidden: int) -> dict[str, Any]:
    """How many scores there are, and noise -> how much of the ranking is left."""
    made = world(method, hidden)
    given = estimates(made)
    bound = float(given.norm(dim=1).median())
    clean = torch.stack([clip(one, bound) for one in given]).sum(0)
    left: dict[str, float] = {}
    for noise in NOISES:
        draws = [gaussian(0, "statistic", draw, clean.numel(), noise * bound) for draw in range(DRAWS)]
        left[f"{noise:g}"] = sum(kept(clean, clean + drawn) for drawn in draws) / DRAWS
    return {"scores": clean.numel(), "kept": left}


def main(out: Path) -> None:
    """Measure and write."""
    with reproducible():
        record = {
            "made": describe("cpu"),
            "noise": {method: noise_of(method) for method in METHODS},
            "ranking": {
                method: {str(hidden): ranking(method, hidden) for hidden in HIDDEN}
                for method in ("fedfibos", "fedfibos-channels")
            },
        }
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
