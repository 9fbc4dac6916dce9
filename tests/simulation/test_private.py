"""A private simulation: its record, its cohorts and denominators, going on with it, and what it refuses."""

import json

import pytest
import torch

from fedfibos.cli import main
from fedfibos.cli.progress import loss_of
from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment
from fedfibos.privacy.accountant import exact
from fedfibos.round import sample, sample_poisson
from fedfibos.runs.checkpoint import CheckpointStore
from fedfibos.simulation import Stopped, build_world, simulate
from fedfibos.simulation.dropout import draw_silent

CHANGES = """
seed = 3
federation = { clients = 10, cohort = 4, rounds = 4, capacities = { 1.0 = 0.2, 0.25 = 0.8 } }
evaluation.every = 4
run.checkpoint_every = 1
privacy = { clip = 0.5, noise = 2.0, statistic_clip = 0.1, statistic_noise = 4.0, delta = 0.01 }
"""


@pytest.fixture
def toml(experiment_file):
    return experiment_file(CHANGES)


def run(toml, out, *overrides, **options):
    return simulate(load_experiment(toml, overrides), out, **{"workers": 1, **options})


def lines(out):
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def known(line):
    return {key: value for key, value in line.items() if key != "seconds"}


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "known"])
def test_every_line_has_epsilon_and_none_the_clients_loss(toml, tmp_path, sampling):
    final = run(toml, tmp_path / "run", f"privacy.sampling={sampling}")
    found = lines(tmp_path / "run")
    spent = [line["epsilon"] for line in found]
    assert spent == sorted(spent)
    assert spent[0] > 0
    assert not any("loss" in line for line in found)
    assert (final["epsilon"], final["delta"]) == (spent[-1], 0.01)


def test_a_run_that_went_on_is_the_run_that_was_never_stopped(toml, tmp_path):
    for sampling in ("fixed", "known"):
        whole, parts = tmp_path / f"whole-{sampling}", tmp_path / f"parts-{sampling}"
        at_once = run(toml, whole, f"privacy.sampling={sampling}")
        with pytest.raises(Stopped):
            run(toml, parts, f"privacy.sampling={sampling}", on_round=lambda record: "stop" * (record["round"] == 2))
        later = run(toml, parts, f"privacy.sampling={sampling}", resume=True)
        assert later["params_sha256"] == at_once["params_sha256"]
        assert list(map(known, lines(parts))) == list(map(known, lines(whole)))


def test_the_bytes_do_not_depend_on_the_number_of_workers(toml, tmp_path):
    one, two = (run(toml, tmp_path / str(n), "federation.rounds=2", workers=n) for n in (1, 2))
    assert one["params_sha256"] == two["params_sha256"]


def test_noise_has_a_seed_of_its_own_where_it_is_given(toml, tmp_path):
    digests = {
        seed: run(toml, tmp_path / str(seed), "federation.rounds=1", f"privacy.seed={seed}")["params_sha256"]
        for seed in (3, 4)
    }
    assert run(toml, tmp_path / "unset", "federation.rounds=1")["params_sha256"] == digests[3] != digests[4]


def params_of(experiment, out):
    world = build_world(experiment)
    return CheckpointStore(out).load_latest(world.model.layout, print).params.flat


@pytest.mark.parametrize("method", ["fedavg", "heterofl", "fiarse", "fedfibos", "fedfibos-channels"])
def test_with_bounds_out_of_reach_and_no_noise_to_speak_of_everybody_gives_the_plain_run(
    toml, experiment_file, tmp_path, method
):
    all_of_them = ["federation.cohort=10", f"method.name={method}", "federation.rounds=2"]
    far = ["privacy.clip=100.0", "privacy.noise=1e-8", "privacy.statistic_clip=100.0", "privacy.statistic_noise=1e-10"]
    run(toml, tmp_path / "private", *all_of_them, *far)
    plain = experiment_file(CHANGES, without=["privacy"], name="plain.toml")
    run(plain, tmp_path / "plain", *all_of_them)
    one, other = (params_of(load_experiment(toml, all_of_them), tmp_path / name) for name in ("private", "plain"))
    assert torch.allclose(one, other, atol=1e-5)
    assert not torch.equal(one, build_world(load_experiment(toml, all_of_them)).model.initial_params().flat)


def test_levels_of_a_secret_cohort_are_the_fleets_shares_of_it(toml):
    for sampling in ("fixed", "poisson"):
        population = build_world(load_experiment(toml, [f"privacy.sampling={sampling}"])).population
        for cohort in (population.cohort(4, 0), []):
            levels = population.levels(cohort, 4, 0)
            assert [(level.client.capacity, level.expected) for level in levels] == [(1.0, 0.8), (0.25, 3.2)]


