"""Experiment files: types, overrides, bases, presets, round trip, and errors of one line."""

import pickle
import tomllib
from pathlib import Path

import pytest

from fedfibos.common.validation import ExperimentError
from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.experiment import Experiment, load_experiment, to_toml
from fedfibos.config.federation import Federation
from fedfibos.config.sections import Data
from fedfibos.data.partition import Partition
from fedfibos.methods import FedAvg, FedFIbOS
from fedfibos.training import LocalTraining
from small_experiment import small_experiment

DIGITS = Path(__file__).parents[2] / "experiments" / "digits" / "fedfibos.toml"


@pytest.fixture
def minimal(experiment_file):
    """An experiment with no setting that has a default."""
    return experiment_file(
        "federation = { clients = 20, cohort = 10, rounds = 5 }",
        without=("data", "local", "model.options", "federation.capacities"),
        name="minimal.toml",
    )


def test_defaults_are_filled_in(minimal):
    experiment = load_experiment(minimal)
    assert (experiment.seed, experiment.data, experiment.local) == (0, Data(), LocalTraining(epochs=1))
    assert experiment.federation.capacities == {1.0: 0.2, 0.5: 0.2, 0.25: 0.2, 0.125: 0.2, 0.0625: 0.2}
    assert experiment.model.norm == "none"
    assert experiment.model.options == {"hidden": [200, 200]}
    assert (experiment.evaluation.every, experiment.evaluation.submodel_clients) == (10, None)
    assert experiment.build_method() == FedFIbOS()


@pytest.mark.parametrize(
    ("override", "read", "expected"),
    [
        ("seed=7", lambda e: e.seed, 7),
        ("local.lr=1", lambda e: e.local.lr, 1.0),
        ("local.lr=.5", lambda e: e.local.lr, 0.5),
        ("local.lr=1e-3", lambda e: e.local.lr, 0.001),
        ("local.milestones=[3, 4]", lambda e: e.local.milestones, (3, 4)),
        ("local.betas=[0.5, 0.9]", lambda e: e.local.betas, (0.5, 0.9)),
        ("local.optimizer=adamw", lambda e: e.local.optimizer, "adamw"),
        ('local.optimizer = "adamw"', lambda e: e.local.optimizer, "adamw"),
        ("data.partition.scheme=dirichlet-by-class", lambda e: e.data.partition.scheme, "dirichlet-by-class"),
        ("model.options.hidden=[8]", lambda e: e.model.options, {"hidden": [8]}),
        ("method.sharing=client", lambda e: e.build_method(), FedFIbOS(sharing="client")),
        ("evaluation.submodel_clients=3", lambda e: e.evaluation.submodel_clients, 3),
        (
            "federation.capacities={1.0 = 0.5, 0.5 = 0.25, 0.25 = 0.25}",  # dotted keys, to TOML
            lambda e: e.federation.capacities,
            {1.0: 0.5, 0.5: 0.25, 0.25: 0.25},
        ),
        ('federation.capacities={"1" = 0.5, "0.1" = 0.5}', lambda e: e.federation.capacities, {1.0: 0.5, 0.1: 0.5}),
        (
            "federation.capacities=non-uniform",
            lambda e: e.federation.capacities,
            {1.0: 0.1, 0.5: 0.1, 0.25: 0.3, 0.125: 0.3, 0.0625: 0.2},
        ),
    ],
)
def test_overrides_are_typed_by_the_field(minimal, override, read, expected):
    value = read(load_experiment(minimal, [override]))
    assert value == expected
    assert type(value) is type(expected)


def test_the_last_override_wins(minimal):
    assert load_experiment(minimal, ["seed=1", "seed=2"]).seed == 2


def test_capacities_are_ordered_from_large_to_small(minimal):
    experiment = load_experiment(minimal, ["federation.capacities={0.25=0.5, 1.0=0.5}"])
    assert list(experiment.federation.capacities) == [1.0, 0.25]


