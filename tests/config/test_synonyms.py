"""What other programs call a setting is answered with what it is called here."""

import pytest

from fedfibos.cli import main
from fedfibos.common.validation import did_you_mean
from fedfibos.config.choices import field_names
from fedfibos.config.sections import SECTIONS
from fedfibos.config.synonyms import ELSEWHERE, OURS, WITHIN, synonym
from fedfibos.data.partition import Partition


@pytest.fixture
def experiment(experiment_file):
    return experiment_file('method.name = "fedavg"')


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("local.learning_rate", "local.lr"),
        ("local.learning-rate", "local.lr"),
        ("local.LR", "local.lr"),
        ("local.learningrate", "local.lr"),
        ("local.learningRate", "local.lr"),
        ("federation.numClients", "federation.clients"),
        ("local.batch", "local.batch_size"),
        ("local.local_epochs", "local.epochs"),
        ("local.optimiser", "local.optimizer"),
        ("local.wd", "local.weight_decay"),
        ("local.max_grad_norm", "local.clip_norm"),
        ("local.gamma", "local.decay"),
        ("federation.num_clients", "federation.clients"),
        ("federation.fraction_fit", "federation.cohort"),
        ("federation.num-server-rounds", "federation.rounds"),
        ("federation.gamma", "federation.capacities"),
        ("federation.epochs", "local.epochs"),
        ("method.gamma", "method.capacity"),
        ("data.alpha", "data.partition.alpha"),
        ("data.dataset", "data.name"),
        ("data.partition.shards_per_client", "data.partition.classes_per_client"),
        ("model.arch", "model.name"),
        ("model.hidden_dim", "model.options.hidden"),
        ("method.algorithm", "method.name"),
        ("evaluation.eval_gap", "evaluation.every"),
        ("run.save_every", "run.checkpoint_every"),
        ("run.seed", "seed"),
        ("learning_rate", "local.lr"),
        ("num_clients", "federation.clients"),
        ("random_seed", "seed"),
        ("alpha", "data.partition.alpha"),
        ("device", "--device of the command line"),
        ("run.num_workers", "--workers of the command line"),
        ("data.root", "--data-dir of the command line"),
        ("local.lrr", "local.lr"),  # a slip of the pen
        ("federation.client", "federation.clients"),
    ],
)
def test_the_key_that_is_meant_is_named(experiment, capsys, written, meant):
    assert main(["run", str(experiment), f"{written}=1", "--dry-run"]) == 2
    assert capsys.readouterr().err == f"fedfibos: command line: unknown key '{written}'; did you mean '{meant}'?\n"


def test_a_key_that_nobody_knows_is_answered_with_where_they_are_listed(experiment, capsys):
    assert main(["run", str(experiment), "local.zzz=1", "--dry-run"]) == 2
    assert capsys.readouterr().err == "fedfibos: command line: unknown key 'local.zzz'; see: fedfibos settings local\n"
    assert main(["run", str(experiment), "run.zzz=1", "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "unknown key 'run.zzz'; it must be one of 'run.checkpoint_every', " in err


def test_every_synonym_leads_to_a_key_that_there_is():
    keys = {f"{section}.{name}" for section, cls in SECTIONS.items() for name in field_names(cls)}
    keys |= {f"data.partition.{name}" for name in field_names(Partition)} | {
        "seed",
        "method.capacity",
        "method.server_lr",
    }
    keys |= {"model.options.hidden", "model.options.channels"}
    for key in {*ELSEWHERE, *WITHIN.values()}:
        assert key in keys or key.startswith("--"), key
    words = [word for text in ELSEWHERE.values() for word in text.split()]
    assert len(words) == len(OURS), sorted(word for word in OURS if words.count(word) > 1)


def test_a_synonym_of_a_key_that_is_not_there_is_none():
    assert synonym("method.gamma", ["local.lr"]) is None
    assert synonym("x.hidden_dim", ["model.options.*"]) == "model.options.hidden"


@pytest.mark.parametrize(
    ("written", "known", "said"),
    [
        ("SGD", ["sgd", "adamw"], "; did you mean 'sgd'?"),
        ("Adam", ["sgd", "adamw"], "; did you mean 'adamw'?"),
        ("CIFAR-10", ["cifar10", "cifar100"], "; did you mean 'cifar10'?"),
        ("Hetero_FL", ["heterofl", "fedavg"], "; did you mean 'heterofl'?"),
        ("zzz", ["sgd"], ""),
    ],
)
def test_capitals_hyphens_and_underscores_do_not_hide_a_name(written, known, said):
    assert did_you_mean(written, known) == said
