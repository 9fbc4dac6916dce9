"""One core, two engines: the same experiment through the simulator and through Flower gives the same bytes."""

from __future__ import annotations

import pytest
from local_grid import CLIENTS, Deployment, experiment_of, lines_of

from fedfibos.methods import METHODS
from fedfibos.round import sample
from fedfibos.simulation import simulate

HEADER = 96
"""Bytes of a payload besides values and mask, generously."""

SCAFFOLD = ("local.scaffold=true", "local.momentum=0", "local.clip_norm=0", "federation.rounds=4")

VARIANTS: dict[str, tuple[str, ...]] = {
    **{name: (f"method.name={name}",) for name in METHODS},
    "fedavg-narrow": ("method.name=fedavg", "method.capacity=0.25"),
    "heterofl-masked-labels": ("method.name=heterofl", "local.absent_labels=mask"),
    "fedfibos-masked-labels": ("method.name=fedfibos", "local.absent_labels=mask"),
    "fedfibos-client-held-masked-labels": (
        "method.name=fedfibos",
        "method.sharing=client",
        "method.fisher=held",
        "local.absent_labels=mask",
    ),
    "fiarse-moved": ("method.name=fiarse", "method.holders=moved"),
    "fedfibos-client": ("method.name=fedfibos", "method.sharing=client"),
    "fedfibos-blend-none": ("method.name=fedfibos", "method.sharing=blend", "method.prior=none"),
    "fedfibos-held-head": ("method.name=fedfibos", 'model.held=["classifier"]'),
    "heterofl-held-head": ("method.name=heterofl", 'model.held=["classifier"]'),
    "fedfibos-samples": ("method.name=fedfibos", "federation.weighting=samples"),
    "fedfibos-cosine": ("method.name=fedfibos", "local.schedule=cosine"),
    "fedfibos-nested": ("method.name=fedfibos", "method.criterion=saliency", "local.nested=0.5"),
    "fiarse-nested": ("method.name=fiarse", "local.nested=0.5"),
    "channels-nested": ("method.name=fedfibos-channels", "local.nested=0.5", "method.left_out=none"),
    "channels-client": ("method.name=fedfibos-channels", "method.sharing=client", "method.hysteresis=0.2"),
    "channels-operations": ("method.name=fedfibos-channels", 'federation.budget=["parameters", "macs"]'),
    "heterofl-operations": ("method.name=heterofl", "federation.budget=macs"),
    "fedfibos-adam": ("method.name=fedfibos", "server.optimizer=adam", "method.server_lr=0.02"),
    "heterofl-momentum-median": ("method.name=heterofl", "server.optimizer=momentum", "server.merge=median"),
    "fedfibos-weights": ("method.name=fedfibos", "federation.weighting=[1, 2, 0.5, 1, 3, 0.25]"),
    **{f"{name}-scaffold": (f"method.name={name}", *SCAFFOLD) for name in ("fedfibos", "fedavg", "heterofl")},
    "fiarse-nested-scaffold": ("method.name=fiarse", "local.nested=0.5", *SCAFFOLD),
    "fiarse-proximal": ("method.name=fiarse", "local.proximal=0.5"),
    "heterofl-nested": ("method.name=heterofl", "local.nested=0.5"),
}


@pytest.mark.slow_where("masked-labels", "held-head", "cosine", "samples", "narrow", "operations")
@pytest.mark.parametrize("variant", VARIANTS)
def test_flower_gives_the_simulators_parameters(tmp_path, variant):
    experiment = experiment_of(tmp_path, *VARIANTS[variant])
    simulated = simulate(experiment, tmp_path / "simulated", workers=1)
    deployed = Deployment(experiment).run(tmp_path / "deployed")
    assert deployed["params_sha256"] == simulated["params_sha256"]
    keys = ("round", "loss", "rejected")
    one, other = (lines_of(tmp_path / run) for run in ("simulated", "deployed"))
    assert [[line[key] for key in keys] for line in one] == [[line[key] for key in keys] for line in other]
    sampled = [sample(CLIENTS, experiment.federation.cohort, experiment.seed, t) for t in range(len(other))]
    assert [line["participants"] for line in other] == sampled
    if (
        variant in METHODS or "scaffold" in variant
    ):  # a payload has a header more than the simulator counts, its bitmap is smaller
        for simulated_line, line in zip(one, other, strict=True):
            for way in ("down", "up"):
                assert line["bytes"][way] == pytest.approx(simulated_line["bytes"][way], rel=0.04, abs=4 * HEADER)


@pytest.mark.slow_where("dense")
@pytest.mark.parametrize("sharing", ["client", "blend"])
@pytest.mark.parametrize("fisher", ["dense", "held"])
def test_client_held_scores_give_the_parameters_of_server_held_ones(tmp_path, sharing, fisher):
    experiment = experiment_of(
        tmp_path, f"method.sharing={sharing}", f"method.fisher={fisher}", "method.blend=0.5", "federation.rounds=5"
    )
    held_by_server = Deployment(experiment).run(tmp_path / "server")
    deployment = Deployment(experiment, scores="client", state_dir=tmp_path / "devices")
    held_by_clients = deployment.run(tmp_path / "client")
    assert held_by_clients["params_sha256"] == held_by_server["params_sha256"]
    state = tmp_path / "client/checkpoint/round-000005"
    assert not list((tmp_path / "client/checkpoint/rows").iterdir()), "the server must not keep a client's score"
    assert state.exists()
    up_server, up_client = (
        sum(line["bytes"]["up"] for line in lines_of(tmp_path / run)) for run in ("server", "client")
    )
    if sharing == "client":
        assert up_client < up_server / 1.8, "the estimates stay on the devices"
    else:
        assert up_server < up_client < 1.05 * up_server, "a shared score needs them, and masks go up"


def test_control_variates_outlive_the_server(tmp_path):
    experiment = experiment_of(tmp_path, "method.name=heterofl", *SCAFFOLD)
    whole = Deployment(experiment).run(tmp_path / "whole")
    Deployment(experiment_of(tmp_path, "method.name=heterofl", *SCAFFOLD, "federation.rounds=2")).run(tmp_path / "run")
    resumed = Deployment(experiment).run(tmp_path / "run", resume=True)
    assert resumed["params_sha256"] == whole["params_sha256"]


def test_a_client_that_the_weights_leave_out_takes_no_part(tmp_path):
    deployment = Deployment(experiment_of(tmp_path), weighting=(1.0, 2.0, 1.0, 1.0, 1.0))
    deployment.run(tmp_path / "run")
    line = lines_of(tmp_path / "run")[0]
    assert list(line["refused"].values()) == [
        "federation.weighting has 5 numbers, clients 0 to 4: it must have one for client 5 too"
    ]
    assert 5 not in line["participants"]