def test_steps_and_epochs_replace_each_other_across_layers(experiment_file):
    path = experiment_file("local.epochs = 3", without=("local.steps",))
    assert load_experiment(path, ["local.steps=25"]).local == LocalTraining(steps=25)
    path = experiment_file("local = { epochs = 3, steps = 2 }")
    with pytest.raises(ExperimentError, match="set steps or epochs, not both, got steps=2 and epochs=3"):
        load_experiment(path)


def test_a_preset_gives_fields_that_explicit_ones_override(minimal):
    assert load_experiment(minimal, ["method.preset=algorithm1"]).build_method() == FedFIbOS(
        fisher="dense", prior="magnitude", criterion="fisher", scope="global", sharing="client", average="participants"
    )
    both = load_experiment(minimal, ["method.preset=algorithm1", "method.average=holders"]).build_method()
    assert (both.sharing, both.average) == ("client", "holders")


def test_another_method_preset_or_model_leaves_the_old_settings_behind(experiment_file):
    path = experiment_file('method.sharing = "blend"\nmodel.options = { hidden = [3] }')
    assert load_experiment(path, ["method.name=fedavg"]).build_method() == FedAvg()
    assert load_experiment(path, ["method.preset=algorithm1"]).build_method().sharing == "client"
    assert load_experiment(path, ["method.ema_rate=0.5"]).build_method() == FedFIbOS(sharing="blend", ema_rate=0.5)
    assert "hidden" not in load_experiment(path, ["model.name=cnn"]).model.options


def test_another_partition_scheme_leaves_the_settings_of_the_old_one_behind(experiment_file):
    path = experiment_file('data.partition = { scheme = "pathological", classes_per_client = 3, min_size = 5 }')
    assert load_experiment(path).data.partition == Partition("pathological", classes_per_client=3, min_size=5)
    assert load_experiment(path, ["data.partition.alpha=1.0"]).data.partition.classes_per_client == 3
    assert load_experiment(path, ["data.partition.scheme=iid"]).data.partition == Partition("iid")
    path = experiment_file("data.partition.alpha = 0.1")  # of the default scheme
    assert load_experiment(path, ["data.partition.scheme=dirichlet"]).data.partition.alpha == 0.1
    assert load_experiment(path, ["data.partition.scheme=iid"]).data.partition == Partition("iid")


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_a_command_line_is_of_no_account(minimal, order):
    """What is typed beside another method, preset or scheme belongs to it."""
    overrides = ["method.ema_rate=0.5", "method.preset=algorithm1", "data.partition.min_size=5",
                 "data.partition.scheme=dirichlet-by-class", "seed=4"]  # fmt: skip
    experiment = load_experiment(minimal, overrides[::order])
    assert experiment.build_method().ema_rate == 0.5
    assert experiment.build_method().sharing == "client"
    assert experiment.data.partition == Partition("dirichlet-by-class", min_size=5)
    assert load_experiment(minimal, ["seed=1", "seed=2"]).seed == 2  # of one key typed twice, the last
    both = load_experiment(minimal, ["local.steps=4", "local.epochs=2"]).local  # the later stands in for the earlier
    assert (both.steps, both.epochs) == (None, 2)
    halves = ["federation.capacities.1.0=0.5", "federation.capacities.0.5=0.5"]
    assert load_experiment(minimal, halves[::order]).federation.capacities == {1.0: 0.5, 0.5: 0.5}


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["method.preset=algorithm1", "local.steps=3", "local.lr=0.1", "seed=9"],
        ["method.name=fedavg", "method.capacity=0.0625", "model.name=resnet8", "model.norm=batch"],
        ["federation.capacities={1.0=0.5, 0.3333333333333333=0.5}", "evaluation.submodel_clients=2"],
        ["data.partition.scheme=pathological", "local.optimizer=adamw", "local.milestones=[1,2]"],
    ],
)
def test_the_resolved_file_gives_the_same_experiment(minimal, tmp_path, overrides):
    experiment = load_experiment(minimal, overrides)
    resolved = tmp_path / "config.toml"
    resolved.write_text(to_toml(experiment))
    assert load_experiment(resolved) == experiment
    assert load_experiment(tmp_path) == experiment  # a run directory
    assert to_toml(load_experiment(resolved)) == to_toml(experiment)


