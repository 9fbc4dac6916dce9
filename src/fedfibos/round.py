"""One federated round: sample -> extract -> train -> update -> aggregate. Read this file first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from fedfibos.aggregate import Sums
from fedfibos.channels.family import with_nested
from fedfibos.common.streams import stream
from fedfibos.local import LocalTrainingError, seeded
from fedfibos.method import Method, answer, extract_submodel, pure
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.privacy.mechanism import Private
from fedfibos.server.average import averaged
from fedfibos.server.kept import joined, parted
from fedfibos.server.report import RoundReport as RoundReport
from fedfibos.server.report import part_of
from fedfibos.server.scaffold import corrected, server_variate, with_variate
from fedfibos.server.settings import PLAIN, Server
from fedfibos.soundness import LARGEST, averageable, check_merged, look_at, signed_by
from fedfibos.soundness import NoUploadError as NoUploadError
from fedfibos.submodel import Submodel
from fedfibos.tasks.classification import CLASSIFICATION
from fedfibos.tasks.task import Task
from fedfibos.types import Client, State, Upload, download_bytes, upload_bytes

Job = tuple[Client, Submodel]
RunClients = Callable[[Params, Iterable[Job]], Iterator[tuple[Client, Upload | str]]]
"""Runs the cohort's local training from the global parameters, here or elsewhere, and yields the outcomes in the order
of the jobs: an upload, or in one line why there is none."""


LARGE_FLEET = 10_000
"""Fleets up to this size are shuffled whole to draw a cohort."""


def sample(num_clients: int, cohort_size: int, seed: int, t: int) -> list[int]:
    """The round's cohort: ``cohort_size`` clients uniformly without replacement, in ascending order; all of fewer.

    From a large fleet of which few take part clients are drawn one by one, those drawn before being passed over, so
    that a round costs the same whatever the number registered.
    """
    if num_clients < 1 or cohort_size < 1:
        raise ValueError(f"a cohort needs at least one client, got {cohort_size} of {num_clients}")
    generator = stream(seed, "cohort", t)
    if num_clients <= LARGE_FLEET or cohort_size > num_clients // 2:
        return sorted(torch.randperm(num_clients, generator=generator)[:cohort_size].tolist())
    drawn: dict[int, None] = {}  # ordered: the first cohort_size different ones count
    while len(drawn) < cohort_size:
        drawn |= dict.fromkeys(torch.randint(num_clients, (cohort_size,), generator=generator).tolist())
    return sorted(list(drawn)[:cohort_size])


def sample_poisson(num_clients: int, cohort_size: int, seed: int, t: int) -> list[int]:
    """The round's cohort where each client joins by itself, with probability ``cohort_size / num_clients``.

    In ascending order; of any size, and perhaps of nobody.
    """
    draws = torch.rand(num_clients, generator=stream(seed, "joins", t), dtype=torch.float64)
    return (draws < cohort_size / num_clients).nonzero().flatten().tolist()


def federated_round(
    method: Method,
    model: Model,
    state: State,
    params: Params,
    cohort: Sequence[Client],
    run: RunClients | None = None,
    *,
    server: Server = PLAIN,
    num_clients: int | None = None,
    private: Private | None = None,
) -> tuple[State, Params, RoundReport]:
    """Algorithm 1, lines 5 to 24, for any method. Changes none of its arguments.

    Args:
        method: The method.
        model: Architecture and layout.
        state: What the server keeps, from ``method.init`` or the round before.
        params: The global parameters.
        cohort: The round's participants.
        run: Who trains them; None: this process, one client after another.
        server: How uploads are merged, and the server's optimiser.
        num_clients: Of the whole fleet, for control variates; None: the cohort is all of it.
        private: What makes the round private, if it is to be; then a cohort may be of nobody.

    Raises:
        NoUploadError: All clients were rejected; the message names each one's reason. Or the merge was not finite.
        ValueError: No client, one twice, or clients in different rounds.
    """
    ids = [client.id for client in cohort]
    if (not ids and private is None) or len(set(ids)) < len(ids):
        raise ValueError(f"a cohort must be different clients, at least one, got {sorted(ids)}")
    if len(rounds := sorted({client.round for client in cohort})) > 1:
        raise ValueError(f"a cohort's clients must be in one round, got them in rounds {rounds}")
    fleet, down, up = num_clients or len(ids), dict[int, int](), 0

    def jobs() -> Iterator[Job]:
        handed = submodels(method, model, state, params, cohort)
        for client, submodel in with_corrections(handed, state, params, fleet):
            down[client.id] = download_bytes(submodel, params.layout, corrected=client.local.scaffold)
            yield client, submodel

    def outcomes() -> Iterator[tuple[Client, Upload | str]]:
        nonlocal up
        given = run_in_turn(method, model, params, jobs()) if run is None else run(params, jobs())
        for client, outcome in given:
            up += 0 if isinstance(outcome, str) else upload_bytes(outcome, params.layout)
            yield client, outcome

    try:
        next_state, next_params, report = merge(
            method, state, params, cohort, outcomes(), server, fleet, model.task, private
        )
    except NoUploadError as error:
        error.bytes_down, error.bytes_up = sum(down.values()), up
        raise
    clients = {n: {**part, "down": down[n]} for n, part in report.clients.items()}
    return next_state, next_params, replace(report, bytes_down=sum(down.values()), clients=clients)


def submodels(method: Method, model: Model, state: State, params: Params, cohort: Sequence[Client]) -> Iterator[Job]:
    """Line 6: every client's submodel, from the state at the start of the round, in the order of client ids.

    Where submodels do not follow the client, those of equal capacity share one.
    """
    known: dict[float, Submodel] = {}
    for client in sorted(cohort, key=lambda c: c.id):
        submodel = known.get(client.capacity) or submodel_for(method, model, state, params, client)
        if not method.personal:
            known[client.capacity] = submodel
        yield client, submodel


def with_corrections(jobs: Iterable[Job], state: State, params: Params, num_clients: int) -> Iterator[Job]:
    """With ``local.scaffold`` every client has its correction, from the state at the start of the round.

    Args:
        jobs: Clients and what they are handed.
        state: The server's.
        params: The global parameters.
        num_clients: Of the whole fleet.
    """
    variate = None
    for client, submodel in jobs:
        if not client.local.scaffold:
            yield client, submodel
            continue
        variate = server_variate(state, params, num_clients) if variate is None else variate
        yield corrected(state, variate, client, submodel), submodel


def submodel_for(method: Method, model: Model, state: State, params: Params, client: Client) -> Submodel:
    """What a client is handed: its submodel, and with ``local.nested`` the smaller members of the nested family.

    Raises:
        ValueError: ``local.nested`` without ``local.levels``, or of a method whose submodels do not nest.
    """
    submodel, local = extract_submodel(method, model, state, params, client), client.local
    if not local.nested:
        return submodel
    if not local.levels:
        raise ValueError(f"local.nested = {local.nested:g} needs local.levels, the capacities of the nested family")
    smaller = [
        extract_submodel(method, model, state, params, replace(client, capacity=level))
        for level in sorted(set(local.levels), reverse=True)
        if level < client.capacity
    ]
    axes = model.axes if any(member.widths for member in smaller) else None
    return with_nested(submodel, smaller, axes, model.layout, type(method).__name__).to(model.device)


def merge(
    method: Method,
    state: State,
    params: Params,
    cohort: Sequence[Client],
    outcomes: Iterable[tuple[Client, Upload | str]],
    server: Server = PLAIN,
    num_clients: int | None = None,
    task: Task = CLASSIFICATION,
    private: Private | None = None,
) -> tuple[State, Params, RoundReport]:
    """Lines 19 to 24: the server's half of a round, from the outcomes in the order of client ids.

    Moments, control variates and the average over rounds are in the state beside what the method keeps, and are not
    shown to it. ``task`` says whether a loss may be below 0. With ``private`` uploads are clipped, the sums are made
    private before anything else sees them, and there is always a result: a round without a usable upload is noise
    alone.

    Raises:
        NoUploadError: All clients were rejected, or weigh nothing; or the merge is not finite, and is refused.
        ValueError: The outcomes are not of all participants, or in another order.
    """
    next_state, own = parted(state)
    sums, rejected, losses = Sums(params.layout, params.flat.device, server, own.tensors), {}, []
    scaffold = any(client.local.scaffold for client in cohort)
    variate = server_variate(state, params, num_clients or len(cohort)) if scaffold else None
    most = averageable(cohort) if private is None else LARGEST  # what one client may send depends on no other then
    signed, largest, parts = signed_by(method, task), {}, dict[int, dict[str, float]]()
    for client, outcome in _of_all(cohort, outcomes):
        parts[client.id] = {"capacity": client.capacity}
        if isinstance(outcome, str):
            rejected[client.id] = outcome
            continue
        parts[client.id] |= part_of(outcome, params.layout)
        reason, largest[client.id] = look_at(outcome, most, signed)
        if reason is not None:
            rejected[client.id] = reason
            del largest[client.id]
            continue
        if private is not None:
            sums.add(private.clipped(method, outcome))
            continue
        with pure("update", next_state):
            next_state = answer("update", method.update(next_state, client, outcome), State)
        sums.add(outcome, client.weight)
        if variate is not None:
            own = with_variate(own, variate, client, outcome)
        losses.append(float(outcome.loss))
    if private is not None:
        next_state = private.released(method, next_state, params, sums)
    elif not losses:
        raise _nobody(rejected)
    if not 0 < sums.weight <= LARGEST:
        wanted = "more than 0" if not sums.weight > 0 else f"at most {LARGEST:.3g}"
        raise NoUploadError(f"the uploads of the round must weigh {wanted} together, got {sums.weight:g}")
    next_state, next_params = _merged(method, next_state, params, sums)
    next_state = joined(next_state, own.with_tensors(**sums.moments, **averaged(server.average, own, next_params)))
    check_merged(next_state, next_params, largest if private is None else {})
    participants = tuple(sorted(client.id for client in cohort))
    up = sum(int(part.get("up", 0)) for part in parts.values())
    loss = sum(losses) / len(losses) if losses else math.nan
    report = RoundReport(participants, rejected, loss, 0, up, parts)
    return next_state, next_params, report


def _nobody(rejected: dict[int, str]) -> NoUploadError:
    """That no upload is usable, and why, clients of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for number, reason in rejected.items():
        by_reason.setdefault(reason, []).append(str(number))
    named = list(by_reason.items())[:MOST_REASONS]
    reasons = "; ".join(f"client {', '.join(numbers)}: {reason}" for reason, numbers in named)
    left = len(rejected) - sum(len(numbers) for _, numbers in named)
    more = f"; {left} more for other reasons" if left else ""
    advice = f"; {DIVERGED}" if all(map(_diverged, by_reason)) else ""
    return NoUploadError(f"no usable upload in the round: {reasons}{more}{advice}", rejected)


