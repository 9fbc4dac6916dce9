"""What a class of devices can hold under a method: the largest submodel that keeps within all its limits."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import torch

from fedfibos.analysis.cost import Cost, building, forward_macs, tried
from fedfibos.analysis.process_memory import WITHIN, process_memory
from fedfibos.backend.determinism import reproducible
from fedfibos.channels.costs import Bounded
from fedfibos.common.formatting import bytes_text, short_text
from fedfibos.config.devices import Device
from fedfibos.method import Method, extract_submodel
from fedfibos.methods._slicing import step_memory
from fedfibos.model import Model
from fedfibos.round import submodel_for
from fedfibos.submodel import Submodel, held_maskable
from fedfibos.training import LocalTraining
from fedfibos.types import Client, Dataset, Upload, download_bytes, upload_bytes

PASSES = 3
"""A training step's products, in forward passes: one forward, and one each for inputs and for weights backward."""

CAPACITIES = (*(n / 10 ** (2 + e) for e in (4, 3, 2, 1) for n in range(100, 1000)), 1.0)
"""The capacities that a device may be given, ascending: numbers of three digits."""


LARGEST = sys.float_info.max
"""Of seconds and operations: JSON has no infinity."""


@dataclass(frozen=True)
class Fit:
    """What one class of devices can hold under a method.

    Attributes:
        device: The class.
        capacity: The largest whose submodel keeps within the device's limits; None: it can hold none.
        cost: Of that submodel in the first round, its memory without the interpreter's and that of imports; None where
            it can hold none.
        seconds: Of a round's local training; None where the device has no speed.
        bound_by: The limits that the next larger capacity does not keep; nothing where it holds all it can be given.
        left_out: Why it can hold none, in a line; empty where it can.
        limits: What bounds its slices in every round, for :attr:`fedfibos.types.Client.limits`.
    """

    device: Device
    capacity: float | None
    cost: Cost | None = None
    seconds: float | None = None
    bound_by: tuple[str, ...] = ()
    left_out: str = ""
    limits: tuple[tuple[Bounded, int], ...] = ()


@dataclass(frozen=True)
class Work:
    """What the clients of a fleet do in a round, whatever the method.

    Attributes:
        data: At least two examples of the kind that they train on.
        local: How they train.
        budget: What their capacities are shares of.
        examples: How many examples a client trains on in a round, at most.
    """

    data: Dataset
    local: LocalTraining
    budget: tuple[Bounded, ...]
    examples: int


def examples_of(local: LocalTraining, largest: int) -> int:
    """Examples that a client trains on in a round, at most.

    Args:
        local: How clients train.
        largest: Most examples that a client has.
    """
    if local.steps is not None:
        return local.steps * local.batch_size
    return (local.epochs or 1) * largest


def fits(method: Method, model: Model, devices: Sequence[Device], work: Work) -> list[Fit]:
    """What each class can hold, in order.

    Classes of one capacity hold the same submodels, so they share the tighter of their limits.

    Args:
        method: The method.
        model: The model, with an example batch for the methods that slice.
        devices: The classes.
        work: What clients do in a round.
    """
    with reproducible(), torch.random.fork_rng(devices=[]):
        costs = Costs(method, model, work, len(devices))
        found = [_fit(costs, device) for device in devices]
        return [_with_limits(fit, [o for o in found if o.capacity == fit.capacity], costs) for fit in found]


def fit_of(costs: Costs, device: Device) -> Fit:
    """What one device can hold, by itself: as :func:`fits` tells of a class of such devices.

    Args:
        costs: Of the method's submodels.
        device: Its limits.
    """
    with reproducible(), torch.random.fork_rng(devices=[]):
        fit = _fit(costs, device)
        return _with_limits(fit, [fit], costs)


