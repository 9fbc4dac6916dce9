"""Arguments and options that several commands have."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer


class Device(StrEnum):
    """Where clients train."""

    cpu = "cpu"
    cuda = "cuda"


class Summary(StrEnum):
    """What a table gives of a run's accuracies."""

    last = "last"
    last20 = "last20"
    best = "best"


class Int8(StrEnum):
    """How activations are brought to 8 bits."""

    dynamic = "dynamic"
    static = "static"


class LogFormat(StrEnum):
    """How a run says what goes on."""

    text = "text"
    json = "json"


class EngineName(StrEnum):
    """Which engine trains the clients."""

    embedded = "embedded"
    ray = "ray"


def check_device(device: Device) -> None:
    """Refuse a device that is not there, before anything is loaded."""
    import torch

    if device is Device.cuda:  # a queue of its own for every client; the driver looks when it starts
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if device is Device.cuda and not torch.cuda.is_available():
        raise typer.BadParameter("cuda was asked for, but torch sees no CUDA device", param_hint="--device")


def not_an_option(value: Path | None) -> Path | None:
    """Refuse ``--out --resume``, which would make a folder named ``--resume``."""
    if value is not None and str(value).startswith("-"):
        raise typer.BadParameter(f"a folder is wanted, got {str(value)!r}")
    return value


Overrides = Annotated[list[str] | None, typer.Argument(help="section.key=value ...")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; default: one a processor.")]
SummaryOption = Annotated[
    Summary, typer.Option("--summary", help="The last evaluation, the mean of the last 20, or the best.")
]
TrainOn = Annotated[Device, typer.Option("--device", help="Where clients train.")]
ComputeOn = Annotated[Device, typer.Option("--device", help="Where to compute.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory with a checkpoint.")]
EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="This machine's engine, or a Ray cluster (extra ray).")
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", help="HOST:PORT of the Ray cluster, or auto; default: RAY_ADDRESS, else one started here."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the data sets; default: the environment variable FEDFIBOS_DATA."),
]
Best = Annotated[bool, typer.Option("--best", help="Of the best checkpoint, by the run's checkpoint.best.")]
RoundOption = Annotated[
    int | None, typer.Option("--round", min=1, help="Of the checkpoint after so many rounds, where it is kept.")
]


def which(best: bool, number: int | None) -> int | Literal["last", "best"]:
    """The checkpoint that was asked for."""
    if best and number is not None:
        raise typer.BadParameter("pass --best or --round, not both", param_hint="--best")
    return "best" if best else "last" if number is None else number
