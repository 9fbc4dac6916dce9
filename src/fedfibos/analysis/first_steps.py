"""The first local steps, tried on a few training examples: what makes a run useless before its first round.

Gradients that are no numbers, parameters that no step moves, steps that raise the loss instead of lowering it or that
change nothing, and a loss far above that of a guess: mistakes in a model, in the scale of data, or in a learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedfibos.common.inputs import copied, forward
from fedfibos.common.streams import stream
from fedfibos.local import Step, local_training, seeded
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import full
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Dataset

EXAMPLES = 8
"""That the steps are tried on; the same in each."""

MORE_EXAMPLES = 64
"""On which a parameter that seems to stay is looked at again: a layer may rest on a few examples by chance."""

STEPS = 4
"""What follows a layer of zeros has no gradient before that has moved, and so on."""

RISE = 10.0
"""Times the loss before, and that of a guess, from which on the steps are said to raise it."""

LEAST = 1e-7
"""Of a tensor's largest value: changes below it are lost in float32."""


LARGE_DECAY = 0.1
"""Share of a parameter that a step's weight decay may take."""


@dataclass
class _Seen:
    """What the steps showed.

    Attributes:
        losses: Before each step.
        moved: Tensors that had a gradient other than 0, by position.
        broken: Those of which a gradient was no number in the first step.
    """

    losses: list[float] = field(default_factory=list)
    moved: set[int] = field(default_factory=set)
    broken: list[int] = field(default_factory=list)

    def look(self, step: Step) -> None:
        """At the gradients of a step."""
        first = not self.losses
        for n, gradient in enumerate(step.gradients):
            if n not in self.moved and bool((gradient != 0).any()):
                self.moved.add(n)
            if first and not bool(gradient.isfinite().all()):
                self.broken.append(n)


def first_step_cautions(model: Model, params: Params, data: Dataset, client: Client, told: Sequence[str]) -> list[str]:
    """A line for each thing that is wrong with the first local steps of the whole model.

    Args:
        model: Architecture, layout and task.
        params: The initial parameters; not changed.
        data: The training examples, of which a few are used.
        client: Says how clients train in the first round.
        told: Names of parameters that are known to have no gradient.
    """
    local = replace(
        client.local, steps=1, epochs=None, batch_size=EXAMPLES, nested=0.0, proximal=0.0, absent_labels="keep"
    )
    trial = model.with_own_workspaces()
    few = _spread(data, EXAMPLES)
    trained = replace(client, capacity=1.0, data=few, local=replace(local, scaffold=False), correction=None)
    try:
        seen, now = _steps(trial, params, trained)
        if seen.broken:
            return [_broken([params.layout.names[n] for n in seen.broken])] if math.isfinite(seen.losses[0]) else []
        lines = _of_the_loss(trial, params, few, seen.losses, client.local.lr)
        if not seen.moved:
            return [*lines, NO_SLOPE]
        lines += _too_small(params, now, client.local.lr) if not lines else []
        lines += _decay(client.local)
        still = [n for n, name in enumerate(params.layout.names) if n not in seen.moved and name not in told]
        if still and len(data) > EXAMPLES:
            wider = replace(trained, data=_spread(data, MORE_EXAMPLES), local=replace(local, batch_size=MORE_EXAMPLES))
            moved = _steps(trial, now, wider, steps=1)[0].moved
            still = [n for n in still if n not in moved]
        if still:
            lines.append(_unmoved([params.layout.names[n] for n in still]))
        return lines + _alike(params, now, still)
    except Exception:  # what is wrong is told where clients train
        return []


def _spread(data: Dataset, number: int) -> Dataset:
    """So many examples, evenly from all: the first ones may be of one class."""
    return data.subset(torch.linspace(0, len(data) - 1, min(number, len(data))).round().long())


def _steps(model: Model, params: Params, client: Client, steps: int = STEPS) -> tuple[_Seen, Params]:
    """A few steps of the whole model, one round each so that every loss is known, and where they lead."""
    seen, whole = _Seen(), full(params.layout)
    for _ in range(steps):
        upload = local_training(model, params, whole, client, observe=seen.look)
        seen.losses.append(float(upload.loss))
        params = Params(params.layout, params.flat - upload.delta)
        if not math.isfinite(seen.losses[-1]):
            break
    return seen, params


