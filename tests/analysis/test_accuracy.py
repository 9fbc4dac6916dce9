"""Numbers on record, by hand: a fleet's accuracies, a schedule's learning rates, what rounds and seeds come to.

The fleet has one client of capacity 1, two of 0.5 and three of 0.25. Ten test examples lie in the order of their
owners: client 4 has four, 1 has two, 0 has one, 2 has two, 5 has one. Client 3 has none.
"""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from fedfibos.analysis.accuracy import accuracy, evaluate
from fedfibos.common.statistics import Spread, spread
from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.experiment import Experiment
from fedfibos.config.federation import Federation
from fedfibos.config.sections import Evaluation
from fedfibos.model import model_of
from fedfibos.report.groups import Group, Problem
from fedfibos.report.records import Record
from fedfibos.report.tables import by_capacity, results, statistics
from fedfibos.round import federated_round, sample
from fedfibos.runs.summary import summarise
from fedfibos.simulation import build_world, simulate
from fedfibos.submodel import Mask, budget
from fedfibos.training import LocalTraining
from fedfibos.types import Client, State

MODEL = model_of(nn.Linear(4, 2, bias=False))
CAPACITIES = {5: 0.25, 3: 0.5, 2: 0.25, 4: 1.0, 1: 0.5, 0: 0.25}
FLEET = [Client(n, capacity, 0, 0, LocalTraining()) for n, capacity in CAPACITIES.items()]
OWN = [[6], [4, 5], [7, 8], [], [0, 1, 2, 3], [9]]


@dataclass(frozen=True)
class Prefixes:
    """Of the eight parameters, the share that is the capacity; or, personally, one for client 0, two for 1, ..."""

    personal: bool

    def extract(self, model, state, params, client):
        size = model.layout.size
        held = client.id + 1 if self.personal else budget(client.capacity, size)
        return Mask(torch.arange(size) < held, held)


SHARED_HITS = {
    8: ("1110 11 0 10 1", "1111 11 1 11 1"),
    4: ("1000 10 1 10 0", "0000 00 0 00 0"),
    2: ("0000 00 0 11 0", "1111 11 1 11 0"),
}
PERSONAL_HITS = {
    4 + 1: ("1110 11 0 10 1", "1111 11 1 11 1"),
    1 + 1: ("1000 10 1 10 0", "0000 00 0 00 0"),
    3 + 1: ("1111 11 1 10 0", "0000 00 0 00 0"),
    0 + 1: ("1000 10 0 00 0", "0000 00 1 00 0"),
    2 + 1: ("0000 00 1 11 0", "1111 11 1 11 1"),
    5 + 1: ("1111 11 1 00 0", "1111 11 1 11 0"),
}
"""Parameters held -> which examples such a submodel has right: by its own classes, and by adjusted ones."""


def evaluated(personal, submodel_clients=None, clients=FLEET, own=OWN):
    """The evaluation, and what it scored: (parameters held, test examples) of each piece."""
    scored = []

    def score(params, works):
        for work in works:
            rows = (PERSONAL_HITS if personal else SHARED_HITS)[work.submodel.num_held]
            hits = torch.tensor([[digit == "1" for digit in row.replace(" ", "")] for row in rows])
            indices = list(range(10)) if work.indices is None else work.indices.tolist()
            scored.append((work.submodel.num_held, indices))
            right, adjusted = hits[:, indices].float()
            yield torch.stack([right, torch.ones(len(indices)), adjusted])  # every example is of class 1

    parts = [torch.tensor(part, dtype=torch.int64) for part in own]
    method, params = Prefixes(personal), MODEL.initial_params()
    return evaluate(method, MODEL, State(), params, clients, parts, score, submodel_clients), scored


LOCAL = {
    "mean": pytest.approx((3 / 4 + 1 / 2 + 0 + 1 + 0) / 5),
    "by_capacity": {"1.0": 3 / 4, "0.5": 1 / 2, "0.25": pytest.approx((0 + 1 + 0) / 3)},
    "adjusted": {
        "mean": pytest.approx((1 + 0 + 1 + 1 + 0) / 5),
        "by_capacity": {"1.0": 1.0, "0.5": 0.0, "0.25": pytest.approx((1 + 1 + 0) / 3)},
    },
}
"""Of clients 4, 1, 0, 2 and 5, by the hits of either table."""


def test_accuracies_by_hand_where_clients_of_a_capacity_share_a_submodel():
    found, scored = evaluated(personal=False, submodel_clients=2)
    submodels = {"1.0": 0.7, "0.5": 0.4, "0.25": 0.2, "mean": pytest.approx((0.7 + 0.4 + 0.2) / 3)}
    assert found["global"] == {"full": 0.7, "submodels": submodels}
    assert found["local"] == LOCAL
    assert scored == [(held, list(range(10))) for held in (8, 4, 2)]


