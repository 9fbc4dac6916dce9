"""What a capacity costs a client: parameters, arithmetic, memory and bytes, counted on real training steps."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fedfibos.analysis.process_memory import after_imports, process_memory, to_build
from fedfibos.backend.memory import peak_memory
from fedfibos.channels.costs import Bounded
from fedfibos.channels.macs import PRODUCTS
from fedfibos.common.inputs import forward
from fedfibos.method import Method, extract_submodel
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.round import submodel_for
from fedfibos.submodel import Slice, Submodel, held_maskable
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Dataset, State, Upload, download_bytes, upload_bytes

STEPS = 2
"""Local steps that are made to see their memory: from the second on an optimiser's state lies beside the gradients."""


@dataclass(frozen=True)
class Cost:
    """One client of one capacity, for one method.

    A mask is trained in the shape of the full model, so it saves bytes and no arithmetic; a slice saves both.

    Attributes:
        capacity: γ.
        parameters: Parameters that the submodel holds, normalisation included.
        share: Share of the d maskable parameters that it holds: the realised capacity.
        macs: Multiply-accumulate operations of the forward pass of one example.
        tensors: Bytes of the tensors alive at once, at most, in local training on batches of ``batch_size``
            (:func:`~fedfibos.backend.memory.peak_memory`): parameters as they are and as they were at the start,
            gradients, optimiser, activations, and what the method adds (a mask, a sum of squares). The parameters as
            they arrived and buffers within an operation are not in it.
        memory: Bytes that the client's process takes at most, as the operating system counts it, without the client's
            examples: interpreter and imports as measured here, messages, the model, training
            (:func:`~fedfibos.analysis.process_memory.process_memory`).
        bytes_down: Bytes to the client in a round.
        bytes_up: Bytes from the client in a round.
    """

    capacity: float
    parameters: int
    share: float
    macs: int
    tensors: int
    memory: int
    bytes_down: int
    bytes_up: int


def cost(
    method: Method,
    model: Model,
    capacity: float,
    data: Dataset,
    local: LocalTraining,
    budget: tuple[Bounded, ...] = ("parameters",),
) -> Cost:
    """Count what a client of some capacity has to afford in its first round.

    Args:
        method: Extracts and trains the submodel.
        model: Architecture and layout.
        capacity: γ in (0, 1].
        data: At least two examples of the kind that clients train on.
        local: How clients train: batch size, optimiser and precision decide the memory.
        budget: What the capacity is a share of.
    """
    params = model.initial_params().to(model.device)
    state = method.init(params)
    client = Client(0, capacity, 0, 0, local, data, budget=budget)
    submodel = submodel_for(method, model, state, params, client)
    layout = model.layout
    upload, tensors = tried(method, model, params, submodel, client)
    down, up = download_bytes(submodel, layout, corrected=local.scaffold), upload_bytes(upload, layout)
    return Cost(
        capacity,
        submodel.num_held,
        held_maskable(submodel, layout) / layout.num_maskable,
        forward_macs(model, params, submodel, data),
        tensors,
        process_memory(after_imports(), tensors, down, up, building(method, model, state, params, client, submodel)),
        down,
        up,
    )


def building(method: Method, model: Model, state: State, params: Params, client: Client, submodel: Submodel) -> int:
    """Bytes that a client takes to build the model.

    Where a half of the model would be a slice, the server sends its outline, to clients of the whole model too
    (:class:`fedfibos.flower.lean.SentOutline`).
    """
    if submodel.widths is None and submodel.held is None:
        with suppress(ValueError):  # it cannot be cut to a half
            half = extract_submodel(method, model, state, params, replace(client, capacity=0.5, limits=()))
            submodel = submodel if half.widths is None else half
    return to_build(model, submodel)


def tried(method: Method, model: Model, params: Params, submodel: Submodel, client: Client) -> tuple[Upload, int]:
    """An upload of a client's submodel, and bytes of the tensors that are alive at once in its training, at most.

    Args:
        method: Trains it.
        model: Where.
        params: The parameters.
        submodel: What the client holds.
        client: How it trains, and at least one example, of which there are as many as a batch has.
    """
    local, data = client.local, client.data
    assert data is not None
    enough = data.subset(torch.arange(max(local.batch_size, 2)) % len(data))
    several = replace(client, local=replace(local, steps=STEPS, epochs=None), data=enough)
    small = replace(several, local=replace(local, steps=1, epochs=None, batch_size=2))
    upload = method.train(model, params, submodel, small)  # what is made once, at the first step, is not a step's
    own, sent = as_sent(submodel, params)
    return upload, peak_memory(lambda: method.train(model, sent, own, several))


def as_sent(submodel: Submodel, params: Params) -> tuple[Submodel, Params]:
    """What a client is sent: of a slice its own parameters alone, which it need not gather."""
    if not isinstance(submodel, Slice) or submodel.index is None:  # as it was sent already: a device has no second copy
        return submodel, params
    return replace(submodel, index=None), Params(submodel.layout, submodel.gather(params.flat))


def forward_macs(model: Model, params: Params, submodel: Submodel, data: Dataset) -> int:
    """Multiply-accumulate operations of one example's forward pass through the (really smaller) submodel.

    Fused kernels (attention, transformer layers, recurrent layers on a CPU) are counted by the products they stand for.
    """
    module = model.workspace(submodel).load(submodel.gather(params.flat))
    module.eval()
    inputs = model.place(data.batch(torch.arange(1)))
    uncounted = {torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops, **PRODUCTS}
    with (
        sdpa_kernel(SDPBackend.MATH),
        torch.enable_grad(),  # without it a transformer layer is one fused kernel
        FlopCounterMode(display=False, custom_mapping=uncounted) as counter,
    ):
        forward(module, inputs)
    return int(counter.get_total_flops()) // 2


def _recurrent_flops(
    inputs: tuple[int, ...], from_input: tuple[int, ...], from_hidden: tuple[int, ...], *_: Any, **__: Any
) -> int:
    """Twice the products of one direction of an LSTM layer; inputs: (length, batch, features)."""
    return 2 * inputs[0] * inputs[1] * (math.prod(from_input) + math.prod(from_hidden))