def _diverged(reason: str) -> bool:
    return "training loss nan" in reason or "training loss inf" in reason


MOST_REASONS = 5
"""Of rejected uploads in one message."""

DIVERGED = "training diverges: lower local.lr, or scale the inputs and targets"


def _merged(method: Method, state: State, params: Params, sums: Sums) -> tuple[State, Params]:
    """What a method's ``aggregate`` gives.

    Raises:
        ValueError: It is no state and parameters of the same layout.
    """
    with pure("aggregate", state, params):
        both = answer("aggregate", method.aggregate(state, params, sums), tuple)
    if len(both) != 2:
        raise ValueError(f"a method's aggregate must return a state and parameters, got {len(both)} values")
    next_params = answer("aggregate", both[1], Params)
    if next_params.flat.dtype != params.flat.dtype:
        wanted, got = params.flat.dtype, next_params.flat.dtype
        raise ValueError(f"a method's aggregate must return parameters of {wanted}, got {got}")
    if next_params.flat.shape != params.flat.shape:
        size, got = params.layout.size, tuple(next_params.flat.shape)
        raise ValueError(f"a method's aggregate must return parameters of shape ({size},), got {got}")
    return answer("aggregate", both[0], State), next_params


def _of_all(
    cohort: Sequence[Client], outcomes: Iterable[tuple[Client, Upload | str]]
) -> Iterator[tuple[Client, Upload | str]]:
    """The outcomes, which must be one of every participant in the order of their ids: sums have a fixed order."""
    wanted = sorted(client.id for client in cohort)
    place = 0
    for place, (client, outcome) in enumerate(outcomes, 1):
        if place > len(wanted) or client.id != wanted[place - 1]:
            raise ValueError(
                f"outcomes must be of clients {wanted} in this order, got client {client.id} as number {place}"
            )
        yield client, outcome
    if place < len(wanted):
        raise ValueError(f"outcomes must be of clients {wanted}, got {place} of {len(wanted)}")


