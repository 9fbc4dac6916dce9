"""What a client can do wrong is rejected and named, and the round goes on with the others."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from local_grid import Deployment, experiment_of, lines_of

from fedfibos.data import TensorData
from fedfibos.flower.client_app import client_app
from fedfibos.flower.messages import PAYLOAD, payload_in, payload_record
from fedfibos.round import NoUploadError
from fedfibos.simulation import simulate
from fedfibos.wire.coding import decode_download, decode_upload, encode_upload
from fedfibos.wire.envelope import token_of

BAD = 2


def everyone(tmp_path, *overrides):
    return experiment_of(tmp_path, "federation.cohort=6", "federation.rounds=2", "method.name=fedfibos", *overrides)


def with_payload(reply, payload):
    reply.content = payload_record(payload)
    return [reply]


def rewritten(deployment, change):
    """An upload that was changed by one who knows the format."""

    def tamper(asked, reply):
        layout = deployment.task.model.layout
        sent = payload_in(asked)
        download = decode_download(sent, deployment.task.model)
        upload = decode_upload(payload_in(reply), BAD, download.round, token_of(sent), download.submodel, layout)
        upload, client, t, token = change(upload, BAD, download.round, token_of(sent))
        return with_payload(reply, encode_upload(upload, client, t, token, layout))

    return tamper


def nan_update(upload, client, t, token):
    upload.delta[upload.delta.nonzero()[0]] = torch.nan
    return upload, client, t, token


def nan_statistic(upload, client, t, token):
    upload.statistic[upload.statistic.nonzero()[0]] = torch.inf
    return upload, client, t, token


def nan_loss(upload, client, t, token):
    return replace(upload, loss=float("nan")), client, t, token


def huge_update(upload, client, t, token):
    upload.delta[upload.delta.nonzero()[0]] = 3e38
    return upload, client, t, token


def huge_statistic(upload, client, t, token):
    upload.statistic[upload.statistic.nonzero()[0]] = 3e38
    return upload, client, t, token


def huge_loss(upload, client, t, token):
    return replace(upload, loss=1.7e308), client, t, token


def negative_loss(upload, client, t, token):
    return replace(upload, loss=-0.5), client, t, token


def negative_square(upload, client, t, token):
    upload.statistic[upload.statistic.nonzero()[0]] = -1e30
    return upload, client, t, token


def wrong_round(upload, client, t, token):
    return upload, client, t + 1, token


def wrong_client(upload, client, t, token):
    return upload, client + 1, t, token


def wrong_mask(upload, client, t, token):
    return upload, client, t, bytes(16)


def raises(message, context):
    raise RuntimeError("out of\nmemory")


def junk_array(asked, reply):
    reply.content = RecordDict({PAYLOAD: ArrayRecord({PAYLOAD: Array(torch.zeros(3).numpy())})})
    return [reply]


def nothing(asked, reply):
    reply.content = RecordDict({"metrics": ConfigRecord({"a": 1})})
    return [reply]


def random_bytes(asked, reply):
    generator = torch.Generator().manual_seed(1)
    return with_payload(reply, bytes(torch.randint(256, (5000,), generator=generator).tolist()))


IN_TRANSIT = {
    "late": (lambda asked, reply: [], "no answer within 600 s"),
    "answers twice": (lambda asked, reply: [reply, reply], "answered 2 times"),
    "oversized": (lambda asked, reply: with_payload(reply, bytes(10**6)), "must be at most"),
    "cut short": (lambda asked, reply: with_payload(reply, payload_in(reply)[:-40]), "damaged"),
    "empty": (lambda asked, reply: with_payload(reply, b""), "must be at least"),
    "random bytes": (random_bytes, "must begin with"),
    "another array": (junk_array, "one array 'payload'"),
    "no array": (nothing, "one array 'payload'"),
    "echo": (lambda asked, reply: with_payload(reply, payload_in(asked)), "must be of kind"),
}

REWRITTEN = {
    "nan update": (nan_update, "update has 1 values that are not finite"),
    "infinite statistic": (nan_statistic, "statistic has 1 values that are not finite"),
    "nan loss": (nan_loss, "loss must be finite"),
    "huge loss": (huge_loss, "loss must be finite"),
    "huge update": (huge_update, "its update has values up to 3e+38, too large to average"),
    "huge statistic": (huge_statistic, "its statistic has values up to 3e+38, too large"),
    "negative loss": (negative_loss, "the training loss must be at least 0, as a cross-entropy is, got -0.5"),
    "negative square": (negative_square, "its statistic has 1 values below 0, down to -1e+30"),
    "wrong round": (wrong_round, "must be of round"),
    "wrong client": (wrong_client, "must be of client 2, got client 3"),
    "wrong mask": (wrong_mask, "another submodel than it was sent"),
}


def in_training_only(tamper):
    return lambda asked, reply: tamper(asked, reply) if asked.metadata.message_type == "train" else [reply]


def assert_rejected(deployment, tmp_path, reason, caplog):
    """The fault is named in both rounds, and the others' rounds are those of a federation without the client."""
    final = deployment.run(tmp_path / "run")
    for line in lines_of(tmp_path / "run"):
        assert list(line["rejected"]) == [str(BAD)]
        assert reason in line["rejected"][str(BAD)]
        assert "\n" not in line["rejected"][str(BAD)]
        assert line["participants"] == [0, 1, 2, 3, 4, 5]
    assert f"client {BAD} was rejected" in caplog.text
    good = Deployment(everyone(tmp_path))
    good.node(BAD).tamper = in_training_only(lambda asked, reply: [])
    assert final["params_sha256"] == good.run(tmp_path / "without")["params_sha256"]