def test_the_resolved_file_lists_every_field_of_the_method(minimal):
    text = to_toml(load_experiment(minimal))
    for line in ('fisher = "held"', 'prior = "none"', "ema_rate = 0.8", "blend = 0.2", 'norm = "none"'):
        assert f"\n{line}\n" in text


def test_an_experiment_survives_pickling(minimal):
    experiment = load_experiment(minimal, ["method.preset=algorithm1"])
    assert pickle.loads(pickle.dumps(experiment)) == experiment


def test_an_experiment_written_in_python_equals_the_file(minimal):
    assert load_experiment(minimal) == Experiment(
        model=ModelChoice("mlp"),
        federation=Federation(clients=20, cohort=10, rounds=5, capacities="uniform"),
        method=MethodChoice("fedfibos"),
    )
    with pytest.raises(ValueError, match="cohort must be at most clients, 3, got 4"):
        Federation(clients=3, cohort=4, rounds=1, capacities={1.0: 1.0})


def test_a_file_holds_what_differs_from_its_base(minimal, tmp_path):
    (tmp_path / "study").mkdir()
    derived = tmp_path / "study" / "fedavg.toml"
    derived.write_text('base = "../minimal.toml"\nseed = 4\n[method]\nname = "fedavg"\n[federation]\nrounds = 9\n')
    experiment = load_experiment(derived, ["federation.cohort=2"])
    assert (experiment.seed, experiment.build_method()) == (4, FedAvg())
    federation = experiment.federation
    assert (federation.clients, federation.cohort, federation.rounds) == (20, 2, 9)


