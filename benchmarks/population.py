"""A round of 1,000 clients out of a growing number registered: seconds and memory, each size in its own process."""

from __future__ import annotations

import resource
from typing import Any

import torch
from engine import in_turn, summary
from workloads import LR, WORKLOADS

from fedfibos.config.capacities import UNIFORM, Capacities
from fedfibos.data.images import TensorData
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.model import model_of
from fedfibos.round import federated_round, sample
from fedfibos.simulation.setting import Setting
from fedfibos.simulation.workers import InProcess
from fedfibos.training import LocalTraining
from fedfibos.types import Client

COHORT = 1000
REGISTERED = (1_000, 10_000, 100_000, 1_000_000)


def registered(num_clients: int, repeats: int) -> dict[str, Any]:
    """Rounds of one local step; a client's data is made when it takes part."""
    workload = WORKLOADS["tiny_mlp"]
    model, method, capacities = model_of(workload.module()), FedFIbOS(), Capacities(UNIFORM, num_clients, "fixed", 0)

    def data(client: int) -> TensorData:
        generator = torch.Generator().manual_seed(client)
        inputs = torch.randn(32, *workload.input_shape, generator=generator)
        return TensorData(inputs, torch.randint(workload.classes, (32,), generator=generator))

    engine, local = InProcess(Setting(method, model, data, data(0), None, 100)), LocalTraining(batch_size=32, lr=LR)
    params = model.initial_params()
    state, t = method.init(params), 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def run() -> None:
        nonlocal state, params, t
        ids = sample(num_clients, COHORT, 0, t)
        cohort = [Client(n, c, t, 0, local) for n, c in zip(ids, capacities.of(ids, t), strict=True)]
        state, params, _ = federated_round(method, model, state, params, cohort, engine.train)
        t += 1

    row = summary(in_turn({"round": run}, repeats), "round")["round"]
    return {**row, "grown_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}