@pytest.mark.parametrize(
    ("submodel_clients", "half", "quarter"),
    [(None, (0.4 + 0.8) / 2, (0.2 + 0.3 + 0.7) / 3), (1, 0.4, 0.2), (2, (0.4 + 0.8) / 2, (0.2 + 0.3) / 2)],
    ids=["all", "one", "two"],
)
def test_accuracies_by_hand_where_every_client_has_a_submodel_of_its_own(submodel_clients, half, quarter):
    """A limit counts the lowest ids of each capacity, and changes no local accuracy."""
    found, scored = evaluated(personal=True, submodel_clients=submodel_clients)
    submodels = {"1.0": 0.7, "0.5": half, "0.25": quarter, "mean": (0.7 + half + quarter) / 3}
    assert found["global"] == {"full": 0.7, "submodels": pytest.approx(submodels)}
    assert found["local"] == LOCAL
    everywhere = {None: {4, 1, 3, 0, 2, 5}, 1: {4, 1, 0}, 2: {4, 1, 3, 0, 2}}[submodel_clients]
    assert sorted(scored) == [(n + 1, list(range(10)) if n in everywhere else OWN[n]) for n in range(6)]


def test_the_whole_model_is_evaluated_for_a_fleet_in_which_nobody_affords_it_and_counts_as_no_submodel():
    found, _ = evaluated(personal=False, clients=[client for client in FLEET if client.id != 4])
    assert found["global"] == {"full": 0.7, "submodels": {"0.5": 0.4, "0.25": 0.2, "mean": pytest.approx(0.3)}}
    assert found["local"]["mean"] == pytest.approx((1 / 2 + 0 + 1 + 0) / 4)
    assert found["local"]["by_capacity"] == {"0.5": 1 / 2, "0.25": pytest.approx(1 / 3)}


def test_a_capacity_without_a_test_example_has_no_local_accuracy_and_enters_no_mean():
    found, _ = evaluated(personal=True, own=[[6], [], [7, 8], [], [0, 1, 2, 3], [9]])
    assert found["local"]["mean"] == pytest.approx((3 / 4 + 0 + 1 + 0) / 4)
    assert found["local"]["by_capacity"] == {"1.0": 3 / 4, "0.5": None, "0.25": pytest.approx(1 / 3)}
    assert found["global"]["submodels"]["0.5"] == pytest.approx(0.6)


def by_hand(experiment, rates):
    """The experiment's world, and state and parameters after rounds written out, at these learning rates."""
    world, federation = build_world(experiment, device="cpu", data_dir=None, warn=print), experiment.federation
    params = world.model.initial_params()
    state = world.method.init(params)
    for t, rate in enumerate(rates):
        ids = sample(federation.clients, federation.cohort, experiment.seed, t)
        local = LocalTraining(steps=3, lr=rate)
        cohort = [
            Client(n, capacity, t, experiment.seed, local, world.population.data(n))
            for n, capacity in zip(ids, experiment.capacities().of(ids, t), strict=True)
        ]
        state, params, _ = federated_round(world.method, world.model, state, params, cohort)
    return world, state, params


def test_a_run_trains_with_the_rates_that_its_schedule_says(tmp_path):
    """The same parameters as rounds whose clients are told the rate of each; another schedule, others."""
    rates = {
        "constant": [0.1, 0.1, 0.1, 0.1],
        "cosine": [0.1 * (1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)],
        "milestones": [0.1, 0.05, 0.05, 0.025],
    }
    assert rates["cosine"] == pytest.approx([0.1, 0.08535534, 0.05, 0.01464466])
    digests = set()
    for schedule, of_rounds in rates.items():
        experiment = Experiment(
            ModelChoice("mlp", options={"hidden": (8,)}),
            Federation(clients=4, cohort=2, rounds=4, capacities={1.0: 0.5, 0.5: 0.5}),
            MethodChoice("fedfibos"),
            local=LocalTraining(steps=3, lr=0.1, schedule=schedule, milestones=(1, 3), decay=0.5),
        )
        _, _, params = by_hand(experiment, of_rounds)
        assert simulate(experiment, tmp_path / schedule, workers=1)["params_sha256"] == params.sha256()
        digests.add(params.sha256())
    assert len(digests) == 3


