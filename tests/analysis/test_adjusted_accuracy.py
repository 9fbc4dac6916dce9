"""Accuracies adjusted by what every client knows, and a checkpoint evaluated again."""

import json
import math

import pytest
import torch
from torch import nn

from fedfibos.analysis.accuracy import Trial, answers, correct, evaluate
from fedfibos.analysis.class_priors import ClassPriors
from fedfibos.cli import main
from fedfibos.data import TensorData
from fedfibos.export.formats import submodel_module
from fedfibos.local import local_training
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.params import Params
from fedfibos.submodel import full
from fedfibos.training import LocalTraining
from fedfibos.types import Client


def identity_model(classes=3):
    """Logits are the inputs."""
    layer = nn.Linear(classes, classes, bias=False)
    layer.weight.data = torch.eye(classes)
    return model_of(layer)


def test_log_frequencies_of_the_owner_of_each_test_example():
    """Client 0 has classes 0, 0, 1, 2; client 1 has class 1 only; the last test example is nobody's."""
    labels = torch.tensor([0, 0, 1, 2, 1, 1])
    priors = ClassPriors.of(labels, [torch.arange(4), torch.arange(4, 6)], torch.tensor([1, 0, 0, -1]), 3)
    expected = [
        [-math.inf, 0.0, -math.inf],
        [math.log(0.5), math.log(0.25), math.log(0.25)],
        [math.log(0.5), math.log(0.25), math.log(0.25)],
        [0.0, 0.0, 0.0],
    ]
    assert torch.equal(priors.table[priors.row], torch.tensor(expected))


def test_adjusted_classes_by_hand():
    """A client with classes 1 and 2 (a quarter and three quarters): logits (5, 1, .5) give 2, (0, 3, .5) still 1.

    log ¾ − log ¼ = 1.0986: a lead of .5 of class 1 over 2 is turned, one of 2.5 is not.
    """
    model = identity_model()
    test = TensorData(torch.tensor([[5.0, 1.0, 0.5], [0.0, 3.0, 0.5], [0.0, 3.0, 0.5]]), torch.tensor([2, 1, 2]))
    owner = torch.zeros(3, dtype=torch.int64)
    priors = ClassPriors.of(torch.tensor([1, 2, 2, 2]), [torch.arange(4)], owner, 3)
    work = Trial(full(model.layout))
    hits = correct(model, model.initial_params(), work, test, 2, priors=priors)
    assert hits.tolist() == [[False, True, False], [True, True, False]]
    assert correct(model, model.initial_params(), work, test, 2).tolist() == [[False, True, False]] * 2
    some = correct(model, model.initial_params(), Trial(work.submodel, torch.tensor([2, 0])), test, 2, priors=priors)
    assert torch.equal(some, hits[:, [2, 0]])


