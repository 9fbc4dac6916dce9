"""FedFIbOS on the bundled digits through the API: any ``nn.Module``, 20 clients of five capacities."""

import torch
from fedfibos import Client, FedFIbOS, LocalTraining, Partition, accuracy, federated_round, load, model_of, partition

digits = load("digits")
parts = partition(digits.train.labels, Partition("dirichlet", alpha=0.3), 20, torch.Generator().manual_seed(0))
module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model, method, capacities = model_of(module), FedFIbOS(criterion="saliency"), (1.0, 0.5, 0.25, 0.125, 0.0625)
local = LocalTraining(steps=20, batch_size=20, lr=0.1, nested=0.5, levels=capacities)  # half of the steps train less
fleet = [Client(n, capacities[n % 5], 0, 0, local, digits.train.subset(parts[n])) for n in range(20)]
state = method.init(params := model.initial_params())
for t in range(40):
    cohort = [client.in_round(t, rounds=40) for client in fleet]
    state, params, report = federated_round(method, model, state, params, cohort)
for client in [client.in_round(40, rounds=40) for client in fleet[:5]]:
    submodel = method.extract(model, state, params, client)
    print(f"capacity {client.capacity:6}: {accuracy(model, params, submodel, digits.test):.3f} of the test set")
