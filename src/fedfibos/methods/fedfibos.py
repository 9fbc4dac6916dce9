"""FedFIbOS: every client holds the ⌈γd⌉ parameters with the highest Fisher importance.

The server keeps an exponential moving average f̄ of squared gradients (empirical diagonal Fisher), shared by all
clients or one per client, and ranks it. Line numbers are those of Algorithm 1.

References:
    Afzal, Deng, Zhang. FedFIbOS: Fisher Importance based Optimal Submodelling for Heterogeneous Federated Learning.

Deviations:
    - To the letter, masks can never change (a theorem, see ``tests/theory``): off the mask the estimate is zero.
      ``fisher = "literal"`` is that letter; the default estimates on held coordinates and leaves the others' score
      as it is (the condition of Proposition 2), or estimates everywhere (``dense``).
    - Algorithm 1 indexes f̄ by client; the text speaks of the EMA of the *aggregated* estimates. ``sharing``
      has both; the default is the text's. ``PRESETS["algorithm1"]`` is the algorithm's.
    - Line 17's Δ is x̃ off the mask, which would pull unheld weights to zero: ours is zero there.
    - Line 20 divides by A; the default divides each coordinate by its holders (``average``), as compared methods do.
    - Line 14 squares the minibatch gradient, equation 9 the per-example ones: ``fisher_from``.
    - With masked labels (``absent_labels``) held estimates leave out the classes that a client has no example of;
      dense ones are zero there.
    - Normalisation parameters are always held and not ranked. M is constant within a round (line 12's argument
      x_{t,k} is left over from FIARSE).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedfibos.aggregate import Average, Sums
from fedfibos.backend.reductions import any_true
from fedfibos.common.field_checks import check_fields, check_positive
from fedfibos.common.streams import stream
from fedfibos.local import local_training
from fedfibos.method import Idle
from fedfibos.methods._criterion import Criterion, ranked_by
from fedfibos.methods._fisher import Ema, FisherObserver, check_average
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Mask, Submodel, full, layer_budgets, mask_by_layer, mask_from_scores
from fedfibos.types import Client, State, Upload


@dataclass(frozen=True)
class FedFIbOS:
    """Fisher-importance submodels.

    Attributes:
        fisher: Where a round's estimate f̂ is made: ``held`` coordinates (the others keep their score), ``dense``
            (everywhere, at the masked point: a full-size backward pass), ``literal`` (zero off the mask: with
            per-client scores and the magnitude prior frozen masks, a negative control). ``auto``: held for a shared
            score, dense for per-client ones.
        fisher_from: ``minibatch``: squared minibatch gradients (line 14); ``per_example``: equation 9.
        prior: ``magnitude``: f̄⁰ = |x̃₀| (line 2); ``none``: magnitude until the first estimate, then a
            bias-corrected EMA. ``auto``: none for a shared score (magnitudes are far larger than squared gradients and
            can leave a pretrained model without its head: docs/explanation/findings.md), magnitude for per-client ones.
        criterion: What is ranked. ``fisher``: f̄. ``ssp``: f̄²x̃², the exact solution of the paper's submodel selection
            problem. ``saliency``: f̄x̃², the second-order loss of removing a parameter (LeCun et al. 1990; Theis et al.
            2018). ``power``: f̄^a·|x̃|^b. ``magnitude``: |x̃|. ``random``. Or a function of one's own, see
            :data:`Criterion`.
        exponents: (a, b) of ``power``, both 0 or above. (1, 0) is ``fisher``, (0, 1) ``magnitude``; (1, 1) has the
            order of ``ssp`` and (1, 2) that of ``saliency``.
        scope: ``global`` ranks all d coordinates together; ``layer`` gives every tensor its share.
        floor: In [0, 1]: with ``global`` every tensor is sure of so much of its share. Otherwise a layer without a
            weight passes no gradient, gets no score, and can stay empty ("layer collapse": Tanaka et al. 2020).
        sharing: ``shared``: one f̄; ``client``: one per client; ``blend``: both.
        blend: β in [0, 1], the client's part in a blend.
        blend_of: What is divided: the ``scores``, β·f̄(n) + (1−β)·f̄(shared), or the ``budget``: ⌈(1−β)γd⌉ coordinates
            by the shared score, which all clients of a capacity have in common, and the rest by the client's own.
        average: What the sum of the updates of a coordinate is divided by: the weight of its ``holders``, or of all
            ``participants``.
        ema_rate: Rate α of the moving average f̄, in [0, 1): f̄ becomes α f̄ + (1 − α) f̂.
        server_lr: The server's learning rate η_s: a factor of the averaged update.
        dense_every: Make every such round's estimates dense (0: never), for fleets in which no client ever holds
            some coordinate, so that ``held`` would never observe it.
        estimate_every: Clients estimate and upload f̂ in every such round, from round 0, and in dense ones; the score
            stays as it is in between. An estimate doubles a round's upload: with 10 a run sends 1.1 times what a
            method without estimates does. One observation moves f̄ by 1 − α, however many rounds lie before it.
    """

    fisher: Literal["auto", "held", "dense", "literal"] = "auto"
    fisher_from: Literal["minibatch", "per_example"] = "minibatch"
    prior: Literal["auto", "magnitude", "none"] = "auto"
    criterion: Literal["fisher", "ssp", "saliency", "power", "magnitude", "random"] | Criterion = "fisher"
    exponents: tuple[float, float] = (1.0, 2.0)
    scope: Literal["global", "layer"] = "global"
    floor: float = 0.0
    sharing: Literal["shared", "client", "blend"] = "shared"
    blend: float = 0.2
    blend_of: Literal["scores", "budget"] = "scores"
    average: Average = "holders"
    ema_rate: float = 0.8
    server_lr: float = 1.0
    dense_every: int = 0
    estimate_every: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "server_lr")
        check_average(self.ema_rate, self.blend)
        if len(self.exponents) != 2 or min(self.exponents) < 0 or max(self.exponents) == 0:
            raise ValueError(f"exponents must be two numbers, 0 or above and not both 0, got {list(self.exponents)}")
        if not 0.0 <= self.floor <= 1.0:
            raise ValueError(f"floor must be in [0, 1], got {self.floor}")
        if self.dense_every < 0:
            raise ValueError(f"dense_every must be 0 or positive, got {self.dense_every}")
        if self.estimate_every < 1:
            raise ValueError(f"estimate_every must be 1 or more, got {self.estimate_every}")
        if self.fisher == "auto":
            object.__setattr__(self, "fisher", "held" if self.sharing == "shared" else "dense")
        if self.prior == "auto":
            object.__setattr__(self, "prior", "none" if self.sharing == "shared" and self._estimates else "magnitude")

    @property
    def _estimates(self) -> bool:
        """Whether what is ranked depends on the Fisher estimates."""
        return self.criterion not in ("magnitude", "random")

    @property
    def personal(self) -> bool:
        """Whether masks follow the client: per-client scores, unless the criterion ignores them."""
        return self.sharing != "shared" and self.criterion != "magnitude"

    def cautions(self, model: Model, capacities: Sequence[float]) -> list[str]:
        """Coordinates that nobody ever estimates; masks that were to be frozen and are not."""
        if self.fisher == "literal" and not (self.sharing == "client" and self.prior == "magnitude"):
            return [
                'method.fisher = "literal" freezes masks only with sharing = "client" and prior = "magnitude": with a '
                "shared score larger clients move what smaller ones rank"
            ]
        if not self._estimates or self.fisher != "held" or self.dense_every:
            return []
        if self.sharing == "client" and min(capacities) < 1.0:
            return [
                "scores of the clients' own are estimated on held coordinates alone: a client below capacity 1 never "
                'learns of what it does not hold; method.fisher = "dense", or method.dense_every = 10, estimates all'
            ]
        if max(capacities) == 1.0:
            return []
        return [
            f"no client holds the whole model (largest capacity {max(capacities):g}): coordinates outside every mask "
            "are never estimated; method.dense_every = 10 estimates all of them on every tenth round"
        ]

    @property
    def shares_a_score(self) -> bool:
        """Whether a client's score is blended with the shared one."""
        return self.sharing == "blend"

    def check_client_scores(self) -> None:
        """Raise ValueError where a client cannot choose its mask by what it knows itself."""
        if self.sharing not in ("client", "blend"):
            raise ValueError(
                "scores = 'client' needs method fedfibos with sharing = 'client' or 'blend', got sharing = 'shared'"
            )
        if self.criterion != "fisher" or self.prior != "magnitude":
            raise ValueError(
                "scores = 'client' needs criterion = 'fisher' and prior = 'magnitude' (others rank by parameters that "
                f"a client does not receive), got {self.criterion!r} and {self.prior!r}"
            )

    def shared_score(self, state: State) -> Tensor:
        """What the server holds of a blend, shape ``(d,)``."""
        return state.tensors["score"]

    def with_shared_score(self, state: State, score: Tensor) -> State:
        """The state of a client that was sent it."""
        return state.with_tensors(score=score)

    @property
    def _ema(self) -> Ema:
        return Ema(self.ema_rate, self.prior == "magnitude", per_coordinate=self.fisher == "held")

    def init(self, params: Params) -> State:
        """Line 2: f̄⁰ = |x̃₀|, or no evidence yet."""
        score = self._ema.start(params.flat[: params.layout.num_maskable].abs())
        shared = {} if self.sharing == "client" else {"score": score}
        return State(shared if self.sharing == "shared" else {**shared, "prior": score.clone()})

    def extract(self, model: Model, state: State, params: Params, client: Client) -> Submodel:
        """Line 6: the ⌈γd⌉ highest scores."""
        scores = self._scores(state, params, client)
        if self.sharing == "blend" and self.blend_of == "budget" and self.personal and self.blend < 1.0:
            core = self._core(state, params, client).held
            if core is None:
                return full(model.layout)
            scores = torch.where(core[: scores.numel()], math.inf, scores)
        return mask_from_scores(scores, client.capacity, model.layout, self.scope, self.floor)

    def train(self, model: Model, params: Params, submodel: Submodel, client: Client) -> Upload:
        """Lines 10 to 18: local steps, squaring each step's gradients on the way."""
        observed = self.observes(model, client.round)
        if observed is None:
            return local_training(model, params, submodel, client)
        observer = FisherObserver(model, self.fisher_from)
        upload = local_training(model, params, submodel, client, observe=observer)
        dense = self.fisher == "dense" or self._dense_in(client.round)
        return replace(upload, statistic=observer.estimate(None if dense else submodel), observed=observed)

    def observes(self, model: Model, t: int) -> Literal["held", "all"] | None:
        """Of what the uploads of round t have estimates; None: of nothing."""
        if not self._estimates or not (self._dense_in(t) or t % self.estimate_every == 0):
            return None
        return "held" if self.fisher == "held" and not self._dense_in(t) else "all"

    def _dense_in(self, t: int) -> bool:
        return self.dense_every > 0 and t % self.dense_every == 0

    def update(self, state: State, client: Client, upload: Upload) -> State:
        """Lines 21 to 23: the participant's own average, where each client has one."""
        if upload.statistic is None or self.sharing == "shared":
            return state
        estimate, prior = upload.statistic, state.tensors["prior"]
        held = upload.submodel.held if upload.counted is None else upload.counted
        observed = None if held is None or upload.observed == "all" else held[: estimate.numel()]
        if self.prior == "magnitude":  # the row is the average alone: a piece of it needs only its own estimates

            def change(row: Tensor, span: slice) -> Tensor:
                return self._ema.step(row, estimate[span], None if observed is None else observed[span])

            return replace(state, rows=state.rows.revise(client.id, prior, change))
        return state.with_row(client.id, self._ema.step(_row(state, client), estimate, observed))

    def aggregate(self, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
        """Line 20 and, for a shared score, the EMA of the participants' mean estimate."""
        if self.sharing != "client" and (mean := sums.mean_statistic()) is not None:
            state = state.with_tensors(score=self._ema.step(state.tensors["score"], *mean))
        return state, sums.server_step(params, self.average, self.server_lr)

    def importance(self, state: State, params: Params, client: Client) -> Tensor | None:
        """The maintained score f̄ as it stands for this client, shape ``(d,)``; None without one, or evidence for it."""
        if not self._estimates:
            return None
        score, observed = self._importance(state, client, params.layout.num_maskable)
        return None if observed is not None and not any_true(observed) else score

    def _core(self, state: State, params: Params, client: Client) -> Mask:
        """What the shared score chooses of a blended budget; of no tensor more than the client has of it in all."""
        scores = replace(self, sharing="shared")._scores(state, params, client)
        capacity, layout = (1.0 - self.blend) * client.capacity, params.layout
        if self.scope == "global":
            return mask_from_scores(scores, capacity, layout)
        most = layer_budgets(client.capacity, layout)
        return mask_by_layer(scores, list(map(min, layer_budgets(capacity, layout), most)), layout)

    def _scores(self, state: State, params: Params, client: Client) -> Tensor:
        """What is ranked for this client, shape (d,)."""
        d = params.layout.num_maskable
        if self.criterion == "random":
            owner = client.id if self.personal else "all"
            return torch.rand(d, generator=stream(client.seed, "random mask", client.round, owner)).to(params.flat)
        if self.criterion == "magnitude":
            return params.flat[:d].abs()
        score, observed = self._importance(state, client, d)
        if self.criterion == "fisher" and observed is None:
            return score
        magnitude = params.flat[:d].abs()
        if callable(self.criterion):
            if observed is not None and not any_true(observed):
                return magnitude
            return ranked_by(self.criterion, score, magnitude, observed)
        ranked = self._ranked(score, magnitude)
        if observed is None:
            return ranked
        # What was never observed ranks by magnitude: alone before any estimate, below the rest after it.
        return torch.where(observed, ranked, -1.0 / magnitude) if any_true(observed) else magnitude

    def _ranked(self, score: Tensor, magnitude: Tensor) -> Tensor:
        """A score of the criterion's order, which keeps float32's range where the criterion itself would leave it."""
        if self.criterion == "fisher":
            return score
        if self.criterion == "ssp":
            return score * magnitude
        if self.criterion == "saliency":
            return score.sqrt() * magnitude
        a, b = (exponent / max(*self.exponents, 1.0) for exponent in self.exponents)
        return score.pow(a) * magnitude.pow(b)

    def _importance(self, state: State, client: Client, d: int) -> tuple[Tensor, Tensor | None]:
        """f̄ of this client and where it has evidence (None: everywhere)."""
        if self.sharing == "shared":
            return self._ema.importance(state.tensors["score"], d)
        own, own_seen = self._ema.importance(_row(state, client), d)
        if self.sharing == "client" or self.blend_of == "budget":
            return own, own_seen
        shared, shared_seen = self._ema.importance(state.tensors["score"], d)
        if shared_seen is None and own_seen is None:
            return torch.lerp(shared, own, self.blend), None
        everywhere = torch.ones(d, dtype=torch.bool, device=shared.device)
        shared_seen = everywhere if shared_seen is None else shared_seen
        own_seen = everywhere if own_seen is None else own_seen
        one = torch.where(own_seen, own, shared)
        return torch.where(shared_seen & own_seen, torch.lerp(shared, own, self.blend), one), shared_seen | own_seen


def _row(state: State, client: Client) -> Tensor:
    """The client's own average, on the server's device wherever it is kept; the prior before its first."""
    prior, row = state.tensors["prior"], state.rows.get(client.id)
    return prior if row is None else row.to(prior.device)


IDLE: tuple[Idle, ...] = (
    (("blend", "blend_of"), "sharing", ("blend",)),
    (("floor",), "scope", ("global",)),
    (("dense_every",), "fisher", ("held", "literal")),
    (("exponents",), "criterion", ("power",)),
    (("sharing",), "criterion", ("fisher", "ssp", "saliency", "power", "random")),
    (
        ("ema_rate", "prior", "fisher", "fisher_from", "dense_every", "estimate_every"),
        "criterion",
        ("fisher", "ssp", "saliency", "power"),
    ),
)
"""Settings that change nothing because of others."""

PRESETS: dict[str, dict[str, Any]] = {
    # The masks that did best in our studies, at 1.1 times the upload of a method without estimates; it is meant to be
    # used with nested steps (docs/explanation/findings.md).
    "recommended": {
        "criterion": "saliency",
        "floor": 0.25,
        "ema_rate": 0.8,
        "estimate_every": 10,
    },
    "algorithm1": {
        "fisher": "dense",
        "fisher_from": "minibatch",
        "prior": "magnitude",
        "criterion": "fisher",
        "scope": "global",
        "sharing": "client",
        "average": "participants",
    },
}