def _broken(names: list[str]) -> str:
    return (
        f"the gradient of parameter {_and_more(names)} is no number in the first local step, of a loss and of "
        "examples that are finite: forward divides by 0, or takes the root, norm or logarithm of it; clients are "
        "rejected for that"
    )


NO_SLOPE = (
    f"the gradient of every parameter is 0 in the first {STEPS} local steps: the loss does not depend on the outputs, "
    "or an operation on the way has no slope (round, argmax)"
)


def _decay(local: LocalTraining) -> list[str]:
    """Whether weight decay alone takes much of the parameters in each step."""
    taken = local.lr * local.weight_decay
    if taken < LARGE_DECAY:
        return []
    return [
        f"local.lr * local.weight_decay = {taken:g}: every step takes that share of each parameter, whatever is "
        "learnt; lower local.weight_decay"
    ]


def _unmoved(names: list[str]) -> str:
    return (
        f"the gradient of parameter {_and_more(names)} is 0 in the first {STEPS} local steps, so that they train "
        "nothing of it: units that are never active (large biases, ReLU), initial values that are all 0, or an "
        "operation without a slope (round, argmax)"
    )


def _and_more(names: list[str]) -> str:
    return f"{names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _of_the_loss(model: Model, params: Params, data: Dataset, losses: list[float], lr: float) -> list[str]:
    """Whether steps raise the loss, or it begins far above that of a guess."""
    guess = _guess(model, params, data)
    first, last = losses[0], losses[-1]
    if not math.isfinite(first):
        return []
    if not last <= RISE * max(abs(first), guess or 0.0):
        return [
            f"local steps at local.lr = {lr:g} raise the loss of the same {len(data)} examples from {first:.3g} to "
            f"{last:.3g} in {len(losses) - 1}: lower local.lr, or scale the inputs and targets"
        ]
    if guess is not None and first > RISE * guess > 0.0:
        return [
            f"the loss begins at {first:.3g} on {len(data)} examples, that of a guess is {guess:.3g}: the outputs lie "
            "far from the targets; scale the inputs, the targets or the initial values"
        ]
    return []


def _guess(model: Model, params: Params, data: Dataset) -> float | None:
    """The loss of equal scores for all, or of the targets' mean; None where the outputs are neither."""
    if model.task.gives not in ("logits", "values"):
        return None
    inputs, targets = model.place(data.batch(torch.arange(len(data)))), data.labels.to(model.device)
    module = model.workspace(full(params.layout)).load(params.flat).eval()
    with torch.no_grad(), seeded(stream(0, "evaluation"), model.device):
        outputs = torch.zeros_like(forward(module, copied(inputs)))
        if model.task.gives == "values":
            outputs += targets.to(outputs).view(outputs.shape).mean(0)
        return float(model.task.loss(outputs, targets))


def _too_small(before: Params, after: Params, lr: float) -> list[str]:
    """Whether steps are so small that the values keep their bits."""
    pairs = zip(before.tensors().values(), after.tensors().values(), strict=True)
    if any(_changed(old, new) for old, new in pairs):
        return []
    return [
        f"{STEPS} local steps at local.lr = {lr:g} change no parameter by more than {LEAST:g} of its size, which "
        "float32 does not keep: raise it"
    ]


def _changed(old: Tensor, new: Tensor) -> bool:
    return old.numel() > 0 and float((new - old).abs().max()) > LEAST * float(old.abs().max())


def _alike(before: Params, after: Params, still: Sequence[int]) -> list[str]:
    """Whether all units of a layer begin equal and are so after the steps: they would learn one thing."""
    old, new = before.tensors(), after.tensors()
    names = [
        name
        for n, name in enumerate(before.layout.names)
        if n not in still and _rows_equal(old[name]) and _rows_equal(new[name])
    ]
    if not names:
        return []
    return [
        f"all units of {_and_more(names)} begin with the same values and stay alike, as one unit: draw initial values "
        "at random"
    ]


def _rows_equal(tensor: Tensor) -> bool:
    return tensor.dim() > 1 and len(tensor) > 1 and tensor[0].numel() > 0 and bool((tensor == tensor[:1]).all())