def test_levels_of_a_known_cohort_are_its_own(toml):
    population = build_world(load_experiment(toml, ["privacy.sampling=known"])).population
    for t in range(6):
        cohort = population.cohort(4, t)
        capacities = population.capacities.of(cohort, t)
        found = {level.client.capacity: level.expected for level in population.levels(cohort, 4, t)}
        assert found == {capacity: capacities.count(capacity) for capacity in set(capacities)}


def test_epsilon_of_known_cohorts_is_that_of_the_busiest_client(toml, tmp_path):
    run(toml, tmp_path / "run", "privacy.sampling=known")
    cohorts = [sample(10, 4, 3, t) for t in range(4)]
    for t, line in enumerate(lines(tmp_path / "run")):
        most = max(sum(n in cohort for cohort in cohorts[: t + 1]) for n in range(10))
        assert line["epsilon"] == pytest.approx(exact(most * (1 / 4 + 1 / 16), 0.01))


def test_poisson_cohorts_are_drawn_client_by_client():
    sizes = [len(sample_poisson(50, 10, 0, t)) for t in range(400)]
    assert sum(sizes) / 400 == pytest.approx(10, abs=0.5)
    assert min(sizes) < 5 < 15 < max(sizes)
    assert sample_poisson(50, 50, 0, 0) == list(range(50))
    assert sample_poisson(8, 4, 0, 1) == [0, 5, 6]
    assert [] in [sample_poisson(3, 1, 0, t) for t in range(20)]


def test_a_round_in_which_nobody_takes_part_or_answers_is_still_released(toml, tmp_path):
    overrides = ["privacy.sampling=poisson", "federation.cohort=1", "federation.dropout=0.6"]
    run(toml, tmp_path / "run", *overrides, "federation.rounds=6")
    found = lines(tmp_path / "run")
    assert not any("skipped_round" in line for line in found)
    assert [sample_poisson(10, 1, 3, t) for t in (1, 2, 4)] == [[], [], []]
    assert found[0]["silent"] == sample_poisson(10, 1, 3, 0) != []


def test_all_of_a_private_cohort_may_be_silent():
    assert draw_silent([1, 2], 0.999, 0, 0, one_answers=False) == {1, 2}
    assert len(draw_silent([1, 2], 0.999, 0, 0)) == 1
    assert draw_silent([], 0.5, 0, 0, one_answers=False) == frozenset()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("federation.weighting=samples", "equal weight, got federation.weighting = 'samples': set 'uniform'"),
        ("run.client_records=true", "got run.client_records = true: leave it out"),
        ("checkpoint.best=loss", "under privacy no training loss is on record"),
        ("privacy.delta=0.2", "privacy.delta must be below 1 / clients = 0.1"),
        ("method.sharing=client", "sharing = 'shared' does not"),
        ("local.scaffold=true", "local.proximal needs none"),
        ("server.merge=median", "set server.merge = 'mean'"),
    ],
)
def test_what_cannot_be_private_is_one_line_and_exit_status_2(toml, tmp_path, capsys, override, message):
    assert main(["run", str(toml), override, "--out", str(tmp_path / "run"), "--workers", "1"]) == 2
    said = capsys.readouterr().err.strip()
    assert message in " ".join(said.split())


def test_devices_whose_capacity_follows_from_numbers_of_examples_are_refused(experiment_file):
    toml = experiment_file(CHANGES, without=["federation.capacities"])
    devices = "federation.devices=[{ name = 'a', share = 1.0, macs_per_second = 1e6, seconds = 10 }]"
    with pytest.raises(ValueError, match=r"got federation\.devices with local\.epochs: set local\.steps"):
        build_world(load_experiment(toml, [devices, "local.epochs=1", "method.name=heterofl"]))


def test_the_screen_shows_what_is_spent_in_place_of_the_loss(toml, tmp_path, capsys):
    assert main(["run", str(toml), "federation.rounds=1", "--out", str(tmp_path / "run"), "--workers", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    epsilon = lines(tmp_path / "run")[0]["epsilon"]
    assert f"round 1/1 epsilon {epsilon:.3g} global" in said
    assert f"differential privacy of clients: epsilon {epsilon:.3g} at delta 0.01" in said
    assert loss_of({"epsilon": 1.234}) == "epsilon 1.23"
    assert loss_of({"loss": 0.5}) == "loss 0.500"
    assert loss_of({"skipped_round": "why", "epsilon": 1.0}) == "skipped"


def test_a_section_that_lacks_a_key_is_one_line(experiment_file):
    toml = experiment_file(CHANGES, without=["privacy.noise"])
    with pytest.raises(ExperimentError, match=r"privacy\.noise is missing"):
        load_experiment(toml)
