"""Whether a module takes its example batch: what derives its channels, and what tries zeros, runs on it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedfibos.common.inputs import Inputs, described
from fedfibos.common.user_code import describe_error
from fedfibos.probes.trial import TrialCopy


def check_takes(module: nn.Module, example: Inputs) -> None:
    """Raise ValueError where a module fails on a batch in evaluation and in training, or gives no tensor.

    Args:
        module: Not changed and not run.
        example: The batch.
    """
    if not isinstance(example, Tensor | dict):  # several inputs by position: for the channels alone
        return
    try:
        trial = TrialCopy(module)
    except Exception:  # said where it is copied to be trained
        return
    errors: list[Exception] = []
    for training in (False, True):
        trial.put_back()
        try:
            with torch.no_grad():
                outputs: object = trial.logits(example, training=training)
        except Exception as error:
            errors.append(error)
        else:
            if not isinstance(outputs, Tensor):
                got = f"{type(outputs).__name__}{advice_on(outputs)}"
                raise ValueError(f"the model must return one tensor of outputs, got {got}")
            return
    others = any(t.dtype != torch.float32 for t in ([example] if isinstance(example, Tensor) else example.values()))
    of = described(example) + (", parameters are float32" if others else "")
    raise ValueError(
        f"the model fails on its example batch ({describe_error(errors[0])}); an example is {of}"
    ) from errors[0]


def advice_on(outputs: object) -> str:
    """What to do about a forward pass that gives several things."""
    if "logits" in outputs if isinstance(outputs, dict) else hasattr(outputs, "logits"):
        return ": wrap it in a module whose forward returns its logits alone"
    return ": return the logits alone" if isinstance(outputs, dict | tuple | list) else ""