class Costs:
    """What submodels of any capacity cost in a method's first round, training only what tells of all the others.

    Memory is that of the client's process beyond imports and torch's code, which differ from machine to machine.
    """

    def __init__(self, method: Method, model: Model, work: Work, classes: int) -> None:
        self.method, self.work = method, work
        self.model = model.on(torch.device("cpu"))  # devices are bound alike wherever the simulation runs
        self.params = self.model.initial_params()
        self.state = method.init(self.params)
        self._classes = classes
        self._known: dict[float, Cost | ValueError] = {}
        self._tried: dict[tuple[bool, bool], tuple[Upload, int]] = {}
        whole = extract_submodel(method, self.model, self.state, self.params, self._client(1.0))
        self.whole_macs = forward_macs(self.model, self.params, whole, work.data)

    def with_examples(self, examples: int) -> Costs:
        """The same for clients that train on so many examples in a round; what is known of a submodel is shared."""
        same = copy(self)
        same.work = replace(self.work, examples=examples)
        return same

    def of(self, capacity: float) -> Cost:
        """The cost of a capacity.

        Raises:
            ValueError: The method has no submodel of that capacity.
        """
        if capacity not in self._known:
            try:
                self._known[capacity] = self._cost(capacity)
            except ValueError as error:
                self._known[capacity] = error
        found = self._known[capacity]
        if isinstance(found, ValueError):
            raise found
        return found

    def _cost(self, capacity: float) -> Cost:
        submodel, layout = self._submodel(capacity), self.model.layout
        upload, tensors = self._trained(capacity, submodel)
        macs = self.whole_macs
        if submodel.widths is not None:
            widths = {**self.model.axes.sizes, **dict(submodel.widths)}
            of_step = step_memory(self.model, self.work.local, self.method.train)
            tensors, macs = math.ceil(of_step.at(widths) / of_step.per), self._macs(submodel, widths)
        down = download_bytes(submodel, layout, corrected=self.work.local.scaffold)
        up = upload_bytes(self._upload(upload, submodel), layout)
        built = building(self.method, self.model, self.state, self.params, self._client(capacity), submodel)
        return Cost(
            capacity,
            submodel.num_held,
            held_maskable(submodel, layout) / layout.num_maskable,
            macs,
            tensors,
            process_memory(0, tensors, down, up, built),
            down,
            up,
        )

    def _client(self, capacity: float) -> Client:
        """Where steps are nested and no levels named, with as many as the fleet can have, each as large as can be."""
        local = self.work.local.with_levels(capacity * (1 - n / 1000) for n in range(self._classes))
        return Client(0, capacity, 0, 0, local, self.work.data, budget=self.work.budget)

    def _submodel(self, capacity: float) -> Submodel:
        return submodel_for(self.method, self.model, self.state, self.params, self._client(capacity))

    def _trained(self, capacity: float, submodel: Submodel) -> tuple[Upload, int]:
        """An upload, and the tensors in training, of the whole model, a mask or a slice: of one kind they are alike."""
        kind = submodel.widths is None, submodel.held is None
        if kind not in self._tried:
            trial = self.model.with_own_workspaces()
            self._tried[kind] = tried(self.method, trial, self.params, submodel, self._client(capacity))
        return self._tried[kind]

    def _upload(self, like: Upload, submodel: Submodel) -> Upload:
        """What a client of that submodel sends."""
        statistic = like.statistic
        if statistic is not None and like.observed == "units":
            units = self.model.axes.num_units if submodel.units is None else submodel.units.numel()
            statistic = torch.empty(units, device="meta")
        return replace(like, submodel=submodel, statistic=statistic)

    def _macs(self, submodel: Submodel, widths: dict[str, int]) -> int:
        try:
            return int(self.model.macs.at(widths))
        except ValueError:  # no polynomial in the widths: counted
            return forward_macs(self.model, self.params, submodel, self.work.data)


def round_seconds(device: Device, cost: Cost, examples: int, whole_macs: int) -> float | None:
    """Seconds of a round's local training; None where the device has no speed."""
    if device.macs_per_second is not None:
        return min(PASSES * examples * cost.macs / device.macs_per_second, LARGEST)
    if device.examples_per_second is not None:
        return min(examples / device.examples_per_second * cost.macs / whole_macs, LARGEST)
    return None


