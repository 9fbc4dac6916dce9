"""FedAvg in Flower's Ray simulation on a workload; run by the interpreter of Flower's own environment.

One actor with one processor and one torch thread. Prints one JSON line, after Flower's own output.
"""

from __future__ import annotations

import json
import sys

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workloads import WORKLOADS, bare_round, kept_data, kept_module, stopwatch

NAME, REPEATS = sys.argv[1], int(sys.argv[2])
WORKLOAD = WORKLOADS[NAME]
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message, context):
    """One client's local training."""
    torch.set_num_threads(1)
    inputs, labels = kept_data(NAME, int(context.node_config["partition-id"]))
    module = kept_module(NAME)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = bare_round(WORKLOAD, module, [p.detach().clone() for p in module.parameters()], [(inputs, labels)])
    content = {
        "arrays": ArrayRecord(module.state_dict()),
        "metrics": MetricRecord({"loss": loss, "num-examples": len(labels)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def main(grid, context):
    """Time rounds of Flower and of the bare loop in turn."""
    torch.set_num_threads(1)
    data = [WORKLOAD.data(n) for n in range(WORKLOAD.clients)]
    bare = WORKLOAD.module()
    start = [p.detach().clone() for p in bare.parameters()]
    arrays = ArrayRecord(bare.state_dict())
    times = {"bare": [], "flower": []}
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=WORKLOAD.clients)
    for _ in range(REPEATS + 2):  # the first rounds start the actors
        watch = stopwatch()
        result = strategy.start(grid, initial_arrays=arrays, num_rounds=1)
        times["flower"].append({"wall": watch()["wall"]})
        if not result.train_metrics_clientapp[1]:
            raise RuntimeError("no client of Flower's round returned a result")
        arrays = result.arrays
        watch = stopwatch()
        bare_round(WORKLOAD, bare, start, data)
        times["bare"].append(watch())
    print("RESULT " + json.dumps({side: samples[2:] for side, samples in times.items()}))


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        WORKLOAD.clients,
        backend_config={"init_args": {"num_cpus": 1}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
