"""What the round itself keeps in the server's state, apart from what the method keeps."""

from __future__ import annotations

from dataclasses import replace

from fedfibos.types import State

OURS = "server."
"""How the names of the state's tensors begin that are the round's own and no method's."""


def parted(state: State) -> tuple[State, State]:
    """What the method keeps, and what the round itself does: moments, control variates, the average over rounds."""
    if not state.variates.clients() and not any(name.startswith(OURS) for name in state.tensors):
        return state, State(variates=state.variates)
    ours = {name: tensor for name, tensor in state.tensors.items() if name.startswith(OURS)}
    rest = {name: tensor for name, tensor in state.tensors.items() if name not in ours}
    return replace(state, tensors=rest), State(ours, variates=state.variates)


def joined(state: State, own: State) -> State:
    """The inverse of :func:`parted`, whatever the method made of its part."""
    if not own.tensors and not own.variates.clients():
        return state
    return replace(state, tensors={**state.tensors, **own.tensors}, variates=own.variates)