@pytest.mark.slow_where("empty", "cut short", "another array", "echo")
@pytest.mark.parametrize("fault", IN_TRANSIT)
def test_faults_in_transit(tmp_path, fault, caplog):
    tamper, reason = IN_TRANSIT[fault]
    deployment = Deployment(everyone(tmp_path))
    deployment.node(BAD).tamper = in_training_only(tamper)
    assert_rejected(deployment, tmp_path, reason, caplog)


@pytest.mark.slow_where("infinite statistic", "huge loss", "huge statistic", "wrong client")
@pytest.mark.parametrize("fault", REWRITTEN)
def test_faults_of_a_client_that_knows_the_format(tmp_path, fault, caplog):
    change, reason = REWRITTEN[fault]
    deployment = Deployment(everyone(tmp_path))
    deployment.node(BAD).tamper = in_training_only(rewritten(deployment, change))
    assert_rejected(deployment, tmp_path, reason, caplog)


def test_a_client_that_raises(tmp_path, caplog):
    deployment = Deployment(everyone(tmp_path))
    node = deployment.node(BAD)
    app = node.app
    node.app = lambda message, context: (raises if message.metadata.message_type == "train" else app)(message, context)
    assert_rejected(deployment, tmp_path, "it failed: <class 'RuntimeError'>:<out of memory>", caplog)


def test_what_no_client_could_train_is_refused_in_the_simulators_words(tmp_path):
    """Before any round, by both engines."""
    single = ("local.batch_size=1", "model.norm=batch", "model.options.channels=[4,4]")
    experiment = everyone(tmp_path, *single)
    said = "local.batch_size = 1: the model has batch normalisation, which wants at least 2 examples"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        simulate(experiment, tmp_path / "simulated", workers=1)
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Deployment(experiment, patience=1, wait=0.01)


