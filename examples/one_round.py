"""One round of FedFIbOS with its loops written out: Algorithm 1 with one shared score, on a page, in plain PyTorch.

The score is estimated on held coordinates and begins with magnitudes (line 2); updates are averaged over their holders.
The library does the same through five verbs (``src/fedfibos/round.py``), for any model, faster, and for any method;
``tests/test_examples.py`` holds the two against each other. Run it: ``python examples/one_round.py``.
"""

import math

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

CAPACITIES = [1.0, 0.5, 0.25, 0.125, 0.0625]  # γ of client 0, 1, 2, ...
EMA_RATE, CLIENT_LR, SERVER_LR = 0.8, 0.5, 1.0  # α, η_l, η_s
LOCAL_STEPS, BATCH = 5, 20  # K, B

Batches = list[tuple[Tensor, Tensor]]


def unflatten(flat: Tensor, model: nn.Module) -> dict[str, Tensor]:
    """The model's named tensors as views of a flat vector."""
    named = dict(model.named_parameters())
    pieces = torch.split(flat, [p.numel() for p in named.values()])
    return {name: piece.view(p.shape) for (name, p), piece in zip(named.items(), pieces, strict=True)}


def top_k(score: Tensor, capacity: float) -> Tensor:
    """Line 6: the ⌈γd⌉ highest scores; of equal ones, the first."""
    k = math.ceil(capacity * score.numel())
    mask = torch.zeros_like(score)
    mask[torch.sort(score, descending=True, stable=True).indices[:k]] = 1.0
    return mask


def one_round(model: nn.Module, x: Tensor, score: Tensor, clients: list[Batches]) -> tuple[Tensor, Tensor]:
    """Parameters and shared score after one round (prior = "magnitude", held estimates, holders' average).

    Args:
        model: The architecture.
        x: Global parameters x̃_t, shape ``(d,)``.
        score: f̄_t, shape ``(d,)``.
        clients: The minibatches of each client's local steps.
    """
    sum_delta, sum_fisher, holders = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    for batches, capacity in zip(clients, CAPACITIES, strict=True):
        mask = top_k(score, capacity)
        local = x * mask  # line 10: what the client receives
        fisher = torch.zeros_like(x)
        for inputs, labels in batches:  # lines 11 to 15
            local.requires_grad_(True)
            loss = cross_entropy(functional_call(model, unflatten(local, model), (inputs,)), labels)
            (gradient,) = torch.autograd.grad(loss, local)
            gradient = gradient * mask
            local = local.detach() - CLIENT_LR * gradient
            fisher += gradient**2 / sum(len(y) for _, y in batches)  # line 14: 1/KB
        sum_delta += x * mask - local  # line 17, zero off the mask
        sum_fisher += fisher
        holders += mask
    held = holders > 0  # a coordinate that nobody held keeps its value and its score
    x = torch.where(held, x - SERVER_LR * sum_delta / holders, x)  # line 20
    score = torch.where(held, EMA_RATE * score + (1 - EMA_RATE) * sum_fisher / holders, score)  # line 22
    return x, score


def main() -> None:
    """A few rounds on the digits; prints the loss of the full model."""
    digits = load_digits()
    inputs = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    x = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    score = x.abs()  # line 2: the warm start f̄⁰ = |x̃₀|
    for t in range(10):
        order = torch.randperm(len(labels)).view(-1)[: len(CAPACITIES) * LOCAL_STEPS * BATCH]
        parts = order.view(len(CAPACITIES), LOCAL_STEPS, BATCH)
        clients = [[(inputs[b], labels[b]) for b in part] for part in parts]
        x, score = one_round(model, x, score, clients)
        loss = cross_entropy(functional_call(model, unflatten(x, model), (inputs,)), labels)
        print(f"round {t + 1:2d}: loss of the full model {loss:.3f}")


if __name__ == "__main__":
    main()