@pytest.mark.parametrize("name", METHODS)
def test_equal_frequencies_change_nothing_and_a_client_of_one_class_is_always_right(name):
    """Whatever the model and the method."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_of(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), example=torch.zeros(2, 4))
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(30) % 3
    test = TensorData(torch.randn(30, 4, generator=generator), labels)
    equal, single = torch.arange(0, 15), torch.tensor([n for n in range(15, 30) if n % 3 == 0])
    owner = torch.full((30,), -1).index_fill(0, equal, 0).index_fill(0, single, 1)
    priors = ClassPriors.of(labels, [equal, single], owner, 3)
    params, method = model.initial_params(), METHODS[name]()
    clients = [Client(n, 0.5, 0, 0, LocalTraining()) for n in range(2)]
    score = lambda at, works: (answers(model, at, work, test, 7, priors=priors) for work in works)  # noqa: E731
    local = evaluate(method, model, method.init(params), params, clients, [equal, single], score)["local"]
    only_equal = evaluate(method, model, method.init(params), params, clients, [equal, single[:0]], score)["local"]
    assert only_equal["adjusted"] == {key: only_equal[key] for key in ("mean", "by_capacity")}
    assert local["adjusted"]["mean"] == pytest.approx((only_equal["mean"] + 1.0) / 2)


@pytest.mark.parametrize("name", ["fedfibos", "heterofl"])
def test_the_share_that_is_really_held_is_on_record(name):
    """10-12-2 with biases has 158 parameters: a mask holds half, channels what ⌈r·12⌉ of them come to."""
    model = model_of(nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 2)), example=torch.zeros(2, 10))
    params, method = model.initial_params(), METHODS[name]()
    clients = [Client(0, 0.5, 0, 0, LocalTraining())]
    test = TensorData(torch.zeros(2, 10), torch.tensor([0, 1]))
    score = lambda at, works: (answers(model, at, work, test, 2) for work in works)  # noqa: E731
    found = evaluate(method, model, method.init(params), params, clients, [torch.arange(2)], score)["shares"]
    channels = (158 // 2 - 2) // 13  # each takes 10 weights, a bias and 2 weights of the classifier
    held = {"fedfibos": 79, "heterofl": 2 + 13 * channels}[name]
    assert found["0.5"] == round(held / 158, 6)


@pytest.mark.parametrize("preset", ["", 'preset = "algorithm1"'])
def test_a_checkpoint_evaluated_again_gives_the_numbers_of_the_run(tmp_path, preset, capsys):
    (tmp_path / "a.toml").write_text(
        'model = { name = "mlp", options = { hidden = [16] } }\n'
        f'[method]\nname = "fedfibos"\n{preset}\n'
        '[federation]\nclients = 10\ncohort = 5\nrounds = 2\nassignment = "dynamic"\n[local]\nsteps = 3\n'
        "[evaluation]\nsubmodel_clients = 1\n"
    )
    run = tmp_path / "run"
    assert main(["run", str(tmp_path / "a.toml"), "--out", str(run), "--workers", "2"]) == 0
    assert main(["evaluate", str(run)]) == 0
    assert "local, adjusted" in capsys.readouterr().out
    again = json.loads((run / "evaluation.json").read_text())
    last = json.loads((run / "rounds.jsonl").read_text().splitlines()[-1])["evaluation"]
    assert (again.pop("round"), again.pop("environment")["device"]) == (2, "cpu")
    assert again == last
    assert last["local"]["adjusted"]["mean"] > last["local"]["mean"]  # Dirichlet .3: knowing it helps


def test_logits_that_are_no_numbers_are_no_class():
    """argmax would make them the first class, which some examples are of."""
    module = nn.Linear(1, 2, bias=False)
    model = model_of(module)
    params = Params(model.layout, torch.tensor([float("nan"), 1.0]))
    test = TensorData(torch.ones(3, 1), torch.tensor([0, 0, 1]))
    hits = correct(model, params, Trial(full(model.layout)), test, 2)
    assert hits.tolist() == [[False] * 3] * 2


def test_classes_that_a_model_rules_out_are_no_fault():
    """-∞ beside a number is a class that cannot be; a row without any number, or with +∞, has no class."""
    inf = math.inf
    logits = torch.tensor(
        [[-inf, 1.0, 0.0], [-inf, -inf, -inf], [inf, 1.0, 0.0], [math.nan, 1.0, 0.0], [2.0, 1.0, 0.0]]
    )
    test = TensorData(logits, torch.tensor([1, 0, 0, 0, 0]))

    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.unused = nn.Linear(1, 1)

        def forward(self, x):
            return x

    model = model_of(Given())
    owner = torch.zeros(5, dtype=torch.int64)
    priors = ClassPriors.of(torch.tensor([0, 2]), [torch.arange(2)], owner, 3)
    hits = correct(model, model.initial_params(), Trial(full(model.layout)), test, 2, priors=priors)
    assert hits[0].tolist() == [True, False, False, False, True]
    assert hits[1].tolist() == [False, False, False, False, True]  # without class 1 the first row is of class 2


class Draws(nn.Module):
    """Random in evaluation too."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.layer(self.norm(nn.functional.dropout(x, 0.5)))


def test_random_numbers_of_an_evaluation_are_its_own():
    model = model_of(Draws())
    generator = torch.Generator().manual_seed(0)
    test = TensorData(torch.randn(40, 4, generator=generator), torch.arange(40) % 3)
    before = torch.get_rng_state()
    work = Trial(full(model.layout))
    hits = [correct(model, model.initial_params(), work, test, 40, test) for _ in range(2)]
    assert torch.equal(hits[0], hits[1])
    exported = [submodel_module(model, model.initial_params(), work.submodel, test) for _ in range(2)]
    assert torch.equal(exported[0].norm.running_mean, exported[1].norm.running_mean)
    assert torch.equal(torch.get_rng_state(), before)


class Cached(nn.Module):
    """A table of positions, made when it is first wanted and kept."""

    def __init__(self):
        super().__init__()
        self.scale, self.layer, self.table = nn.Parameter(torch.ones(4)), nn.Linear(4, 3), None

    def forward(self, x):
        if self.table is None:
            self.table = torch.linspace(0, 1, x.shape[1]).sin()
        return self.layer(x + self.table * self.scale)


def test_what_an_evaluation_keeps_can_be_trained_with():
    model = model_of(Cached())
    test = TensorData(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3)
    work = Trial(full(model.layout))
    correct(model, model.initial_params(), work, test, 6)
    client = Client(0, 1.0, 0, 0, LocalTraining(steps=2), test)
    assert local_training(model, model.initial_params(), work.submodel, client).num_steps == 2