def test_too_few_usable_uploads_stop_the_run_and_keep_the_checkpoint(tmp_path):
    deployment = Deployment(everyone(tmp_path), min_participants=6, patience=1)
    calls = []

    def second_time(asked, reply):
        calls.append(asked)
        return [reply] if len(calls) < 2 else []

    deployment.node(BAD).tamper = in_training_only(second_time)
    with pytest.raises(NoUploadError, match="round 2: 6 usable uploads are wanted, got 5: no answer"):
        deployment.run(tmp_path / "run")
    assert len(lines_of(tmp_path / "run")) == 1
    deployment.node(BAD).tamper = None
    resumed = deployment.run(tmp_path / "run", resume=True)
    assert resumed["params_sha256"] == Deployment(everyone(tmp_path)).run(tmp_path / "whole")["params_sha256"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"capacity": 0.5}, "must have client-id, a number from 0, got None"),
        ({"client-id": "two", "capacity": 0.5}, "must have client-id"),
        ({"client-id": 2, "capacity": 1.5}, "capacity must be in"),
        ({"client-id": 2, "capacity": "half"}, "capacity of the node config must be a number"),
        ({"client-id": 2}, "must have capacity, or a limit to measure it by"),
        (
            {"client-id": 2, "memory-limit": "3 mb"},
            "memory-limit of the node config: a number of bytes must be one such as 3000000, 3MB, 1.5GB or 512KiB, got",
        ),
        ({"client-id": 2, "seconds-per-step": "1s"}, "seconds-per-step of the node config must be a number, got '1s'"),
    ],
)
def test_a_node_that_does_not_say_who_it_is_takes_no_part(tmp_path, config, reason, caplog):
    deployment = Deployment(everyone(tmp_path), wait=0.01)
    deployment.node(BAD).config = config
    deployment.run(tmp_path / "run")
    assert lines_of(tmp_path / "run")[0]["participants"] == [0, 1, 3, 4, 5]
    assert reason in caplog.text
    assert "takes no part" in caplog.text


