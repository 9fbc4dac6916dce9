"""A model as the federated round sees it: any ``nn.Module`` plus the layout of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedfibos.backend.workspace import Workspace
from fedfibos.channels.axes import Axes
from fedfibos.channels.check import check_permutations
from fedfibos.channels.costs import Cost, parameter_cost
from fedfibos.channels.declared import named_axes, named_units
from fedfibos.channels.derive import derive_axes
from fedfibos.channels.fixed import channels_of, cut, fixed_tensors
from fedfibos.channels.macs import mac_cost
from fedfibos.channels.nested import Chain, chain
from fedfibos.channels.resize import resize_module
from fedfibos.common.copies import uncompiled
from fedfibos.common.inputs import Inputs
from fedfibos.params import Layout, Params, check_finite, check_module_itself, layout_of, maskable_names, params_of
from fedfibos.probes.memory import changed_by_forward, changes_inputs, check_own_memory
from fedfibos.probes.plain_tensors import check_plain_tensors
from fedfibos.probes.takes import check_takes
from fedfibos.probes.zeros import intolerant_of_zeros
from fedfibos.submodel import Submodel
from fedfibos.tasks.classification import CLASSIFICATION
from fedfibos.tasks.task import Task

MOST_WORKSPACES = 16
"""Of slices. A round's capacities are fewer; a family's members count too."""


@dataclass(frozen=True)
class Model:
    """Architecture, layout and axes. Holds no parameter values of its own but the initial ones.

    Attributes:
        module: The architecture; its values are the initial parameters.
        layout: Layout of the trainable parameters.
        device: Where training and evaluation run.
        example: One batch of inputs, from which the channel axes are derived when a method slices.
        table: A hand-written table of channel axes, used instead, and checked where there is an example.
        units: Layer -> channels of its output that belong together (heads); see :func:`derive_axes`.
        channels_last: Whether batches of images are laid out channels last.
        whole: Parameters that every client holds whole, as the model divides by them or by their norm: see
            :mod:`fedfibos.probes.zeros`.
        rewritten: Parameters whose values forward itself changes in training; see :mod:`fedfibos.probes.memory`.
        uncut: Modules and parameters whose channels slices never cut.
        recorded: Whether training steps are recorded and replayed, on a device that can; see ``run.cuda_graphs``.
        task: What it is trained for.
        rewrites_inputs: Whether forward changes its batch in place.
    """

    module: nn.Module
    layout: Layout
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    example: Inputs | None = None
    table: Axes | None = None
    units: Mapping[str, int] = field(default_factory=dict)
    channels_last: bool = False
    whole: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    recorded: bool = False
    uncut: tuple[str, ...] = ()
    task: Task = CLASSIFICATION
    rewrites_inputs: bool = False
    _workspaces: dict[Any, Workspace] = field(default_factory=dict, init=False, repr=False, compare=False)
    _derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _chains: dict[tuple[str, ...], tuple[Tensor, Chain]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _costs: dict[object, Cost] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_own_workspaces(self, *, recorded: bool = False) -> Model:
        """The same model with scratch space of its own, for clients that train beside others; axes are derived once."""
        return self._copy(recorded=recorded)

    def on(self, device: torch.device) -> Model:
        """The same model computing on that device, with scratch space of its own."""
        return self._copy(device=device)

    def doing(self, task: Task) -> Model:
        """The same model trained for another task."""
        return self._copy(task=task)

    def _copy(self, **changes: Any) -> Model:
        other = replace(self, **changes)
        object.__setattr__(other, "_derived", self._derived)
        object.__setattr__(other, "_costs", self._costs)
        return other

    def knowing(self, axes: Axes, macs: Cost | None = None) -> Model:
        """The same model with axes, and operations of slices, that were found elsewhere."""
        self._derived["axes"] = axes
        if macs is not None:
            self._costs["macs"] = macs
        return self

    @property
    def has_values(self) -> bool:
        """Whether the parameters have values, or only shapes (:mod:`fedfibos.common.unallocated`)."""
        return not any(parameter.is_meta for parameter in self.module.parameters())

    @property
    def macs_known(self) -> bool:
        """Whether the operations of slices are known already (:attr:`macs`)."""
        return "macs" in self._costs

    @property
    def sizes(self) -> str:
        """How many parameters are trained, and how many are frozen, which no client sends or receives."""
        frozen = sum(p.numel() for p in self.module.parameters() if not p.requires_grad)
        return f"{self.layout.size:,} parameters" + (f" and {frozen:,} frozen ones" if frozen else "")

    def initial_params(self) -> Params:
        """The module's own values as parameters; on torch's ``meta`` device where it has only shapes.

        Raises:
            ValueError: Some are not finite; names the tensor.
        """
        if not self.has_values:  # nothing to copy, and no operation on ``meta``: its code takes 50 MiB to import
            return Params(self.layout, torch.empty(self.layout.size, device="meta"))
        check_finite(self.module)
        return params_of(self.module, self.layout)

    @property
    def axes(self) -> Axes:
        """Which tensor dimensions are the same channels: what slicing needs; derived on first use.

        Raises:
            ValueError: They can't be derived (the layer is named), there is neither example nor table, or the table is
                not the model's (the axis is named).
        """
        if "axes" not in self._derived:
            self._derived["axes"] = self._derive_axes()
        axes: Axes = self._derived["axes"]
        return axes

    def remembered(self, key: object, make: Callable[[], Cost]) -> Cost:
        """What a slice of the model costs, in some respect; worked out on first use."""
        if key not in self._costs:
            self._costs[key] = make()
        return self._costs[key]

    @property
    def parameters(self) -> Cost:
        """Maskable parameters of a slice."""
        return self.remembered("parameters", lambda: parameter_cost(self.axes, self.layout))

    @property
    def macs(self) -> Cost:
        """Multiply-accumulate operations of a slice, one example forward.

        Raises:
            ValueError: There is no example, or they are no polynomial in the widths.
        """
        example = self.example
        if example is None:
            raise ValueError("a budget of 'macs' needs a model with an example batch, got one without")
        return self.remembered("macs", lambda: mac_cost(self.module, self.axes, example))

    def chain(self, ranked: Tensor, costs: Mapping[str, Cost]) -> Chain:
        """The chain of slices of those scores; the last is remembered, as clients of all capacities ask for it.

        Args:
            ranked: Score of every channel, axis after axis; see :func:`fedfibos.channels.nested.chain`.
            costs: What is bounded, by name.
        """
        unlimited = {name: replace(cost, limit=None) for name, cost in costs.items()}  # limits cut no other order
        scores, made = self._chains.get(tuple(costs), (None, None))
        if scores is not None and made is not None and torch.equal(scores, ranked) and made.costs == unlimited:
            return replace(made, costs=costs)
        split = zip(self.axes.sizes, ranked.split(list(self.axes.sizes.values())), strict=True)
        made = chain(self.axes, {axis: of.tolist() for axis, of in split}, unlimited)
        self._chains[tuple(costs)] = ranked, made
        return replace(made, costs=costs)

    def _derive_axes(self) -> Axes:
        if self.table is None and self.example is None:
            raise ValueError("slicing needs an example batch or a table of axes, got a model with neither")
        if self.table is None:
            axes = derive_axes(self.module, self.example, self.units, self.uncut)
        else:
            axes = self.table
            if self.example is not None:
                check_permutations(self.module, axes, self.example)
        return axes

    @property
    def _fixed(self) -> dict[str, Tensor]:
        """What slices cut of tensors that are not trained."""
        if "fixed" not in self._derived:
            self._derived["fixed"] = fixed_tensors(self.module, self.axes)
        tensors: dict[str, Tensor] = self._derived["fixed"]
        return tensors

    def place(self, inputs: Inputs) -> Inputs:
        """A batch where and how the model computes on it; nothing is copied when it is so already."""
        if not isinstance(inputs, Tensor):
            return {name: tensor.to(self.device, non_blocking=True) for name, tensor in inputs.items()}
        if self.channels_last and inputs.dim() == 4:
            return inputs.to(self.device, non_blocking=True, memory_format=torch.channels_last)
        return inputs.to(self.device, non_blocking=True)

    def workspace(self, submodel: Submodel, within: Submodel | None = None) -> Workspace:
        """The scratch space for submodels of that shape, made on first use.

        Of slices the last :data:`MOST_WORKSPACES` are kept: where importance chooses widths, every round has others.

        Args:
            submodel: What is to be loaded; tensors that are not trained get its channels now.
            within: The slice it is a nested member of, where it is one.
        """
        widths = submodel.widths
        work = self._workspaces.pop(widths, None)
        if work is None:
            module = self.module if widths is None else resize_module(self.module, self.axes, dict(widths))
            work = Workspace(module, submodel.local_layout(self.layout), self.device, self.recorded)
        self._workspaces[widths] = work  # at the end: the last one used
        slices = [known for known in self._workspaces if known is not None]
        for oldest in slices[:-MOST_WORKSPACES]:
            del self._workspaces[oldest]
        if widths is not None and self._fixed:
            work.hold(cut(self._fixed, self.axes, channels_of(self.axes, self.layout, submodel, within)))
        return work

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the scratch space; axes that were derived go along."""
        kept = (self.module, self.layout, self.device, self.example, self.table, self.units, self.channels_last)
        told = (self.whole, self.rewritten, self.recorded, self.uncut, self.task, self.rewrites_inputs)
        return _unpickled, ((*kept, *told), self._derived.get("axes"))


