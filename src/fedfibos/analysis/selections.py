"""What the selections of an evaluation look like: agreement with magnitude, dispersion of the score, kept shares."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedfibos.analysis.theory import coefficient_of_variation, jaccard
from fedfibos.backend.topk import top_k
from fedfibos.common.statistics import mean
from fedfibos.method import Method, Scored
from fedfibos.params import Layout, Params
from fedfibos.submodel import Submodel, held_maskable, kept_shares
from fedfibos.types import Client, State


class Diagnostics:
    """What the selections of an evaluation look like, gathered one submodel at a time.

    Jaccard similarity with the magnitude selection of the same size (capacity -> mean over its evaluated clients,
    masks only); coefficient of variation of the maintained importance (mean over the clients; None for methods that
    keep none) and of |x̃|; share of all maskable parameters, and of every tensor, that the first client of a capacity
    holds.
    """

    def __init__(self, method: Method, state: State, params: Params) -> None:
        self.method, self.state, self.params = method, state, params
        self.magnitude = params.flat[: params.layout.num_maskable].abs()
        self.magnitude_masks: dict[int, Tensor] = {}
        self.similarities: dict[str, list[float]] = {}
        self.shares: dict[str, float] = {}
        self.kept: dict[str, dict[str, float]] = {}
        self.dispersions: list[float] = []

    def add(self, client: Client, submodel: Submodel, *, of_the_fleet: bool) -> None:
        """Look at one client's submodel; a client made up for the full model has no score of its own."""
        key, layout = str(client.capacity), self.params.layout
        if key not in self.kept:
            self.shares[key] = round(held_maskable(submodel, layout) / layout.num_maskable, 6)
            self.kept[key] = {name: round(share, 6) for name, share in kept_shares(submodel, layout).items()}
        if submodel.held is not None:
            held = submodel.held[: layout.num_maskable]
            size = int(held.count_nonzero())
            if size not in self.magnitude_masks:
                self.magnitude_masks[size] = top_k(self.magnitude, size)
            similarity = jaccard(held, self.magnitude_masks[size])
            self.similarities.setdefault(key, []).append(similarity)
        if of_the_fleet and isinstance(self.method, Scored) and (self.method.personal or not self.dispersions):
            importance = self.method.importance(self.state, self.params, client)
            self.dispersions += [] if importance is None else [coefficient_of_variation(importance)]

    def result(self) -> dict[str, Any]:
        """The diagnostic entries of an evaluation."""
        return {
            "jaccard": {key: mean(values) for key, values in self.similarities.items()},
            "cv_f": mean(self.dispersions),
            "cv_magnitude": coefficient_of_variation(self.magnitude),
            "shares": self.shares,
            "kept_shares": self.kept,
        }


def dead_layers(submodel: Submodel, layout: Layout) -> list[str]:
    """Names of the weights of which a submodel holds nothing; a bias that is gone blocks no signal."""
    weights = {name for name, shape in zip(layout.names, layout.shapes, strict=True) if len(shape) > 1}
    return [name for name, share in kept_shares(submodel, layout).items() if share == 0.0 and name in weights]
