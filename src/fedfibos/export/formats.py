"""The submodel of a device class as a file that other programs load: safetensors, torch.export, ONNX or ExecuTorch.

A slice is written as the small network it is. A mask is written in the tensors of the full model, zero off the mask; as
``.sparse.safetensors`` without the zeros, for devices that have little room for the file.
The file is read back, by what reads it elsewhere, and its outputs are compared with the submodel's before it counts.
"""

from __future__ import annotations

import copy
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from fedfibos.analysis.accuracy import recalibrate
from fedfibos.channels.trace import plain_kernels
from fedfibos.common.extras import extra
from fedfibos.common.inputs import Inputs, copied, forward
from fedfibos.common.norms import keeps_statistics
from fedfibos.export.folders import made_folders
from fedfibos.export.pte import write_pte
from fedfibos.export.sparse import read_sparse, write_sparse
from fedfibos.export.tracing import ExportError as ExportError
from fedfibos.export.tracing import contiguous, first_tensor, trace
from fedfibos.model import Model
from fedfibos.params import Params
from fedfibos.submodel import Submodel
from fedfibos.types import Dataset

TOLERANCE = 1e-4
"""Largest difference of an output, relative to the largest output, at which a file counts as the submodel."""


@dataclass(frozen=True)
class Exported:
    """A written file.

    Attributes:
        path: The file.
        parameters: Parameters that the submodel holds.
        stored: Parameters in the file: for a mask those of the full model, but in a sparse file.
        bytes: Size of the file.
        difference: Largest difference between an output of the file and of the submodel, on the examples.
        read_with: What read it back.
    """

    path: Path
    parameters: int
    stored: int
    bytes: int
    difference: float
    read_with: str


def submodel_module(model: Model, params: Params, submodel: Submodel, calibration: Dataset | None = None) -> nn.Module:
    """A submodel as a module of its own, in evaluation mode, on the CPU.

    Args:
        model: Architecture and layout.
        params: The global parameters.
        submodel: What the device holds.
        calibration: Training examples to recompute the statistics of batch normalisation on.

    Raises:
        ValueError: The model has batch normalisation and there is no calibration set.
    """
    # A workspace of its own: what a module keeps of a training step (an activation, say) could not be copied.
    module = model.with_own_workspaces().workspace(submodel).load(submodel.gather(params.flat)).eval()
    if keeps_statistics(module):
        if calibration is None:
            raise ValueError("a model with batch normalisation needs training data to recalibrate on, got none")
        recalibrate(module, calibration, model.place)
    fresh: dict[int, nn.Parameter] = {}  # a tied tensor stays one
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None:  # no longer a view of the workspace's flat vector
                own = nn.Parameter(_own(parameter), requires_grad=False)
                owner._parameters[name] = fresh.setdefault(id(parameter), own)
        for name, buffer in owner._buffers.items():
            owner._buffers[name] = None if buffer is None else _own(buffer)
    return module.cpu()