FILES = [
    path
    for path in sorted((Path(__file__).parents[2] / "experiments").rglob("*.toml"))
    if not {"grid", "study"} & tomllib.loads(path.read_text()).keys()  # studies: tests/simulation/test_sweep.py
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_experiment_file_of_the_repository_is_valid(path, tmp_path):
    experiment = load_experiment(path)
    (tmp_path / "config.toml").write_text(to_toml(experiment))
    assert load_experiment(tmp_path) == experiment


def test_the_derived_digits_experiments():
    files = {path.stem: path for path in FILES if path.parent.name == "digits"}
    base, letter, ceiling = (load_experiment(files[name]) for name in ("fedfibos", "algorithm1", "fedavg"))
    assert base.build_method() == FedFIbOS()
    assert (letter.build_method().sharing, letter.local) == ("client", base.local)
    assert (ceiling.build_method(), ceiling.federation.capacities) == (FedAvg(), {1.0: 1.0})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("foo", "an override must be section.key=value, got 'foo'"),
        ("lr=0.1", "command line: unknown key 'lr'; did you mean 'local.lr'?"),
        ("local.lrr=1", "command line: unknown key 'local.lrr'; did you mean 'local.lr'?"),
        ("local.cohort=1", "command line: unknown key 'local.cohort'; did you mean 'federation.cohort'?"),
        ("loca.xyz=1", "command line: unknown key 'loca'; did you mean 'local'?"),
        (
            "data.partition.alph=1",
            "command line: unknown key 'data.partition.alph'; did you mean 'data.partition.alpha'?",
        ),
        ("method.shaing=client", "command line: unknown key 'method.shaing'; did you mean 'method.sharing'?"),
        (
            "model.options.hiden=[1]",
            "command line: unknown key 'model.options.hiden'; did you mean 'model.options.hidden'?",
        ),
        ("local.lr=abc", "command line: local.lr must be a number, got 'abc'"),
        ("local.betas=[1.5, 2]", "command line: local.betas must be two numbers in [0, 1), got [1.5, 2.0]"),
        ("local.decay=0", "command line: local.decay must be a positive number, got 0.0"),
        ("local.milestones=[-1]", "command line: local.milestones must be rounds, 0 or later, got [-1]"),
        ("method.server_lr=inf", "command line: method.server_lr must be a finite number, got inf"),
        ("local.lr=-1", "command line: local.lr must be a positive number, got -1.0"),
        ("local.lr=nan", "command line: local.lr must be a finite number, got nan"),
        ("local.lr.x=1", "command line: local.lr must be a number, got {'x': 1}"),
        ("local.steps=0", "command line: local.steps must be at least 1, got 0"),
        ("local.steps=1e3", "command line: local.steps must be an integer, got 1000.0"),
        ("local.steps=2.5", "command line: local.steps must be an integer, got 2.5"),
        ("local.milestones=[1,2.5]", "command line: local.milestones.1 must be an integer, got 2.5"),
        ("local=3", "command line: local must be a table, got 3"),
        (
            "data.partition=iid",
            "command line: data.partition must be a table, got 'iid'; did you mean data.partition.scheme = 'iid'?",
        ),
        ("method=fiarse", "command line: method must be a table, got 'fiarse'; did you mean method.name = 'fiarse'?"),
        ("method={name=x}", "command line: method must be a table, got '{name=x}'"),
        ("local.betas=[0.9]", "command line: local.betas must be an array of 2, got [0.9]"),
        ("local.betas=[]", "command line: local.betas must be an array of 2, got []"),
        ("method.name=mine.py:Net", "current folder or among what is installed; did you mean 'mine:Net'?"),
        (
            "data.partition.scheme=iidd",
            "command line: data.partition.scheme must be one of 'iid', 'quantity', 'pathological', 'dirichlet', "
            "'dirichlet-by-class' or 'natural', got 'iidd'; did you mean 'iid'?",
        ),
        (
            "data.partition.alpha=0",
            "command line: data.partition.alpha must be above 0 (from 1e-100) and finite, got 0.0",
        ),
        ("seed=-1", "command line: seed must be at least 0, got -1"),
        ("seed=x", "command line: seed must be an integer, got 'x'"),
        ("federation.rounds=0", "command line: federation.rounds must be at least 1, got 0"),
        ("federation.rounds=true", "command line: federation.rounds must be an integer, got true"),
        ("federation.cohort=30", "command line: federation.cohort must be at most clients, 20, got 30"),
        (
            "federation.capacities=unifrm",
            "command line: federation.capacities must be one of 'uniform', 'non-uniform', got 'unifrm'; "
            "did you mean 'uniform'?",
        ),
        (
            "federation.capacities={0.5=0.3}",
            "command line: federation: the shares of the capacities must sum to 1, got 0.3",
        ),
        (
            'federation.capacities={"a"=1}',
            "command line: federation.capacities must be numbers in (0, 1] = shares of the clients, got 'a'",
        ),
        ("data.name=mine", "'leaf:PATH', 'hf:PATH', or your own function as 'module:function', got 'mine'"),
        ("data.name=mine.py:data", "got 'mine.py:data'; did you mean 'mine:data'?"),
        ("data.name=CSV:rows.csv", "got 'CSV:rows.csv'; did you mean 'csv:rows.csv'?"),
        ("federation.capacities={2.0=1}", "command line: federation.capacities: capacity must be in (0, 1], got 2"),
        ("federation.capacities={0.0=1}", "command line: federation.capacities: capacity must be in (0, 1], got 0"),
        ("federation.capacities={-1=1}", "command line: federation.capacities: capacity must be in (0, 1], got -1"),
        (
            "federation.capacities={x=1}",
            "command line: federation.capacities must be numbers in (0, 1] = shares of the clients, got 'x'",
        ),
        (
            'federation.capacities={"0.5"=0.5, "0.50"=0.5}',
            "command line: federation.capacities must differ, got 0.5 twice",
        ),
        ("federation.capacities={1.0=true}", "command line: federation.capacities.1.0 must be a number, got true"),
        ("evaluation.every=0", "command line: evaluation.every must be at least 1, got 0"),
        ("method.sharing=cliet", "must be one of 'shared', 'client' or 'blend', got 'cliet'; did you mean 'client'?"),
        ("method.ema_rate=1", "command line: method.ema_rate must be in [0, 1), got 1.0"),
        (
            "method.preset=algorithm2",
            "method.preset of fedfibos must be one of 'recommended', 'algorithm1', got 'algorithm2'; did you mean ",
        ),
        ("method.name=fedfibo", "got 'fedfibo'; did you mean 'fedfibos'?"),
        ("model.name=resnet", "got 'resnet'; did you mean 'resnet8'?"),
        ("model.norm=btch", "model.norm must be one of 'group', 'batch' or 'none', got 'btch'; did you mean 'batch'?"),
        ("model.options.hidden=3", "command line: model.options.hidden must be an array, got 3"),
        ("data.name=digit", "got 'digit'; did you mean 'digits'?"),
    ],
)
def test_bad_settings_are_one_line(minimal, override, message):
    with pytest.raises(ExperimentError) as caught:
        load_experiment(minimal, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model", "is not valid TOML"),
        ("[modell]\n", "unknown key 'modell'; did you mean 'model'?"),
        ("", "model.name is missing: it must be one of 'mlp', 'cnn', "),
        ('[model]\nname = "mlp"\n', "federation.clients is missing, and has no default"),
        (small_experiment(without=("method.name",)), "method.name is missing: it must be one of 'fedavg', "),
        ("base = 3\n", "base must be the name of a file, got 3"),
        ('base = "wrong.toml"\n', "base must not lead back to the same file"),
        (small_experiment("local.lr = true"), "local.lr must be a number, got true"),
        (small_experiment("local.lr = 1979-05-27"), "local.lr must be a number, got '1979-05-27'"),
        (small_experiment('federation.cohort = "ten"'), "federation.cohort must be an integer, got 'ten'"),
    ],
)
def test_bad_files_are_one_line_that_names_the_file(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path)
    assert str(caught.value).startswith(f"{path}: ") or "base must not" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(ExperimentError, match=r"nowhere\.toml: cannot be read: No such file or directory"):
        load_experiment(tmp_path / "nowhere.toml")


