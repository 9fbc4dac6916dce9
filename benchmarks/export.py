"""Size and time of exported files, capacity by capacity: the whole model, a mask and slices, each in its own runtime.

python benchmarks/export.py results/bench/export.json       # measure
python benchmarks/export.py --page                           # write the table of docs/how-to/export.md from the record

Times are of the processor, of one example at a time, with one thread: the median of several passes.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD, PAGE = ROOT / "results" / "bench" / "export.json", ROOT / "docs" / "how-to" / "export.md"
BEGIN, END = "<!-- sizes: written by benchmarks/export.py -->", "<!-- end of sizes -->"
MODEL, SHAPE, CLASSES = "resnet18", (3, 32, 32), 10
CAPACITIES = (0.5, 0.25, 0.125, 0.0625)
PASSES = 20


def measured(folder: Path) -> list[dict[str, Any]]:
    """Every file: what it is of, its size, and milliseconds of processor time an example."""
    import torch

    from fedfibos.data.images import TensorData
    from fedfibos.export.formats import describe, export_submodel, submodel_module
    from fedfibos.export.int8 import export_int8
    from fedfibos.methods import FIARSE, HeteroFL
    from fedfibos.model import model_of
    from fedfibos.models import build
    from fedfibos.training import LocalTraining
    from fedfibos.types import Client

    torch.set_num_threads(1)
    images = torch.randn(64, *SHAPE, generator=torch.Generator().manual_seed(0))
    model = model_of(build(MODEL, CLASSES, SHAPE, norm="batch", seed=0), example=images[:2])
    params, data = model.initial_params(), TensorData(images, torch.arange(64) % CLASSES)
    rows = []
    kinds = [("whole model", HeteroFL(), 1.0), ("mask", FIARSE(), CAPACITIES[-1])]
    for kind, method, capacity in [*kinds, *(("slice", HeteroFL(), c) for c in CAPACITIES)]:
        client = Client(0, capacity, 0, 0, LocalTraining())
        submodel = method.extract(model, method.init(params), params, client)
        module = submodel_module(model, params, submodel, data)
        for ending in (".onnx", " int8.onnx", ".pte"):
            out = folder / f"{kind}-{capacity}{ending}"
            if "int8" in ending:
                export_int8(module, submodel, images[:4], out, "static", data, data, batch_size=1)
            else:
                export_submodel(module, submodel, images[:4], out, describe(submodel), batch_size=1)
            run = runtime(out, images[:1])
            rows.append(
                {"kind": kind, "capacity": capacity, "file": ending.strip(), "bytes": out.stat().st_size, "ms": run}
            )
            print(rows[-1], file=sys.stderr)
    return rows


def runtime(path: Path, example: Any) -> float:
    """Milliseconds of processor time of one example."""
    call: Callable[[], Any]
    if path.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feeds = {session.get_inputs()[0].name: example.numpy()}

        def call() -> Any:
            return session.run(None, feeds)
    else:
        from executorch.runtime import Runtime

        method = Runtime.get().load_program(path).load_method("forward")

        def call() -> Any:
            return method.execute((example,))

    taken = []
    for _ in range(PASSES + 1):
        began = time.process_time()
        call()
        taken.append(1000 * (time.process_time() - began))
    return round(statistics.median(taken[1:]), 3)


def table(record: dict[str, Any]) -> str:
    """The record as a table: a row a submodel, size and time of each kind of file."""
    rows = record["files"]
    files = list(dict.fromkeys(row["file"] for row in rows))
    heads = " | ".join(f"`{name}`, MB | ms" if "int8" not in name else "int8 `.onnx`, MB | ms" for name in files)
    lines = [f"| submodel | capacity | {heads} |", "|---|---|" + "---|" * 2 * len(files)]
    for kind, capacity in dict.fromkeys((row["kind"], row["capacity"]) for row in rows):
        own = {row["file"]: row for row in rows if (row["kind"], row["capacity"]) == (kind, capacity)}
        cells = [f"{own[name]['bytes'] / 1e6:.2f} | {own[name]['ms']:.2f}" for name in files]
        lines.append(f"| {kind} | {capacity:g} | {' | '.join(cells)} |")
    note = (
        f"{record['model']} with batch normalisation on {' × '.join(map(str, SHAPE))}, {record['cpu']}, one thread.\n"
        f"Processor time of one example, median of {PASSES} passes. Slices are HeteroFL's, of random weights: size and "
        "speed do not\ndepend on values. The record is `results/bench/export.json`."
    )
    return "\n".join([*lines, "", note])


def page(record: dict[str, Any]) -> str:
    """The page with the table in its place."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(record)}\n\n{END}{rest.partition(END)[2]}"


def main(out: str) -> None:
    """Measure, or write the page."""
    if out == "--page":
        PAGE.write_text(page(json.loads(RECORD.read_text(encoding="utf-8"))), encoding="utf-8")
        return
    import onnxruntime
    import torch

    from fedfibos.runs.environment import describe

    with tempfile.TemporaryDirectory() as folder:
        files = measured(Path(folder))
    cpu = describe("cpu").get("cpu", platform.processor())
    versions = {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
    record = {"model": MODEL, "cpu": cpu, **versions, "passes": PASSES, "files": files}
    Path(out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
