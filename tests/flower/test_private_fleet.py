"""A private fleet: the simulator's bytes and epsilon, its own seed, going on, faults, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from local_grid import Deployment, experiment_of, lines_of, template_config

from fedfibos.flower.task import task_of
from fedfibos.models import build
from fedfibos.privacy.accountant import exact
from fedfibos.round import sample
from fedfibos.simulation import simulate

PRIVATE = (
    "model.options.channels=[4, 16]",
    "federation.rounds=2",
    "local.steps=1",
    "privacy.clip=0.5",
    "privacy.noise=2.0",
    "privacy.statistic_clip=0.1",
    "privacy.statistic_noise=4.0",
    "privacy.delta=0.01",
    "privacy.sampling=known",
)


def private(tmp_path, *overrides):
    return experiment_of(tmp_path, *PRIVATE, *overrides)


@pytest.mark.parametrize("method", ["fedfibos", "fedfibos-channels", "heterofl"])
def test_flower_gives_the_simulators_parameters_and_epsilon(tmp_path, method):
    experiment = private(tmp_path, f"method.name={method}", "privacy.seed=5")
    simulated = simulate(experiment, tmp_path / "simulated", workers=1)
    deployed = Deployment(experiment).run(tmp_path / "deployed")
    assert deployed["params_sha256"] == simulated["params_sha256"]
    assert (deployed["epsilon"], deployed["delta"]) == (simulated["epsilon"], 0.01)
    one, other = (lines_of(tmp_path / run) for run in ("simulated", "deployed"))
    assert [line["epsilon"] for line in one] == [line["epsilon"] for line in other]
    assert not any("loss" in line for line in other)


def test_without_a_seed_the_noise_is_nobodys_to_know(tmp_path):
    experiment = private(tmp_path, "federation.rounds=1")
    runs = [Deployment(experiment).run(tmp_path / str(n)) for n in range(2)]
    assert runs[0]["params_sha256"] != runs[1]["params_sha256"]
    assert runs[0]["epsilon"] == runs[1]["epsilon"] == pytest.approx(exact(1 / 4 + 1 / 16, 0.01))


def test_a_server_that_goes_on_knows_what_was_spent(tmp_path):
    experiment = private(tmp_path, "privacy.seed=5", "federation.rounds=3")
    whole = Deployment(experiment).run(tmp_path / "whole")
    part = Deployment(experiment)
    task = part.task
    part.task = replace(task, federation=replace(task.federation, rounds=2))
    part.run(tmp_path / "part")
    part.task = task
    later = part.run(tmp_path / "part", resume=True)
    assert later["params_sha256"] == whole["params_sha256"]
    assert [line["epsilon"] for line in lines_of(tmp_path / "part")] == [
        line["epsilon"] for line in lines_of(tmp_path / "whole")
    ]


def test_a_client_that_does_not_answer_counts_as_asked(tmp_path):
    """It moves no denominator: its update is 0, and its part of epsilon is spent."""
    experiment = private(tmp_path, "privacy.seed=5", "federation.rounds=1", "method.name=fedavg")
    digests, sums = [], []
    for silent in (False, True):
        deployment = Deployment(experiment)
        client = sample(6, 4, 0, 0)[0]
        if silent:
            deployment.node(client).tamper = lambda asked, reply: (
                [] if asked.metadata.message_type == "train" else [reply]
            )
        final = deployment.run(tmp_path / str(silent))
        (line,) = lines_of(tmp_path / str(silent))
        digests.append(final["params_sha256"])
        sums.append(line["epsilon"])
        assert list(line["rejected"]) == ([str(client)] if silent else [])
    assert digests[0] != digests[1]
    assert sums[0] == sums[1] == pytest.approx(exact(1 / 4, 0.01))


@pytest.mark.parametrize(
    ("overrides", "fields", "message"),
    [
        (("privacy.sampling=fixed",), {}, "over Flower who takes part is no secret: set privacy.sampling = 'known'"),
        (("method.sharing=client",), {}, "sharing = 'shared' does not"),
        ((), {"weighting": "samples"}, "set federation.weighting = 'uniform'"),
        ((), {"extra": 1}, "set federation.extra = 0, got 1"),
        ((), {"client_records": True}, "set federation.client_records = false"),
        ((), {"best": "loss"}, "choose another federation.best"),
        ((), {"checkpoint_every": 2}, "set federation.checkpoint_every = 1, got 2"),
    ],
)
def test_what_cannot_be_private_is_refused_before_anybody_is_asked(tmp_path, overrides, fields, message):
    plain = experiment_of(tmp_path)
    private_one = replace(
        experiment_of(tmp_path, *(o for o in overrides if o.startswith("method"))),
        privacy=private(tmp_path, *(o for o in overrides if o.startswith("privacy"))).privacy,
    )
    deployment = Deployment(plain, **fields)
    task = deployment.task
    deployment.task = replace(task, method=private_one.build_method(), privacy=private_one.privacy)
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        deployment.run(tmp_path / "run")


def test_the_run_configuration_has_the_section(tmp_path):
    example = torch.zeros(2, 1, 8, 8)
    module = build("mlp", 10, (1, 8, 8), seed=0, hidden=(8,))
    config = template_config(**{"privacy.clip": 1.0, "privacy.noise": 2.0, "privacy.sampling": "known"})
    task = task_of(module, config, example=example)
    assert (task.privacy.clip, task.privacy.noise, task.privacy.sampling) == (1.0, 2.0, "known")
    assert "[privacy]\nclip = 1.0\nnoise = 2.0\n" in task.settings
    assert "privacy" not in task_of(module, template_config(), example=example).settings
    with pytest.raises(ValueError, match="got 'nosie'; did you mean 'noise'"):
        task_of(module, {**config, "privacy.nosie": 1.0}, example=example)
