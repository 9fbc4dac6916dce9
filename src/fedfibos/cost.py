"""What a capacity costs a client: parameters, arithmetic, memory and bytes, counted on one real training step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fedfibos.inputs import forward
from fedfibos.local import seeded
from fedfibos.method import Method
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel, held_maskable
from fedfibos.traffic import download_bytes, upload_bytes
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Dataset, stream

FLOAT_BYTES = 4
COPIES = 3
"""Of every parameter in training: its value, the one it started from, its gradient."""


@dataclass(frozen=True)
class Cost:
    """One client of one capacity, for one method.

    A mask is trained in the shape of the full model, so it saves bytes and no arithmetic; a slice saves both.

    Attributes:
        capacity: γ.
        parameters: Parameters that the submodel holds, normalisation included.
        share: Share of the d maskable parameters that it holds: the realised capacity.
        macs: Multiply-accumulate operations of the forward pass of one example (torch's FLOP counter, halved).
        memory: Bytes at the peak of a training step on a batch of ``batch_size``, see :func:`training_memory`.
        bytes_down: Bytes to the client in a round.
        bytes_up: Bytes from the client in a round.
    """

    capacity: float
    parameters: int
    share: float
    macs: int
    memory: int
    bytes_down: int
    bytes_up: int


def cost(
    method: Method,
    model: Model,
    capacity: float,
    data: Dataset,
    local: LocalTraining,
) -> Cost:
    """Count what a client of some capacity has to afford in its first round.

    Args:
        method: Extracts and trains the submodel.
        model: Architecture and layout.
        capacity: γ in (0, 1].
        data: At least two examples of the kind that clients train on.
        local: How clients train: batch size, optimiser and precision decide the memory.
    """
    params = model.initial_params()
    params = Params(params.layout, params.flat.to(model.device))
    state = method.init(params)
    one_step = replace(local, steps=1, epochs=None, batch_size=2)
    client = Client(0, capacity, 0, 0, one_step, data)
    submodel = method.extract(model, state, params, client)
    layout = model.layout
    indices = torch.arange(local.batch_size) % len(data)
    return Cost(
        capacity,
        submodel.num_held,
        held_maskable(submodel, layout) / layout.num_maskable,
        forward_macs(model, params, submodel, data),
        training_memory(model, params, submodel, data, indices, one_step),
        download_bytes(submodel, layout),
        upload_bytes(method.train(model, params, submodel, client), layout),
    )


def forward_macs(model: Model, params: Params, submodel: Submodel, data: Dataset) -> int:
    """Multiply-accumulate operations of one example's forward pass through the (really smaller) submodel.

    Fused kernels (attention, transformer layers, recurrent layers on a CPU) are counted by the products they stand for.
    """
    module = model.workspace(submodel).load(submodel.gather(params.flat))
    module.eval()
    inputs = model.place(data.batch(torch.arange(1)))
    recurrent = {torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops}
    with (
        sdpa_kernel(SDPBackend.MATH),
        torch.enable_grad(),  # without it a transformer layer is one fused kernel
        FlopCounterMode(display=False, custom_mapping=recurrent) as counter,
    ):
        forward(module, inputs)
    return int(counter.get_total_flops()) // 2


def _recurrent_flops(
    inputs: tuple[int, ...], from_input: tuple[int, ...], from_hidden: tuple[int, ...], *_: Any, **__: Any
) -> int:
    """Twice the products of one direction of an LSTM layer; inputs: (length, batch, features)."""
    return 2 * inputs[0] * inputs[1] * (math.prod(from_input) + math.prod(from_hidden))


def training_memory(
    model: Model, params: Params, submodel: Submodel, data: Dataset, indices: Tensor, local: LocalTraining
) -> int:
    """Bytes of parameters, gradients, optimiser and the activations kept for the backward pass, in a training step.

    Parameters count twice, as they are and as they were at the start. Buffers within an operation are not in it, nor
    what a method adds (a mask, FedFIbOS's sum of squares: a number a parameter each).

    Args:
        model: Architecture and layout.
        params: The global parameters.
        submodel: What the client holds.
        data: Examples of the kind that clients train on.
        indices: Positions of a batch.
        local: Optimiser and precision.
    """
    space = model.workspace(submodel)
    module = space.load(submodel.gather(params.flat))
    module.train()
    inputs = model.place(data.batch(indices))
    weights = space.values.untyped_storage().data_ptr()
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() != weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with seeded(stream(0, "cost"), model.device), saved_tensors_hooks(note, lambda tensor: tensor):
        with local.autocast(model.device):
            logits = forward(module, inputs)
        loss = torch.nn.functional.cross_entropy(logits.float(), data.labels[indices].to(model.device))
    assert loss.requires_grad
    return FLOAT_BYTES * (COPIES + local.num_moments) * space.values.numel() + sum(kept.values())