def test_a_run_records_the_accuracies_of_its_fleet_as_it_is_after_the_round(tmp_path):
    """Capacities are dealt afresh for every round; the lowest id of a capacity stands for its submodels."""
    experiment = Experiment(
        ModelChoice("mlp", options={"hidden": (8,)}),
        Federation(clients=6, cohort=6, rounds=2, capacities={1.0: 0.5, 0.25: 0.5}, assignment="dynamic"),
        MethodChoice("fedfibos", settings={"sharing": "client", "prior": "none"}),
        local=LocalTraining(steps=3, lr=0.5),
        evaluation=Evaluation(submodel_clients=1),
    )
    final = simulate(experiment, tmp_path / "run", workers=1)
    world, state, params = by_hand(experiment, [0.5, 0.5])
    model, test, capacities = world.model, world.split.test, experiment.capacities().of(range(6), 2)
    fleet = [Client(n, capacity, 2, 0, LocalTraining()) for n, capacity in enumerate(capacities)]
    submodels = [world.method.extract(model, state, params, client) for client in fleet]
    on_test = [accuracy(model, params, submodel, test) for submodel in submodels]
    whole, small = (on_test[capacities.index(capacity)] for capacity in (1.0, 0.25))
    assert len(set(on_test)) == 4  # a whole model, and three personal ones
    parts = world.population.test_parts
    own = [accuracy(model, params, submodel, test.subset(parts[n])) for n, submodel in enumerate(submodels)]
    found = final["global_accuracy"]
    assert (found["full"]["last"], found["submodels"]["0.25"]["last"]) == (whole, small)
    assert found["submodels"]["mean"]["last"] == pytest.approx((whole + small) / 2)
    assert final["local_accuracy"]["mean"]["last"] == pytest.approx(sum(own) / 6)


def test_adjusted_accuracies_are_summarised_beside_those_that_they_adjust():
    """Three evaluations, the first of which has none adjusted, as in older records."""
    plain = {"mean": 0.5, "by_capacity": {"1.0": 0.5}}
    adjusted = [{"mean": 0.75, "by_capacity": {"1.0": 1.0}}, {"mean": 0.25, "by_capacity": {"1.0": 0.5}}]
    rounds = [
        {
            "evaluation": {"global": {"full": 0.5, "submodels": {"mean": 0.5}}, "local": local},
            "bytes": {"down": 1, "up": 1},
            "seconds": 1.0,
            "rejected": {},
        }
        for local in (plain, *({**plain, "adjusted": each} for each in adjusted))
    ]
    level = {"last": 0.5, "last20": 0.5, "best": 0.5}
    assert summarise(rounds)["local_accuracy"] == {
        "mean": level,
        "by_capacity": {"1.0": level},
        "adjusted": {
            "mean": {"last": 0.25, "last20": 0.5, "best": 0.75},
            "by_capacity": {"1.0": {"last": 0.5, "last20": 0.75, "best": 1.0}},
        },
    }


def test_mean_and_sample_deviation_of_four_seeds_by_hand():
    """Deviations of −.1, −.1, −.1 and .3: squares of .12 in all, .04 for each of n − 1."""
    found = spread([0.5, 0.5, 0.5, 0.9])
    assert found == Spread(pytest.approx(0.6), pytest.approx(0.2), 4)
    assert found.text(100) == "60.0 ± 20.0"


def test_every_accuracy_of_four_seeds_in_its_cell_of_the_tables():
    """The fourth seed is .4 better than the others; the mean of the last 20 is .1 above the last, the best .2."""

    def final(more):
        def curve(last):
            return {"last": last + more, "last20": last + more + 0.1, "best": last + more + 0.2}

        return {
            "global_accuracy": {
                "full": curve(0.0),
                "submodels": {"1.0": curve(0.1), "0.5": curve(0.2), "mean": curve(0.3)},
            },
            "local_accuracy": {
                "mean": curve(0.4),
                "by_capacity": {"1.0": curve(0.5), "0.5": curve(0.6)},
                "adjusted": {"mean": curve(0.7)},
            },
        }

    experiment = Experiment(
        ModelChoice("mlp"), Federation(4, 2, 1, capacities={1.0: 0.5, 0.5: 0.5}), MethodChoice("fedfibos")
    )
    rounds = ({"round": 1, "bytes": {"down": 1, "up": 1}, "evaluation": {}},)
    records = tuple(Record("run", experiment, {}, rounds, final(more)) for more in (0.0, 0.0, 0.0, 0.4))
    problem = Problem("", "", (Group("A", records),))

    def texts(table):
        return [[cell.text.removesuffix(" ± 20.0") for cell in entries[1:]] for entries in table.rows]

    assert results(problem, "").columns[2:] == (
        "global, full", "global, submodels", "global, γ = 0.5", "local", "local, adjusted"
    )  # fmt: skip
    assert texts(results(problem, "")) == [["4", "10.0", "40.0", "30.0", "50.0", "80.0"]]
    assert texts(statistics(problem, "")) == [
        ["global, full", "10.0", "20.0", "30.0"],
        ["global, submodels", "40.0", "50.0", "60.0"],
        ["local", "50.0", "60.0", "70.0"],
    ]
    assert texts(by_capacity(problem, "")) == [["global", "20.0", "30.0"], ["local", "60.0", "70.0"]]
