"""FedAvg in pfl-research on a workload; run by the interpreter of pfl's own environment. Prints one JSON line."""

from __future__ import annotations

import json
import sys

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn
from workloads import LR, WORKLOADS, bare_round, stopwatch


def main(name: str, repeats: int) -> None:
    """Time rounds of pfl and of the bare loop in turn."""
    torch.set_num_threads(1)
    workload = WORKLOADS[name]
    data = [workload.data(n) for n in range(workload.clients)]
    module = workload.module()
    module.loss = lambda inputs, labels: nn.functional.cross_entropy(module(inputs), labels)
    module.metrics = lambda inputs, labels: {}
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users = FederatedDataset(lambda user: Dataset(raw_data=list(data[user])), _forever(workload.clients).__next__)
    bare = workload.module()
    start = [p.detach().clone() for p in bare.parameters()]
    times: dict[str, list[dict[str, float]]] = {"bare": [], "pfl": []}

    class Clock(TrainingProcessCallback):
        """Ends the peer's turn, times one of the bare loop, begins the next."""

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            times["pfl"].append(self.watch())
            watch = stopwatch()
            bare_round(workload, bare, start, data)
            times["bare"].append(watch())
            self.watch = stopwatch()
            return False, Metrics()

    clock = Clock()
    clock.watch = stopwatch()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=repeats + 1,
            evaluation_frequency=10**9,
            train_cohort_size=workload.clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(users, users),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=workload.batch),
        NNEvalHyperParams(local_batch_size=workload.batch),
        callbacks=[clock],
    )
    print(json.dumps({side: samples[1:] for side, samples in times.items()}))


def _forever(clients: int):
    while True:
        yield from range(clients)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
