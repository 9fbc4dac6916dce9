"""A model's parameters as one flat float32 vector whose named tensors are views."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedfibos.common.validation import did_you_mean

MASKABLE_MODULES = (nn.modules.conv._ConvNd, nn.Linear, nn.Embedding, nn.MultiheadAttention)


@dataclass(frozen=True)
class Layout:
    """Where each named tensor lies in the flat vector.

    The maskable tensors come first, so the d coordinates that selection ranks are the contiguous
    range ``[0, d)``; the rest (normalisation parameters, and parts that are to be held) is held by every client.

    Attributes:
        names: Parameter names, in the order of the flat vector.
        shapes: Shape of each tensor.
        num_maskable_tensors: How many of the leading tensors are maskable.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    num_maskable_tensors: int

    @cached_property
    def numels(self) -> tuple[int, ...]:
        """Number of scalars of each tensor."""
        return tuple(int(torch.Size(shape).numel()) for shape in self.shapes)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """First coordinate of each tensor, then the total size."""
        starts = [0]
        for numel in self.numels:
            starts.append(starts[-1] + numel)
        return tuple(starts)

    @property
    def size(self) -> int:
        """Number of scalars in all."""
        return self.offsets[-1]

    @property
    def num_maskable(self) -> int:
        """d of the paper: the number of scalars that selection ranks."""
        return self.offsets[self.num_maskable_tensors]

    @property
    def digest(self) -> bytes:
        """Eight bytes that differ where a flat vector means something else."""
        words = repr((self.names, self.shapes, self.num_maskable_tensors)).encode()
        return hashlib.blake2b(words, digest_size=8).digest()

    def views(self, flat: Tensor) -> list[Tensor]:
        """The named tensors as views of ``flat`` (shape ``(size,)``), in order."""
        if flat.shape != (self.size,):
            raise ValueError(f"flat vector must have shape ({self.size},), got {tuple(flat.shape)}")
        return [
            flat[start : start + numel].view(shape)
            for start, numel, shape in zip(self.offsets, self.numels, self.shapes, strict=False)
        ]

    def maskable_views(self, flat: Tensor) -> list[Tensor]:
        """The maskable tensors as views of ``flat`` (shape ``(d,)``), in order."""
        count = self.num_maskable_tensors
        pieces = flat.split(list(self.numels[:count]))
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes[:count], strict=True)]

    def maskable(self) -> Iterator[tuple[str, int, int]]:
        """``(name, start, stop)`` of every maskable tensor."""
        for i in range(self.num_maskable_tensors):
            yield self.names[i], self.offsets[i], self.offsets[i + 1]


@dataclass(frozen=True)
class Params:
    """Parameter values: a flat float32 vector and where the tensors lie in it."""

    layout: Layout
    flat: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Name -> view of the flat vector."""
        return dict(zip(self.layout.names, self.layout.views(self.flat), strict=True))

    def to(self, device: torch.device) -> Params:
        """The same on that device."""
        return Params(self.layout, self.flat.to(device))

    def sha256(self) -> str:
        """Digest of the values' bytes: equal digests mean equal parameters to the bit."""
        return hashlib.sha256(self.flat.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def layout_of(module: nn.Module, maskable: Sequence[str] | None = None) -> Layout:
    """Derive the layout of a module's trainable parameters.

    Args:
        module: Any ``nn.Module``. A tensor used under several names is listed once.
        maskable: Names of the maskable tensors. Default: weights and biases of convolutions, linear
            layers, embeddings and attention, and parameters that a module defines by itself;
            everything but the affine parameters of normalisation layers (reading of the paper, 9);
            see :func:`maskable_names`.

    Raises:
        ValueError: No trainable or no maskable parameter, an unknown name, or a parameter that is not float32.
    """
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters() if p.requires_grad}
    if not shapes:
        raise ValueError(f"the model must have trainable parameters, {type(module).__name__} has none")
    check_float32(module)
    chosen = set(maskable_names(module) if maskable is None else maskable)
    if unknown := sorted(chosen - shapes.keys()):
        raise ValueError(f"maskable tensor {unknown[0]!r} is not a trainable parameter of the model")
    if not any(math.prod(shapes[name]) for name in chosen):
        where = "outside normalisation layers" if maskable is None else "named as maskable"
        raise ValueError(f"the model must have trainable parameters {where} for capacities to choose from, got none")
    names = [n for n in shapes if n in chosen] + [n for n in shapes if n not in chosen]
    return Layout(tuple(names), tuple(shapes[n] for n in names), len(chosen))


def check_not_scripted(module: nn.Module, what: str = "the model must be") -> None:
    """Raise ValueError for a module that is, or has a part that is, of TorchScript: no copy of it can be trained."""
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            whose = f"part {name!r} is" if name else "got"
            raise ValueError(f"{what} a plain nn.Module, {whose} a scripted one: leave torch.jit out")


