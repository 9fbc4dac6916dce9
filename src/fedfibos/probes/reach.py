"""What training and evaluation reach: parameters without a gradient, tensors that nobody trains, other examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedfibos.common.draws import fixed_draws
from fedfibos.common.inputs import Inputs, copied, forward
from fedfibos.probes.trial import TrialCopy

SEEDS = 4
"""Passes in training whose ways count together: a model may go around a layer by chance."""

TOLERANCE = 1e-3
"""Of outputs that should be the same, as a share of the largest."""


def reach_cautions(module: nn.Module, example: Inputs) -> list[str]:
    """A line for each of these, where a copy of a module shows it on a batch.

    Args:
        module: Not changed and not run.
        example: The batch.
    """
    lines: list[str] = []
    for look in (_of_gradients, _of_other_examples):
        try:
            lines += look(module, example)
        except Exception:  # what is wrong with the module is told where it is checked
            continue
    return lines


def unreached(module: nn.Module, example: Inputs) -> tuple[str, ...]:
    """Names of the trained parameters that no gradient reaches from a batch, in training.

    Args:
        module: Not changed and not run.
        example: The batch.
    """
    try:
        return tuple(_missed(module, example)[0])
    except Exception:  # what is wrong with the module is told where it is checked
        return ()


def _missed(module: nn.Module, example: Inputs) -> tuple[list[str], list[Tensor]]:
    """The parameters that gradients of a batch never reach, and the tensors that they do and nobody trains."""
    trial = TrialCopy(module)
    reached: dict[int, Tensor] = {}
    times: Counter[int] = Counter()
    for seed in range(SEEDS):
        trial.put_back()
        with torch.enable_grad(), fixed_draws(seed):
            outputs = forward(trial.module.train(), copied(example))
        leaves = {id(leaf): leaf for leaf in _leaves(outputs)}
        reached |= leaves
        times.update(leaves.keys())
    own = {id(parameter): name for name, parameter in trial.module.named_parameters()}
    strangers = [leaf for key, leaf in reached.items() if key not in own and times[key] > 1]
    missed = [name for name, p in trial.module.named_parameters() if p.requires_grad and id(p) not in reached]
    return missed if reached else [], strangers


def _of_gradients(module: nn.Module, example: Inputs) -> Iterator[str]:
    missed, strangers = _missed(module, example)
    if strangers:
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        yield (
            f"the model computes with a tensor of shape {tuple(strangers[0].shape)}{more} that needs a gradient and is "
            "no parameter of it: nobody trains it; register it (nn.Parameter, nn.ModuleList in place of a list)"
        )
    if missed:
        more = f" and {len(missed) - 1} more" if len(missed) > 1 else ""
        yield (
            f"no gradient reaches parameter {missed[0]!r}{more} from the first batch (not used, detached, or under "
            "no_grad): it is counted and sent, but not trained; leave it out, or freeze it (requires_grad_(False))"
        )


def _leaves(outputs: Tensor) -> Iterator[Tensor]:
    """The tensors that gradients of some outputs end at."""
    seen, left = set(), [outputs.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf
        left += [function for function, _ in node.next_functions]


def _of_other_examples(module: nn.Module, example: Inputs) -> Iterator[str]:
    trial = TrialCopy(module)

    def outputs(rows: list[int], seed: int = 0) -> Tensor:
        batch = example[rows] if isinstance(example, Tensor) else {name: t[rows] for name, t in example.items()}
        trial.put_back()
        with torch.no_grad(), fixed_draws(seed):
            return forward(trial.module.eval(), batch)[0].clone()  # it may be a view of a parameter

    one, again, beside = outputs([0, 1]), outputs([0, 1], seed=1), outputs([0, 0, 0])
    if not _alike(one, again):
        yield (
            "in evaluation the model draws random numbers, so that its outputs are of one draw (dropout without "
            "training=self.training, noise): draw only if self.training"
        )
    elif not _alike(one, beside):
        yield (
            "in evaluation the model's outputs of an example depend on the others of its batch: what is measured "
            "depends on evaluation.batch_size and on the order of the examples"
        )


def _alike(one: Tensor, other: Tensor) -> bool:
    scale = TOLERANCE * float(one.abs().nan_to_num(0, 0, 0).max())
    return one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=scale + 1e-6, equal_nan=True)