def _own(tensor: Tensor) -> Tensor:
    """A copy on the CPU, in the order of its dimensions."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def export_submodel(
    module: nn.Module,
    submodel: Submodel,
    examples: Inputs,
    out: Path,
    about: Mapping[str, str] | None = None,
    *,
    batch_size: int | None = None,
    output: str = "logits",
) -> Exported:
    """Write a submodel, read the file back, and compare outputs.

    Args:
        module: From :func:`submodel_module`.
        submodel: The submodel.
        examples: A batch of inputs, at least two, to trace the network with and to compare outputs on.
        out: The file; how its name ends says the format: a key of :data:`FORMATS`.
        about: Metadata for the file.
        batch_size: The number of examples that a traced network is to take, at most those given; None: any number.
        output: What the outputs are called in an ``.onnx`` file (:attr:`fedfibos.tasks.task.Task.gives`).

    Raises:
        ExportError: Unknown suffix, missing package, a network that cannot be traced, or outputs that differ.
    """
    ending = next((ending for ending in FORMATS if out.name.endswith(ending)), None)
    if ending is None:
        raise ExportError(f"the file must end in one of {', '.join(FORMATS)}, got {out.name!r}")
    temporary = out.with_name(f".{out.stem}.tmp{out.suffix}")
    write, read_with = FORMATS[ending]
    if batch_size is not None and not 1 <= batch_size <= len(first_tensor(examples)):
        raise ExportError(
            f"batch_size must be from 1 to the {len(first_tensor(examples))} examples given, got {batch_size}"
        )
    examples = contiguous(examples, batch_size)
    with made_folders(out.parent):
        try:
            try:
                got = write(module, examples, temporary, dict(about or {}), batch_size is None, output)
            except (OSError, SafetensorError, RuntimeError) as error:
                raise ExportError(f"{out.name} cannot be written: {str(error).splitlines()[0]}") from error
            difference = _difference(module, examples, got, out.name)
            temporary.chmod(0o666 & ~_umask())  # safetensors writes for the owner alone
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    small = submodel.widths is not None or ending == SPARSE
    stored = submodel.num_held if small else sum(p.numel() for p in module.parameters())
    return Exported(out, submodel.num_held, stored, out.stat().st_size, difference, read_with)


def _difference(module: nn.Module, examples: Inputs, got: Tensor, name: str) -> float:
    """The largest difference between an output of a file and of the submodel.

    As torch evaluates it, or as it trains: a transformer has a fast path, with zeros at padding, which no file has.

    Raises:
        ExportError: They are not the same network.
    """
    for kernels in (nullcontext(), plain_kernels()):
        before = torch.get_rng_state()
        with torch.no_grad(), kernels:
            wanted = forward(module, copied(examples))
        if not torch.equal(torch.get_rng_state(), before):
            raise ExportError(
                f"{name} cannot be compared with the submodel, which draws random numbers in evaluation too: dropout "
                "takes training=self.training, and a sample its mean where self.training is False"
            )
        difference = float((got - wanted).where(got != wanted, 0.0).abs().max())  # -inf is -inf
        largest = wanted.abs().where(wanted.isfinite(), 0.0).max()
        if difference <= TOLERANCE * max(1.0, float(largest)):
            return difference
    raise ExportError(f"{name} does not compute what the submodel does: outputs differ by {difference:.3g}")


def _safetensors(
    module: nn.Module, examples: Inputs, path: Path, about: dict[str, str], any_batch: bool, output: str
) -> Tensor:
    save_model(module, str(path), about)  # a tied tensor is written once
    again = _emptied(module)
    load_model(again, path)
    with torch.no_grad():
        return forward(again, copied(examples))


def _sparse(
    module: nn.Module, examples: Inputs, path: Path, about: dict[str, str], any_batch: bool, output: str
) -> Tensor:
    aliases = dict(module.named_parameters(remove_duplicate=False)).keys() - dict(module.named_parameters()).keys()
    write_sparse({k: v for k, v in module.state_dict().items() if k not in aliases}, path, about)
    again = _emptied(module)
    again.load_state_dict(read_sparse(path), strict=False)
    with torch.no_grad():
        return forward(again, copied(examples))


def _emptied(module: nn.Module) -> nn.Module:
    """Of the same shape, without any value that a file should bring."""
    again = copy.deepcopy(module)
    for tensor in again.state_dict().values():
        tensor.zero_()
    return again


def _torch_export(
    module: nn.Module, examples: Inputs, path: Path, about: dict[str, str], any_batch: bool, output: str
) -> Tensor:
    program = trace(module, examples, any_batch)
    program.example_inputs = None  # a file of the model must not hold anyone's data
    archive = io.BytesIO()  # torch's own writer ends the process where a disk is full
    torch.export.save(program, archive, extra_files={f"{key}.txt": text for key, text in about.items()})
    path.write_bytes(archive.getvalue())
    again = torch.export.load(path).module()
    with torch.no_grad():
        return forward(again, copied(examples))


def _onnx(
    module: nn.Module, examples: Inputs, path: Path, about: dict[str, str], any_batch: bool, output: str
) -> Tensor:
    with extra("export"):
        import onnx  # noqa: F401 (the exporter needs it)
        import onnxruntime
        import onnxscript  # noqa: F401

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(
            logging.ERROR
        )  # it misses torchvision
        traced = trace(module, examples, any_batch)
        taken = {*traced.graph_signature.user_inputs, *traced.state_dict}
        while output in taken:  # an input of the same name, say
            output = f"{output}_out"
        program = torch.onnx.export(traced, dynamo=True, verbose=False, output_names=[output])
        assert program is not None
        program.model.metadata_props.update(about)
        program.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = [examples] if isinstance(examples, Tensor) else list(examples.values())
    feeds = {node.name: np.asarray(tensor) for node, tensor in zip(session.get_inputs(), given, strict=True)}
    return torch.from_numpy(session.run(None, feeds)[0])


def _umask() -> int:
    """The permissions that new files go without; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


Write = Callable[[nn.Module, Inputs, Path, dict[str, str], bool, str], Tensor]

SPARSE = ".sparse.safetensors"

FORMATS: dict[str, tuple[Write, str]] = {
    SPARSE: (_sparse, "read_sparse (from fedfibos import read_sparse) and the module"),
    ".safetensors": (_safetensors, "safetensors and the module"),
    ".pt2": (_torch_export, "torch.export.load"),
    ".onnx": (_onnx, "onnxruntime"),
    ".pte": (write_pte, "ExecuTorch's runtime"),
}
"""How a file's name ends -> (writes it and gives the outputs that it computes, what reads it back); first match."""


def describe(submodel: Submodel, **about: Any) -> dict[str, str]:
    """Metadata of a file: what it is of, and which widths a slice has."""
    kind = "mask" if submodel.widths is None else "slice"
    whole = {"kind": kind, "widths": json.dumps(dict(submodel.widths or ())), **about}
    return {key: str(value) for key, value in whole.items() if value is not None}