def test_the_message_names_the_file_that_wrote_the_value(experiment_file, tmp_path):
    experiment_file("local.batch_size = 0", name="minimal.toml")
    derived = tmp_path / "derived.toml"
    derived.write_text('base = "minimal.toml"\n[local]\nlr = 0.5\n')
    with pytest.raises(ExperimentError, match=r"minimal\.toml: local\.batch_size must be at least 1, got 0"):
        load_experiment(derived)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    text = DIGITS.read_text()
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_experiment(tmp_path / "marked.toml") == load_experiment(DIGITS)


def test_a_seed_beyond_64_bits_is_one_line(tmp_path):
    with pytest.raises(ExperimentError, match="seed must be below 9223372036854775808"):
        load_experiment(DIGITS, [f"seed={10**23}"])


@pytest.mark.parametrize(
    ("written", "override", "said"),
    [
        (
            "federation.capacities={1.0=0.25,0.5=0.25}",
            "federation.rounds=4",
            "the shares of the capacities must sum to 1, got 0.5",
        ),
        ("local={steps=2,epochs=1}", "local.lr=0.1", "set steps or epochs, not both"),
        (
            "federation={clients=2,assigned=[1.0,1.5]}",
            "federation.rounds=4",
            "federation.assigned must be capacities in (0, 1], got 1.5 for client 1",
        ),
    ],
)
def test_a_fault_of_the_file_is_not_the_command_lines(experiment_file, written, override, said):
    path = experiment_file(written)
    with pytest.raises(ExperimentError) as error:
        load_experiment(path, [override])
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)
