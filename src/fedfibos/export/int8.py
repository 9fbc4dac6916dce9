"""An ONNX file with weights of 8 bits, and how many test examples it answers right beside the one with 32."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedfibos.common.extras import extra
from fedfibos.common.inputs import Inputs
from fedfibos.export.folders import made_folders
from fedfibos.export.formats import Exported, export_submodel
from fedfibos.export.tracing import ExportError, contiguous
from fedfibos.submodel import Submodel
from fedfibos.tasks.classification import CLASSIFICATION
from fedfibos.tasks.task import Task
from fedfibos.types import Dataset

Int8 = Literal["dynamic", "static"]
"""Activations are brought to 8 bits as they come, or in ranges seen on some examples before."""

BATCH, CALIBRATION = 64, 256
"""Examples at a time, and how many the ranges of activations are seen on."""


@dataclass(frozen=True)
class Quantized:
    """A written file of 8 bits.

    Attributes:
        whole: The same network with 32 bits, which was written, compared and removed.
        path: The file.
        bytes: Its size.
        tested: Test examples that both were asked.
        before: The task's first metric (accuracy) of the network with 32 bits on them; None where it is no number.
        after: That of the file.
    """

    whole: Exported
    path: Path
    bytes: int
    tested: int
    before: float | None
    after: float | None


def export_int8(
    module: nn.Module,
    submodel: Submodel,
    examples: Inputs,
    out: Path,
    kind: Int8,
    test: Dataset,
    training: Dataset | None = None,
    about: Mapping[str, str] | None = None,
    *,
    batch_size: int | None = None,
    task: Task = CLASSIFICATION,
) -> Quantized:
    """Write a submodel as ONNX, bring it to 8 bits, and count how both answer the test examples.

    Args:
        module: From :func:`fedfibos.export.formats.submodel_module`.
        submodel: The submodel.
        examples: As of :func:`fedfibos.export.formats.export_submodel`.
        out: The file, ``.onnx``.
        kind: How activations are brought to 8 bits.
        test: Labelled examples.
        training: Examples to see the ranges of activations on, for ``static``.
        about: Metadata for the file; the two accuracies are added.
        batch_size: The number of examples that the network is to take; None: any number.
        task: What the model is trained for.

    Raises:
        ExportError: It is no ONNX file, or there is nothing to see ranges on.
    """
    if out.suffix != ".onnx":
        raise ExportError(f"int8 is for a file that ends in .onnx, got {out.name!r}")
    if kind == "static" and training is None:
        raise ExportError("int8 'static' needs training examples to see the ranges of activations on, got none")
    with made_folders(out.parent), tempfile.TemporaryDirectory(dir=out.parent, prefix=".int8-") as folder:
        floats, small = Path(folder, "floats.onnx"), Path(folder, "int8.onnx")
        whole = export_submodel(module, submodel, examples, floats, about, batch_size=batch_size, output=task.gives)
        size = batch_size or BATCH
        _quantize(floats, small, kind, training, size)
        tested = len(test) // size * size if batch_size else len(test)
        before, after = (_metric(path, test, tested, size, task) for path in (floats, small))
        values = " (float32 ".join("none" if value is None else f"{value:.4f}" for value in (after, before))
        _describe(small, {"int8": kind, task.primary.name: f"{values}) on {tested} test examples"})
        small.chmod(floats.stat().st_mode)
        small.replace(out)
    return Quantized(whole, out, out.stat().st_size, tested, before, after)


def _quantize(floats: Path, small: Path, kind: Int8, training: Dataset | None, size: int) -> None:
    with extra("export"):
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = floats.with_name("prepared.onnx")
    quant_pre_process(str(floats), str(prepared), skip_symbolic_shape=True)
    if kind == "dynamic":
        quantize_dynamic(str(prepared), str(small), weight_type=QuantType.QUInt8)
        return
    assert training is not None
    names = [node.name for node in _session(floats).get_inputs()]
    batches = _batches(training, min(len(training), CALIBRATION) // size * size or len(training), size)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Gives a batch after another."""

        def get_next(self) -> dict[str, Any] | None:
            """The next batch by the names of the inputs; None after the last."""
            batch = next(batches, None)
            return None if batch is None else _feeds(names, batch[0])

    quantize_static(str(prepared), str(small), Reader(), per_channel=True)


def _metric(path: Path, data: Dataset, number: int, size: int, task: Task) -> float | None:
    """The task's first metric of a file on the first so many examples, in its own runtime."""
    session = _session(path)
    names = [node.name for node in session.get_inputs()]
    rows = []
    for inputs, targets in _batches(data, number, size):
        (outputs,) = session.run(None, _feeds(names, inputs))
        rows.append(task.rows(torch.from_numpy(outputs), targets))
    return task.primary.of(torch.cat(rows)) if rows else None


def _session(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def _feeds(names: list[str], inputs: Inputs) -> dict[str, Any]:
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    return {name: np.asarray(tensor) for name, tensor in zip(names, given, strict=True)}


def _batches(data: Dataset, number: int, size: int) -> Iterator[tuple[Inputs, Tensor]]:
    for chosen in torch.arange(number).split(size):
        yield contiguous(data.batch(chosen), None), data.labels[chosen].cpu()


def _describe(path: Path, about: Mapping[str, str]) -> None:
    """Add metadata to an ONNX file."""
    import onnx

    model = onnx.load(str(path))
    for key, text in about.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    onnx.save(model, str(path))