def check_module_itself(module: nn.Module) -> None:
    """Raise ValueError unless it is a module whose parameters have sizes, and that can be copied."""
    if not isinstance(module, nn.Module):
        got = f"the class {module.__name__}: make one" if isinstance(module, type) else type(module).__name__
        raise ValueError(f"the model must be an nn.Module with its initial values, got {got}")
    check_not_scripted(module)
    if (lazy := next((name for name, p in module.named_parameters() if is_lazy(p)), None)) is not None:
        raise ValueError(f"parameter {lazy!r} has no size before its first batch: run the module on a batch once")


def check_float32(module: nn.Module) -> None:
    """Raise ValueError for a trainable parameter of another type."""
    for name, p in module.named_parameters():
        if p.requires_grad and p.dtype != torch.float32:
            advice = (
                "keep real and imaginary parts in a last dimension of 2, torch.view_as_complex in forward joins them"
                if p.is_complex()
                else "the module's float() makes it so"
            )
            raise ValueError(f"parameter {name!r} must be float32, got {p.dtype}: {advice}")


def check_finite(module: nn.Module) -> None:
    """Raise ValueError for a parameter that begins with NaN, or a trained one with an infinite value; names it."""
    for name, p in module.named_parameters():
        wrong = ~p.detach().isfinite() if p.requires_grad else p.detach().isnan()  # a frozen mask may hold -∞
        if bad := int(wrong.sum()):
            raise ValueError(
                f"initial values must be finite, got {bad} of {p.numel()} in parameter {name!r} that are not (a tensor "
                "of torch.empty that nothing fills, say)"
            )


def without_overlaps(module: nn.Module) -> nn.Module:
    """The module itself, once tensors whose entries share memory (expanded ones) have room for each entry."""
    for tensor in (*module.parameters(), *module.buffers()):
        strides = tensor.stride() if tensor.layout == torch.strided else ()
        if any(stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=False)):
            tensor.data = tensor.data.contiguous()
    return module


def maskable_names(module: nn.Module, held: Sequence[str] = ()) -> list[str]:
    """Names of the trainable parameters that belong to no normalisation layer, without those of held modules.

    Args:
        module: Any ``nn.Module``.
        held: Modules or parameters that every client holds whole, as normalisation layers are; any name of a tensor
            that has several will do.

    Raises:
        ValueError: Nothing trainable has that name, or nothing is left.
    """
    aliases: dict[int, list[str]] = {}  # tensor -> its names; the first is the one that it goes by
    for name, p in module.named_parameters(remove_duplicate=False):
        if p.requires_grad:
            aliases.setdefault(id(p), []).append(name)
    names = [name for own in aliases.values() for name in own]
    for part in held:
        if not any(_within(name, part) for name in names):
            known = {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)}
            near = did_you_mean(part, sorted(known))
            raise ValueError(f"model.held must name trainable parts of the model, got {part!r}{near}")
    left = [
        own[0]
        for own in aliases.values()
        if not is_normalisation(module.get_submodule(own[0].rpartition(".")[0]))
        and not any(_within(name, part) for name in own for part in held)
    ]
    if held and not left:
        raise ValueError(f"model.held must leave parameters for the capacities to choose from, got {list(held)}")
    return left


def _within(parameter: str, name: str) -> bool:
    return f"{parameter}.".startswith(f"{name}.")


def is_normalisation(module: nn.Module) -> bool:
    """True for normalisation layers: torch's own, and any that only scales and shifts channels.

    A layer of another package counts when all its parameters are vectors named weight or bias and
    it has no child (an RMSNorm or a LayerNorm written by hand).
    """
    torch_norms = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
    if isinstance(module, torch_norms):
        return True
    if isinstance(module, (*MASKABLE_MODULES, nn.PReLU)) or any(module.children()):
        return False
    own = dict(module.named_parameters(recurse=False))
    return bool(own) and own.keys() <= {"weight", "bias"} and all(p.dim() == 1 for p in own.values())


def params_of(module: nn.Module, layout: Layout) -> Params:
    """Copy a module's current values into a flat vector."""
    named = dict(module.named_parameters())
    flat = torch.cat([named[name].detach().reshape(-1) for name in layout.names])
    return Params(layout, flat.to(torch.float32))


def check_kept(name: str, parameter: nn.Parameter, now: Tensor | None, shape: torch.Size) -> None:
    """Raise ValueError unless a parameter is still in its place after a forward pass, and of its shape.

    Args:
        name: The parameter's name.
        parameter: As it was before the pass.
        now: What the module has under its name.
        shape: Its shape before the pass.
    """
    if now is not parameter:
        raise ValueError(
            f"forward puts another tensor in the place of parameter {name!r}, which would not be trained: change its "
            "values instead (copy_, .data = ...)"
        )
    if parameter.shape != shape:
        raise ValueError(f"forward must leave parameter {name!r} its shape {tuple(shape)}, got {tuple(now.shape)}")
