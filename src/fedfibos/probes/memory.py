"""Parameters that share memory, and parameters that a forward pass changes itself."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedfibos.common.inputs import Inputs, copied, forward
from fedfibos.params import check_kept
from fedfibos.probes.trial import TrialCopy


def check_own_memory(module: nn.Module) -> None:
    """Raise ValueError where a trained parameter shares entries with another parameter or a buffer.

    Copies of a module keep one parameter under two names, but untie two that are views of the same memory.
    """
    by_memory: dict[int, dict[str, Tensor]] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.layout == torch.strided and tensor.numel():
            by_memory.setdefault(tensor.untyped_storage().data_ptr(), {})[name] = tensor
    for sharing in by_memory.values():
        for (one, first), (other, second) in combinations(sharing.items(), 2):
            if (first.requires_grad or second.requires_grad) and share_entries(first, second):
                raise ValueError(
                    f"{one!r} and {other!r} share memory without being one parameter, and copies of the model, as "
                    "clients train them, would lose that: assign the parameter itself (b.weight = a.weight), or keep "
                    "one and compute the other from it in forward"
                )


def share_entries(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors in one storage have an entry in common."""
    spans = []
    for tensor in (first, second):
        start = tensor.storage_offset()
        spans.append((start, start + sum(s * (n - 1) for s, n in zip(tensor.stride(), tensor.shape, strict=True))))
    (low, high), (other_low, other_high) = spans
    if high < other_low or other_high < low:
        return False
    places = torch.arange(int(max(high, other_high)) + 1)
    one, other = (places.as_strided(t.shape, t.stride(), t.storage_offset()).reshape(-1) for t in (first, second))
    return bool(torch.isin(one, other).any())


def changed_by_forward(module: nn.Module, example: Inputs) -> tuple[str, ...]:
    """Names of the trained parameters whose values a forward pass in training changes (max-norm, clamping).

    Tried with values as they are, much larger and much smaller: a limit on a norm shows where it is exceeded.

    Raises:
        ValueError: Forward puts another parameter in the place of one, or gives one another shape; names it.
    """
    try:
        trial = TrialCopy(module)
    except Exception:  # what is wrong with the module is told where it is checked
        return ()
    parameters = {name: p for name, p in trial.module.named_parameters() if p.requires_grad}
    changed: set[str] = set()
    for factor in (1.0, 1e3, 1e-3):
        trial.put_back()
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.mul_(factor)
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        try:
            trial.logits(example)
        except Exception:
            return ()
        after = dict(trial.module.named_parameters())
        for name, value in before.items():
            check_kept(name, parameters[name], after.get(name), value.shape)
            if not torch.equal(parameters[name].nan_to_num(), value.nan_to_num()):
                changed.add(name)
    return tuple(name for name in parameters if name in changed)


def changes_inputs(module: nn.Module, example: Inputs) -> bool:
    """Whether a forward pass in training changes its batch in place (``x -= x.mean()``).

    A step that passes a batch through the model twice must then copy it.
    """
    given = copied(example)

    def watched(module: nn.Module, inputs: Inputs) -> Tensor:
        outputs = forward(module, inputs)
        changed.append(any(not _same(a, b) for a, b in zip(tree_leaves(inputs), tree_leaves(given), strict=True)))
        return outputs

    changed: list[bool] = []
    try:
        TrialCopy(module).logits(example, run=watched)
    except Exception:  # what is wrong with the module is told where it is checked
        return False
    return any(changed)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
