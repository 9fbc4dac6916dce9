"""A server that stops goes on to the same parameters, whoever holds the scores."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace

import pytest
from local_grid import Deployment, LocalGrid, experiment_of, lines_of
from safetensors import safe_open
from safetensors.torch import save_file

from fedfibos.flower.serving import serve
from fedfibos.round import NoUploadError

BAD = 2


def everyone(tmp_path, *overrides):
    return experiment_of(tmp_path, "federation.cohort=6", "federation.rounds=2", "method.name=fedfibos", *overrides)


def in_training_only(tamper):
    return lambda asked, reply: tamper(asked, reply) if asked.metadata.message_type == "train" else [reply]


def stops_after(deployment, uploads, out):
    """A run in which nobody answers after so many uploads, and then everybody would again."""
    trained = []

    def dies(asked, reply):
        trained.append(asked)
        return [] if len(trained) > uploads else [reply]

    for node in deployment.nodes.values():
        node.tamper = in_training_only(dies)
    task = deployment.task
    deployment.task = replace(task, federation=replace(task.federation, patience=1))
    with pytest.raises(NoUploadError):
        deployment.run(out)
    deployment.task = task
    for node in deployment.nodes.values():
        node.tamper = None


@pytest.mark.slow_where("2-", "-blend")
@pytest.mark.parametrize(("scores", "sharing"), [("server", "client"), ("client", "client"), ("client", "blend")])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_server_that_stops_goes_on_to_the_same_parameters(tmp_path, scores, sharing, lost):
    """The run is cut after round 3, and so are ``lost`` rounds of checkpoints."""
    settings = (f"method.sharing={sharing}", "federation.rounds=5", "federation.cohort=4")
    experiment = everyone(tmp_path, *settings)
    state = {"state_dir": tmp_path / "devices"} if scores == "client" else {}
    whole = Deployment(experiment, **(state and {"state_dir": tmp_path / "others"}), scores=scores).run(
        tmp_path / "whole"
    )

    deployment = Deployment(experiment, **state, scores=scores)
    stops_after(deployment, 12, tmp_path / "run")
    if lost == 2:
        shutil.rmtree(tmp_path / "run/checkpoint/round-000003")
    resumed = deployment.run(tmp_path / "run", resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]
    assert [line["round"] for line in lines_of(tmp_path / "run")] == [1, 2, 3, 4, 5]


def test_a_client_that_lost_its_score_is_named(tmp_path):
    experiment = everyone(tmp_path, "method.sharing=client")
    deployment = Deployment(experiment, state_dir=tmp_path / "devices", scores="client")

    def loses(asked, reply):
        for file in (tmp_path / "devices").glob(f"score-{BAD}-*.safetensors"):
            file.unlink()
        return [reply]

    deployment.node(BAD).tamper = in_training_only(loses)
    deployment.run(tmp_path / "run")
    first, second = lines_of(tmp_path / "run")
    assert first["rejected"] == {}
    assert "the server last counted round 0" in second["rejected"][str(BAD)]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda row: row.fill_(math.nan), "must be finite and at least 0, got"),
        (lambda row: row.sub_(1e30), "must be finite and at least 0, got"),
        (lambda row: row[:-1].clone(), "must be float32 of shape"),
        (lambda row: row.double(), "got float64 of shape"),
    ],
    ids=["nan", "below 0", "shorter", "double"],
)
def test_a_damaged_score_of_a_client_is_refused_by_name(tmp_path, damage, reason):
    """No selection is made by it; the others go on."""
    experiment = everyone(tmp_path, "method.sharing=client")
    deployment = Deployment(experiment, state_dir=tmp_path / "devices", scores="client")

    def spoils(asked, reply):
        for path in (tmp_path / "devices").glob(f"score-{BAD}-*.safetensors"):
            with safe_open(path, framework="pt") as file:
                metadata, rows = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            save_file({name: damage(row) for name, row in rows.items()}, path, metadata)
        return [reply]

    deployment.node(BAD).tamper = in_training_only(spoils)
    deployment.run(tmp_path / "run")
    first, second = lines_of(tmp_path / "run")
    assert first["rejected"] == {}
    said = second["rejected"][str(BAD)]
    assert reason in said
    assert re.match(r"no mask: score-\d+-[0-9a-f]{16}\.safetensors cannot be read: the score of round 0 must be", said)


@pytest.mark.slow_where("blend")
@pytest.mark.parametrize("sharing", ["client", "blend"])
def test_scores_that_clients_hold_go_on_with_more_rounds(tmp_path, sharing):
    """What a resumption may change makes no other run of it, for the clients' files either."""
    results = {}
    for name, rounds in (("whole", (5,)), ("longer", (3, 5))):
        for number in rounds:
            experiment = everyone(tmp_path, f"method.sharing={sharing}", f"federation.rounds={number}")
            deployment = Deployment(experiment, state_dir=tmp_path / f"devices-{name}", scores="client")
            results[name] = deployment.run(tmp_path / name, resume=number == 5 and name == "longer")
        assert [line["rejected"] for line in lines_of(tmp_path / name)] == [{}] * 5
    assert results["whole"]["params_sha256"] == results["longer"]["params_sha256"]


@pytest.mark.slow_where("4")
@pytest.mark.parametrize("every", [1, 4])
def test_scores_that_clients_hold_go_back_as_far_as_the_server(tmp_path, every):
    """Checkpoints every few rounds: a server that dies goes back by several of a client's uploads."""
    settings = ("method.sharing=client", "federation.rounds=7", "federation.cohort=6")
    experiment = everyone(tmp_path, *settings)
    whole = Deployment(experiment, state_dir=tmp_path / "others", scores="client").run(tmp_path / "whole")
    deployment = Deployment(experiment, state_dir=tmp_path / "devices", scores="client", checkpoint_every=every)
    stops_after(deployment, 6 * 6, tmp_path / "run")  # in round 7
    shutil.rmtree(tmp_path / "run/checkpoint/round-000006")  # as if the process had been killed
    other = Deployment(experiment, state_dir=tmp_path / "devices", scores="client")
    other.task = replace(other.task, settings=other.task.settings.replace("lr = 0.05", "lr = 0.06"))
    other.run(tmp_path / "trial")  # another task on the same devices, in between
    resumed = deployment.run(tmp_path / "run", resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]


def test_an_evaluation_that_fails_loses_no_finished_round(tmp_path):
    experiment = everyone(tmp_path, "federation.rounds=4")
    deployment = Deployment(experiment)
    whole = deployment.run(tmp_path / "whole")["params_sha256"]
    rounds = []

    def fails(done):
        rounds.append(done.number)
        if rounds == [1, 2, 3]:
            raise KeyboardInterrupt
        return {"global": {"full": 0.5, "submodels": {"mean": 0.5}}, "local": {"mean": None, "by_capacity": {}}}

    task = replace(deployment.task, federation=replace(deployment.task.federation, evaluate_every=1))
    with pytest.raises(KeyboardInterrupt):
        serve(task, LocalGrid(deployment.nodes), tmp_path / "run", evaluation=fails)
    final = serve(task, LocalGrid(deployment.nodes), tmp_path / "run", resume=True, evaluation=fails)
    assert final["params_sha256"] == whole
    assert rounds == [1, 2, 3, 3, 4]