def _over(costs: Costs, device: Device, cost: Cost) -> dict[str, str]:
    """The limits that a submodel does not keep, each with what it takes and what there is."""
    seconds = round_seconds(device, cost, costs.work.examples, costs.whole_macs)
    traffic = cost.bytes_down + cost.bytes_up
    over = {}
    if device.memory is not None and cost.memory > device.memory:
        over["memory"] = f"{bytes_text(cost.memory)} of memory, it has {bytes_text(device.memory)}"
    if device.seconds is not None and seconds is not None and seconds > device.seconds:
        over["seconds"] = f"{short_text(seconds)} s a round, it has {short_text(device.seconds)} s"
    if device.bytes is not None and traffic > device.bytes:
        over["bytes"] = f"{bytes_text(traffic)} a round, it has {bytes_text(device.bytes)}"
    return over


def _fit(costs: Costs, device: Device) -> Fit:
    """The largest capacity within the limits, by bisection: what a submodel costs grows with its capacity."""

    def over(position: int) -> dict[str, str]:
        try:
            return _over(costs, device, costs.of(CAPACITIES[position]))
        except ValueError:  # no slice is as small as this
            return {}

    low, high = -1, len(CAPACITIES)  # the first that is over a limit is in (low, high]
    if not over(high - 1):
        low = high - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if over(middle) else (middle, high)
    over_next = over(high) if high < len(CAPACITIES) else {}
    try:
        if low < 0:
            raise ValueError("no capacity is within its limits")
        cost = costs.of(CAPACITIES[low])
    except ValueError as error:
        why = _too_large(costs, CAPACITIES[high], over_next) if over_next else str(error)
        if over_next and low >= 0 and costs.of(CAPACITIES[high]).share == 1.0:
            why = f"{why}, and no smaller one is there: {error}"
        return Fit(device, None, left_out=why)
    if device.seconds is not None and cost.macs != costs.whole_macs:
        try:
            _ = costs.model.macs
        except ValueError as error:  # another round's slice could take more
            return Fit(device, None, left_out=f"its seconds a round cannot be kept: {str(error).partition(':')[0]}")
    seconds = round_seconds(device, cost, costs.work.examples, costs.whole_macs)
    return Fit(device, cost.capacity, cost, seconds, tuple(over_next))


def _too_large(costs: Costs, capacity: float, over: dict[str, str]) -> str:
    """Why not even the smallest submodel can be held."""
    smallest = costs.of(capacity)
    takes = "; ".join(over.values())
    if smallest.share == 1.0:
        return f"every client holds the whole model, which takes {takes}"
    if smallest.macs == costs.whole_macs and {"memory", "seconds"} & over.keys():
        return f"a mask is trained in the shape of the whole model, which takes {takes}"
    return f"the smallest submodel takes {takes}"


def _with_limits(fit: Fit, equals: Sequence[Fit], costs: Costs) -> Fit:
    """With what bounds its slices in every round, where some later round could choose others."""
    if fit.cost is None or fit.cost.share == 1.0 or fit.cost.macs == costs.whole_macs:
        return fit
    most: dict[Bounded, int] = {}
    for device in (other.device for other in equals):
        for name, limit in _limits(device, fit.cost, costs).items():
            most[name] = min(limit, most.get(name, limit))
    return replace(fit, limits=tuple(sorted(most.items())))


def _limits(device: Device, first: Cost, costs: Costs) -> dict[Bounded, int]:
    """A device's limits as bounds on what a slice costs.

    Messages take memory too: where that is limited, no round's are larger than the first one's.
    """
    limits: dict[Bounded, int] = {}
    if device.bytes is not None:
        limits["bytes"] = device.bytes
    if device.memory is not None:
        limits["memory"] = first.tensors + math.floor((device.memory - first.memory) / WITHIN)
        limits["bytes"] = first.bytes_down + first.bytes_up
    if device.seconds is not None:
        if device.macs_per_second is not None:
            macs = device.seconds * device.macs_per_second / PASSES / costs.work.examples
            limits["macs"] = math.floor(min(macs, LARGEST))
        elif device.examples_per_second is not None:
            share = device.seconds * device.examples_per_second / costs.work.examples
            limits["macs"] = math.floor(min(share * costs.whole_macs, LARGEST))
    return limits
