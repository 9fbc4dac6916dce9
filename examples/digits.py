"""FedFIbOS on the bundled digits through the API: any ``nn.Module``, 20 clients of five capacities."""

import torch
from torch.nn import Flatten, Linear, ReLU, Sequential

from fedfibos import METHODS, Client, LocalTraining, Partition, accuracy
from fedfibos import federated_round, load, model_of, partition, sample

digits = load("digits")
parts = partition(digits.train.labels, Partition("dirichlet", alpha=0.3), 20, torch.Generator().manual_seed(0))
torch.manual_seed(0)  # the initial values
module = Sequential(Flatten(), Linear(64, 128), ReLU(), Linear(128, 10))
model = model_of(module, example=digits.train.batch(torch.arange(2)))  # the example: for methods that slice
method, local, rounds = METHODS["fedfibos"](), LocalTraining(steps=20, batch_size=20, lr=0.1), 80
fleet = [
    Client(id=n, capacity=0.5 ** (n % 5), round=0, seed=0, local=local, data=digits.train.subset(parts[n]))
    for n in range(20)
]
params = model.initial_params()
state = method.init(params)
for t in range(rounds):
    cohort = [fleet[n].in_round(t, rounds) for n in sample(num_clients=20, cohort_size=10, seed=0, t=t)]
    state, params, report = federated_round(method, model, state, params, cohort)
for client in fleet[:5]:
    submodel = method.extract(model, state, params, client.in_round(rounds, rounds))
    print(f"capacity {client.capacity:6}: {accuracy(model, params, submodel, digits.test):.3f} of the test set")
