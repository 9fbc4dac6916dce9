"""Commands on a run's last checkpoint: ``audit``, ``evaluate``, ``export``, ``diagnose``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fedfibos.cli.code_folders import search_beside
from fedfibos.cli.options import (
    Best,
    ComputeOn,
    DataDir,
    Device,
    Int8,
    RoundOption,
    RunArgument,
    check_device,
    not_an_option,
    which,
)
from fedfibos.cli.terminal import console_here


def audit(
    run_directory: RunArgument,
    batch_size: Annotated[int, typer.Option(min=2, help="Test examples a batch.")] = 20,
    clients: Annotated[int, typer.Option(min=1, help="How many clients of a capacity to evaluate.")] = 20,
    device: ComputeOn = Device.cpu,
    data_dir: DataDir = None,
) -> None:
    """Show a run's accuracy by every protocol: classes, batch statistics, local training, capacity."""
    from fedfibos.cli.audit import audit_run

    def work() -> None:
        audit_run(run_directory, batch_size, clients, data_dir, device.value, console_here())

    _on_checkpoint(run_directory, work, device)


def evaluate(
    run_directory: RunArgument,
    device: ComputeOn = Device.cpu,
    data_dir: DataDir = None,
    best: Best = False,
    round_number: RoundOption = None,
) -> None:
    """Measure the accuracies of a run's last checkpoint anew, or of another that it keeps."""
    from fedfibos.cli.evaluate import evaluate_run

    def work() -> None:
        evaluate_run(run_directory, data_dir, device.value, console_here(), which(best, round_number))

    _on_checkpoint(run_directory, work, device)


def export(
    run_directory: RunArgument,
    out: Annotated[
        Path,
        typer.Option(callback=not_an_option, help="File: .pt2, .onnx, .pte, .safetensors or .sparse.safetensors."),
    ],
    capacity: Annotated[
        float | None,
        typer.Option(help="Share of the maskable parameters, in (0, 1]; default: that of --client."),
    ] = None,
    client: Annotated[int | None, typer.Option(min=0, help="Whose, where submodels are personal.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, max=64, help=".pt2, .onnx and .pte for so many examples; default: any number.")
    ] = None,
    int8: Annotated[
        Int8 | None,
        typer.Option(help=".onnx in 8 bits: activations as they come, or in ranges seen before."),
    ] = None,
    app: Annotated[Path | None, typer.Option(help="The file of the Flower app that made the run.")] = None,
    data_dir: DataDir = None,
    best: Best = False,
    round_number: RoundOption = None,
) -> None:
    """Write the submodel of a device class as a file that other programs load; missing folders are made."""
    from fedfibos.cli.export import capacity_of, of_app, of_run, write
    from fedfibos.submodel import check_capacity

    def work() -> None:
        if capacity is not None:
            check_capacity(capacity)
        at = which(best, round_number)
        source = of_run(run_directory, data_dir, at) if app is None else of_app(run_directory, app, at)
        own = capacity_of(source, capacity, client)
        write(source, own, client, out, batch_size, console_here(), None if int8 is None else int8.value)

    _on_checkpoint(run_directory, work, Device.cpu)


def bundle(
    run_directory: RunArgument,
    out: Annotated[Path, typer.Option(callback=not_an_option, help="Folder to write: new, or empty.")],
    kind: Annotated[
        str, typer.Option("--format", help=".pt2, .onnx, .pte, .safetensors or .sparse.safetensors.")
    ] = ".pt2",
    capacity: Annotated[
        list[float] | None, typer.Option(help="Device classes; default: every capacity of the fleet.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, max=64, help=".pt2 and .onnx for so many examples; default: any number.")
    ] = None,
    app: Annotated[Path | None, typer.Option(help="The file of the Flower app that made the run.")] = None,
    data_dir: DataDir = None,
    best: Best = False,
    round_number: RoundOption = None,
) -> None:
    """Write a file for every device class, with a manifest of what each is of; each is loaded again and compared."""
    from fedfibos.cli.bundle import write_bundle
    from fedfibos.cli.export import of_app, of_run

    def work() -> None:
        at = which(best, round_number)
        source = of_run(run_directory, data_dir, at) if app is None else of_app(run_directory, app, at)
        write_bundle(source, run_directory, out, kind, capacity or (), batch_size, console_here())

    _on_checkpoint(run_directory, work, Device.cpu)


def diagnose(
    run_directory: RunArgument,
    clients: Annotated[int, typer.Option(min=1, help="How many clients to measure.")] = 5,
    capacity: Annotated[list[float] | None, typer.Option(help="Capacities; default: the run's below 1.")] = None,
    device: ComputeOn = Device.cpu,
    data_dir: DataDir = None,
) -> None:
    """Measure the theory at a run's last checkpoint: masking errors, assumptions 4 and 5, agreement of selections."""
    from fedfibos.cli.diagnose import diagnose_run

    def work() -> None:
        diagnose_run(run_directory, clients, capacity or (), data_dir, device.value, console_here())

    _on_checkpoint(run_directory, work, device)


def _on_checkpoint(run_directory: Path, work: Callable[[], None], device: Device) -> None:
    """Look at a run's checkpoint: the numbers do not depend on how many threads the machine has."""
    from fedfibos.backend.determinism import reproducible

    search_beside(run_directory)
    check_device(device)
    with reproducible():
        work()