def _unpickled(fields: tuple[Any, ...], axes: Axes | None) -> Model:
    model = Model(*fields)
    return model if axes is None else model.knowing(axes)


def model_of(
    module: nn.Module,
    *,
    maskable: Sequence[str] | None = None,
    held: Sequence[str] = (),
    whole: Sequence[str] = (),
    frozen_whole: bool = False,
    example: Inputs | None = None,
    axes: Axes | None = None,
    units: Mapping[str, int] | None = None,
    device: str | torch.device = "cpu",
    channels_last: bool = False,
    task: Task = CLASSIFICATION,
) -> Model:
    """Wrap any ``nn.Module`` whose forward maps inputs to one tensor of outputs.

    With an example, copies of the module are run on it. A tensor whose zeros the model cannot bear (the direction of a
    normalised weight) is held whole by every client, as normalisation parameters are.

    Args:
        module: The architecture with its initial values. One of ``torch.compile`` is taken as it was before.
        maskable: Names of the tensors that selection ranks; see :func:`fedfibos.params.layout_of`.
        held: Without ``maskable``: modules or parameters that every client holds whole; see
            :func:`fedfibos.params.maskable_names`.
        whole: Modules or parameters whose channels slices never cut, where the axes are derived.
        frozen_whole: Nor do they cut any of a parameter that is not trained: of a model with low-rank adapters the
            ranks alone are left to cut.
        example: One batch of inputs, for the methods that slice: the channel axes are derived from it.
        axes: A hand-written table of channel axes, where they can't be derived; else the module's ``channel_axes()``.
        units: Layer -> channels of its output that belong together, where only the model's code knows it (heads); else
            the module's ``channel_units()``.
        device: Where clients train.
        channels_last: Compute on images laid out channels last: another order of summation, so other bits, and with
            some layers much faster (docs/explanation/evidence/performance.md).
        task: What it is trained for.

    Raises:
        ValueError: Parameters share memory, forward replaces one, or one in ``maskable`` must not be all zeros; names
            it. The module fails on the example. Also what :func:`fedfibos.params.layout_of` raises.
    """
    check_module_itself(module)
    module = uncompiled(module)
    if (nowhere := next((name for name, p in module.named_parameters() if p.is_meta), None)) is not None:
        raise ValueError(f"the model's parameters must have values, got {nowhere!r} on torch's meta device")
    check_own_memory(module)
    check_plain_tensors(module, example)
    ranked = maskable_names(module, held) if maskable is None else list(maskable)
    layout = layout_of(module, ranked if held or maskable is not None else None)
    if example is not None:
        check_takes(module, example)
    rewritten = () if example is None else changed_by_forward(module, example)
    divisors = () if example is None else intolerant_of_zeros(module, ranked, example)
    if divisors:
        layout = _layout_around(module, divisors, ranked, chosen=maskable is not None)
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad] if frozen_whole else []
    table = named_axes(module) if axes is None else axes
    together = named_units(module) if units is None else units
    return Model(
        module,
        layout,
        torch.device(device),
        example,
        table,
        together,
        channels_last,
        divisors,
        rewritten,
        uncut=(*whole, *frozen),
        task=task,
        rewrites_inputs=example is not None and changes_inputs(module, example),
    )


def _layout_around(module: nn.Module, whole: Sequence[str], ranked: Sequence[str], *, chosen: bool) -> Layout:
    """The layout in which every client holds the tensors that must not be zeros.

    Raises:
        ValueError: They were chosen to be ranked, or nothing else is left.
    """
    left = [name for name in ranked if name not in whole]
    if chosen or not left:
        advice = "leave it out of maskable" if chosen else "no parameters are left for capacities to choose from"
        raise ValueError(
            f"the model divides by parameter {whole[0]!r} or its norm, and zeros there, as a mask leaves them, give "
            f"values that are not finite; {advice}"
        )
    return layout_of(module, left)