def run_in_turn(
    method: Method, model: Model, params: Params, jobs: Iterable[Job]
) -> Iterator[tuple[Client, Upload | str]]:
    """Train the cohort in this process, one client after another."""
    for client, submodel in jobs:
        yield client, outcome_of(method, model, params, client, submodel)


def outcome_of(method: Method, model: Model, params: Params, client: Client, submodel: Submodel) -> Upload | str:
    """One client's local training: its upload, or in one line why it cannot train."""
    try:
        return upload_of(method, model, params, client, submodel)
    except LocalTrainingError as error:
        return str(error)


def upload_of(method: Method, model: Model, params: Params, client: Client, submodel: Submodel) -> Upload:
    """The upload of one client's local training, checked.

    What a method draws from torch's global streams is the client's own too.

    Raises:
        LocalTrainingError: It cannot train.
        ValueError: The method's upload is none of that submodel; see :func:`answer_to`.
    """
    with seeded(client.stream("train"), model.device), pure("train", params):
        upload: Upload = answer("train", method.train(model, params, submodel, client), Upload)
    num_units = model.axes.num_units if upload.observed == "units" else 0
    return answer_to(submodel, upload, params, num_units)


def answer_to(submodel: Submodel, upload: Upload, params: Params, num_units: int = 0) -> Upload:
    """The upload, if it is one of the submodel that was sent: what a method's ``train`` must return, wherever it runs.

    Args:
        submodel: What was sent.
        upload: The answer.
        params: The global parameters.
        num_units: Channels of all axes of the full model, where a statistic may be of channels.

    Raises:
        ValueError: It is of another submodel, or has tensors of other shapes or types.
    """
    if upload.submodel is not submodel:
        raise ValueError("a method's train must return an upload of the very submodel that it was given, got another")
    of_units = upload.observed == "units"
    if submodel.widths is not None and upload.statistic is not None and not (of_units and submodel.units is not None):
        raise ValueError("an upload's statistic must be of a mask's coordinates or of channels, got one of a slice")
    size = submodel.local_layout(params.layout).size
    units = num_units if submodel.units is None else submodel.units.numel()
    for name, wanted, kind in (
        ("delta", size, torch.float32),
        ("counted", size, torch.bool),
        ("statistic", units if of_units else params.layout.num_maskable, torch.float32),
    ):
        tensor = getattr(upload, name)
        if tensor is not None and (tensor.shape != (wanted,) or tensor.dtype != kind):
            raise ValueError(
                f"an upload's {name} must be {kind} of shape ({wanted},), got {tensor.dtype} of {tuple(tensor.shape)}"
            )
    return upload
