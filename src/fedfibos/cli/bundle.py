"""``fedfibos bundle``: a file for every device class of a run, and a manifest that says what they are of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from fedfibos.cli.export import Exportable, exported
from fedfibos.common.atomic_files import write_whole
from fedfibos.export.formats import FORMATS, Exported
from fedfibos.runs.files import CONFIG, ENVIRONMENT
from fedfibos.runs.made import latest_environment
from fedfibos.runs.measures import Measure, measures_of
from fedfibos.runs.record import RunDirectory
from fedfibos.runs.synced import sha256_of

MANIFEST = "manifest.json"


def write_bundle(
    source: Exportable,
    run: Path,
    out: Path,
    kind: str,
    capacities: Sequence[float],
    batch_size: int | None,
    console: Console,
) -> None:
    """Write a bundle, whole or not at all.

    Args:
        source: The run, at one of its checkpoints.
        run: Its directory.
        out: The folder to write; new or empty.
        kind: How the files end: one of :data:`fedfibos.export.formats.FORMATS`.
        capacities: Device classes; empty: all of the fleet.
        batch_size: Examples that traced networks take; None: any number.
        console: Where it says what was written.

    Raises:
        ValueError: The folder holds something, another ending, no known capacity, or submodels that are personal.
    """
    if kind not in FORMATS:
        raise ValueError(f"--format must be one of {', '.join(FORMATS)}, got {kind!r}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} must be a new or an empty folder: choose another --out")
    if source.method.personal:
        raise ValueError(
            "submodels of this run are each client's own, a class has none in common: fedfibos export --client N "
            "writes one"
        )
    classes = sorted(set(capacities or source.fleet), reverse=True)
    if not classes:
        raise ValueError("no capacity is on record: pass --capacity for every device class")
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        files = [(c, exported(source, c, temporary / f"capacity-{c:g}{kind}", batch_size)) for c in classes]
        manifest = _manifest(source, run, files)
        write_whole(temporary / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        if out.exists():
            out.rmdir()
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    console.print(_table(manifest, measures_of(_evaluation(run, source.at.round))[0]))
    console.print(f"written: {out / MANIFEST}", markup=False, highlight=False, soft_wrap=True)


def _manifest(source: Exportable, run: Path, files: Sequence[tuple[float, Exported]]) -> dict[str, Any]:
    """What the files are of: run, round and commit; and of each file its digest, size and metrics."""
    about, made = dict(source.about), latest_environment(run)
    classes = about.pop("classes", None)
    measured = _evaluation(run, source.at.round)
    return {
        "run": run.resolve().name,
        "config_sha256": sha256_of(run / CONFIG),
        "environment_sha256": sha256_of(run / ENVIRONMENT) if (run / ENVIRONMENT).is_file() else None,
        "seed": source.seed,
        "round": source.at.round,
        "commit": made.get("commit"),
        "fedfibos": version("fedfibos"),
        "params_sha256": source.at.params.sha256(),
        **about,
        "classes": None if classes is None else json.loads(classes),
        "measured": measures_of(measured)[0].name if measured else None,
        "devices": [_device(capacity, done, measured) for capacity, done in files],
    }


def _device(capacity: float, done: Exported, measured: Mapping[str, Any]) -> dict[str, Any]:
    key = str(capacity)
    whole, own = measured.get("global", {}), measured.get("local", {})
    return {
        "capacity": capacity,
        "file": done.path.name,
        "sha256": sha256_of(done.path),
        "bytes": done.bytes,
        "parameters": done.parameters,
        "stored": done.stored,
        "read_with": done.read_with,
        "difference": done.difference,
        "metrics": {
            "global": whole.get("submodels", {}).get(key),
            "local": own.get("by_capacity", {}).get(key),
        },
    }


def _evaluation(run: Path, number: int) -> Mapping[str, Any]:
    """The evaluation of a round; nothing where it was not measured."""
    records = RunDirectory(run).rounds()
    found: Mapping[str, Any] = records[number - 1].get("evaluation", {}) if number <= len(records) else {}
    return found


def _table(manifest: Mapping[str, Any], measure: Measure) -> Table:
    table = Table(title=f"{manifest['method']}, seed {manifest['seed']}, after round {manifest['round']}")
    for heading in ("capacity", "file", "parameters", "size", "global", "local", "outputs differ by"):
        table.add_column(heading, justify="right")
    for device in manifest["devices"]:
        shares = [device["metrics"][name] for name in ("global", "local")]
        table.add_row(
            f"{device['capacity']:g}",
            device["file"],
            f"{device['parameters']:,}",
            decimal(device["bytes"]),
            *("–" if share is None else measure.text(share) for share in shares),
            f"{device['difference']:.1g}",
        )
    return table
