"""FedFIbOS on the bundled digits through the API: any ``nn.Module``, 20 clients of five capacities."""

import torch
from fedfibos import Client, FedFIbOS, LocalTraining, Partition, accuracy, federated_round, load, model_of, partition

digits = load("digits")
parts = partition(digits.train.labels, Partition("dirichlet", alpha=0.3), 20, torch.Generator().manual_seed(0))
module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model, method, local = model_of(module), FedFIbOS(), LocalTraining(steps=20, batch_size=20, lr=0.1)
fleet = [Client(n, 0.5 ** (n % 5), 0, 0, local, digits.train.subset(parts[n])) for n in range(20)]
params = model.initial_params()
state = method.init(params)
for t in range(40):
    cohort = [client.in_round(t, rounds=40) for client in fleet]
    state, params, report = federated_round(method, model, state, params, cohort)
for client in fleet[:5]:  # of capacity 1, 1/2, 1/4, 1/8, 1/16
    submodel = method.extract(model, state, params, client.in_round(40, rounds=40))
    print(f"capacity {client.capacity:6}: {accuracy(model, params, submodel, digits.test):.3f} of the test set")