def test_a_node_that_is_mended_takes_part_again(tmp_path, caplog):
    """It is asked again every round; what is wrong is said once, and is on record in every round."""
    deployment = Deployment(everyone(tmp_path, "federation.rounds=3"), wait=0.01)
    node = deployment.node(BAD)
    sound, rounds = node.config["capacity"], []
    node.config["capacity"] = 1.5

    def mend(asked, reply):
        rounds.append(asked.metadata.message_type)
        if len(rounds) == 2:  # the second round's question was answered as before
            node.config["capacity"] = sound
        return [reply]

    node.tamper = mend
    deployment.run(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [BAD in line["participants"] for line in lines] == [False, False, True]
    (number,) = [n for n, each in deployment.nodes.items() if each is node]
    refused = {f"node {number}": lines[0]["refused"][f"node {number}"]}
    assert [line.get("refused") for line in lines] == [refused, refused, None]
    assert "its capacity must be in (0, 1], got 1.5" in refused[f"node {number}"]
    assert caplog.text.count("takes no part: ") == 1


def test_dead_layers_are_warned_of_as_in_the_simulator(tmp_path, caplog):
    deployment = Deployment(everyone(tmp_path, "federation.rounds=1"), wait=0.01)
    deployment.node(BAD).config["capacity"] = 0.002
    deployment.run(tmp_path / "run")
    assert "capacity 0.002: the submodel holds nothing of layer" in caplog.text


def test_a_capacity_that_leaves_no_submodel_takes_no_part(tmp_path, caplog):
    deployment = Deployment(everyone(tmp_path, "method.name=heterofl", "evaluation.every=1"), wait=0.01)
    deployment.node(BAD).config["capacity"] = 1e-9
    deployment.run(tmp_path / "run")
    assert [line["participants"] for line in lines_of(tmp_path / "run")] == [[0, 1, 3, 4, 5]] * 2
    assert "takes no part: capacity 1e-09 allows" in caplog.text


def test_a_rejected_upload_does_not_count_in_a_client_held_score(tmp_path):
    """Equal to a server-held score, which never saw the rejected upload."""
    results = {}
    for scores in ("server", "client"):
        experiment = everyone(tmp_path, "method.sharing=client", "federation.rounds=4")
        deployment = Deployment(experiment, state_dir=tmp_path / "devices", scores=scores)
        calls = []

        def once(asked, reply, calls=calls):
            calls.append(asked)
            return [] if len(calls) == 2 else [reply]

        deployment.node(BAD).tamper = in_training_only(once)
        results[scores] = deployment.run(tmp_path / scores)["params_sha256"]
        assert [list(line["rejected"]) for line in lines_of(tmp_path / scores)] == [[], [str(BAD)], [], []]
    assert results["client"] == results["server"]


@pytest.mark.parametrize("method", ["fedfibos", "fiarse", "heterofl"])
def test_an_update_where_its_client_counts_as_no_holder_is_rejected(tmp_path, method):
    """Its weight there is 0: divided by next to nothing it would leave the server with infinities."""
    deployment = Deployment(everyone(tmp_path, f"method.name={method}"))

    def counts_nowhere(upload, client, t, token):
        return replace(upload, counted=torch.zeros_like(upload.delta, dtype=torch.bool)), client, t, token

    deployment.node(BAD).tamper = in_training_only(rewritten(deployment, counts_nowhere))
    deployment.run(tmp_path / "run")
    for line in lines_of(tmp_path / "run"):
        assert line["rejected"] == {str(BAD): "its update is not 0 where it holds nothing"}


def test_a_node_that_never_answers_is_named_and_asked_only_when_clients_are_wanting(tmp_path, caplog):
    deployment = Deployment(everyone(tmp_path, "federation.rounds=3", "federation.cohort=4"), wait=0.01)
    asked = []

    def silent(message, reply):
        asked.append(message.metadata.message_type)
        return []

    deployment.node(BAD).tamper = silent
    deployment.run(tmp_path / "run")
    assert asked == ["query"]
    reasons = [list(line["refused"].values()) for line in lines_of(tmp_path / "run")]
    assert reasons == [["it did not say who it is within 600 s"]] * 3
    assert caplog.text.count("did not say who it is") == 1


def test_a_client_whose_data_hold_nan_takes_no_part_and_says_which(tmp_path):
    deployment = Deployment(everyone(tmp_path, "federation.rounds=1", "federation.cohort=4"), wait=0.01)
    inputs = torch.zeros(9, 1, 8, 8)
    inputs[4, 0, 2, 3] = torch.nan
    data = TensorData(inputs, torch.zeros(9, dtype=torch.int64))
    deployment.node(BAD).app = client_app(lambda config: deployment.task, lambda context: data)
    deployment.run(tmp_path / "run")
    (line,) = lines_of(tmp_path / "run")
    (reason,) = line["refused"].values()
    assert reason == (
        "its data: 1 of 9 examples hold nan in their inputs (first example 4; position (0, 2, 3) in 1); "
        "fill these inputs in, or leave the examples out"
    )
    assert BAD not in line["participants"]
    assert line["rejected"] == {}


def test_a_device_that_is_restarted_with_another_capacity_is_asked_anew(tmp_path):
    """Flower keeps the number of a node that it authenticates: a restart looks like the same node."""
    deployment = Deployment(everyone(tmp_path, "federation.rounds=3", "federation.cohort=6"), wait=0.01)
    node = deployment.node(BAD)

    def restarts(asked, reply):
        node.config["capacity"] = 0.0625
        return [reply]

    node.config["capacity"] = 1.0
    node.tamper = in_training_only(restarts)
    deployment.run(tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [line["rejected"] for line in lines] == [
        {},
        {str(BAD): "the download is of capacity 1, this client now has 0.0625"},
        {},
    ]
    assert lines[2]["bytes_by_client"][str(BAD)]["down"] < lines[0]["bytes_by_client"][str(BAD)]["down"] / 4


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"client-id": BAD, "capacity": 0.5, "memory-limit": 1000}, "capacity or limits to measure it by, got both"),
        ({"client-id": BAD, "capacity": 0.5, "bytes_per_rund": 9}, "'bytes_per_rund'; did you mean 'bytes-per-round'"),
    ],
)
def test_a_node_config_that_contradicts_itself_takes_no_part(tmp_path, config, reason, caplog):
    deployment = Deployment(everyone(tmp_path, "federation.rounds=1"), wait=0.01)
    deployment.node(BAD).config = config
    deployment.run(tmp_path / "run")
    assert reason in caplog.text
