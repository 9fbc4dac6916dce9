"""One small run of each form of data, each task on such data, and each tracker that is installed.

python benchmarks/forms.py results/bench/forms.json       # make the data, train, write the record
python benchmarks/forms.py --page                          # write the tables of docs/how-to/own_data.md from the record

The data are made here from a seed, so the same commit and versions give the same parameters.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD, PAGE = ROOT / "results" / "bench" / "forms.json", ROOT / "docs" / "how-to" / "own_data.md"
BEGIN, END = "<!-- forms: written by benchmarks/forms.py -->", "<!-- end of forms -->"
PEOPLE, EACH, SIDE, TOKENS = 4, 15, 6, 10
TRACKERS = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow-skinny", "trackio": "trackio"}
CODE = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from fedfibos import Split, dataset_of


def pairs(folder, kind="classes"):
    made = torch.Generator().manual_seed(0)
    inputs = torch.rand(60, 3, generator=made)
    targets = inputs.sum(1) if kind == "numbers" else (inputs.sum(1) > 1.5).long()
    train, test = (dataset_of(TensorDataset(inputs[part], targets[part])) for part in (slice(45), slice(45, 60)))
    return Split(train, test, ("small", "large") if kind == "classes" else ())


class Pixels(nn.Module):
    def __init__(self, num_classes, input_shape):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, num_classes, 3, padding=1))

    def forward(self, images):
        return self.layers(images)


class Words(nn.Module):
    def __init__(self, num_classes, input_shape):
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(num_classes, 8), nn.Linear(8, num_classes))

    def forward(self, tokens):
        return self.layers(tokens)
"""


def made_data(folder: Path) -> None:
    """Files of every form: measurements of people, pictures of two classes, sequences of tokens."""
    import datasets
    import numpy as np
    import pyarrow
    from PIL import Image
    from pyarrow import csv, parquet

    (folder / "forms_code.py").write_text(CODE)
    draw = np.random.default_rng(0)
    number = PEOPLE * EACH
    first, second = draw.random(number), draw.random(number)
    columns = {
        "first": first,
        "second": second,
        "person": [f"person {n % PEOPLE}" for n in range(number)],
        "kind": ["large" if total > 1 else "small" for total in first + second],
        "total": first + second,
        "high": (first > 0.5).astype(int),
        "wide": (second > 0.5).astype(int),
    }
    table = pyarrow.table(columns)
    csv.write_csv(table, folder / "rows.csv")
    parquet.write_table(table, folder / "rows.parquet")
    datasets.Dataset.from_dict({k: list(v) for k, v in columns.items()}).save_to_disk(str(folder / "saved"))
    users = {}
    for n in range(PEOPLE):
        own = [i for i in range(number) if i % PEOPLE == n]
        inputs = [[first[i], second[i]] for i in own]
        users[f"person {n}"] = {"x": inputs, "y": [columns["kind"][i] for i in own]}
    (folder / "users.json").write_text(json.dumps({"users": list(users), "user_data": users}))
    pixels = draw.integers(0, 128, (number, SIDE, SIDE), dtype=np.uint8)
    bright = np.arange(number) % 2
    pixels += (bright[:, None, None] * 100).astype(np.uint8)
    for n, (image, label) in enumerate(zip(pixels, bright, strict=True)):
        place = folder / "pictures" / ("bright" if label else "dark")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{n}.png")
    tokens = draw.integers(0, TOKENS, (number, SIDE))
    for name, inputs, targets in (
        ("classes", pixels, bright[:, None]),
        ("marks", pixels, np.stack([bright, 1 - bright], 1)),
        ("maps", pixels, (pixels > 127).astype(np.uint8)),
        ("tokens", tokens, tokens),
    ):
        halves = {"train": slice(45), "test": slice(45, number)}
        arrays = {f"{half}_images": inputs[part] for half, part in halves.items()}
        np.savez(folder / f"{name}.npz", **arrays, **{f"{half}_labels": targets[part] for half, part in halves.items()})


ROWS = {"inputs": ["first", "second"]}
MLP = {"name": "mlp", "options": {"hidden": [8]}}
RUNS: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("folder:pictures", "classification", {}, MLP),
    *((name, "classification", {**ROWS, "label": "kind"}, MLP) for name in ("csv:rows.csv", "parquet:rows.parquet")),
    ("csv:rows.csv", "regression", {**ROWS, "label": "total"}, MLP),
    ("csv:rows.csv", "multilabel", {**ROWS, "label": ["high", "wide"]}, MLP),
    ("npz:classes.npz", "classification", {}, MLP),
    ("npz:marks.npz", "multilabel", {}, MLP),
    ("npz:maps.npz", "segmentation", {}, {"name": "forms_code:Pixels"}),
    ("npz:tokens.npz", "language-modelling", {}, {"name": "forms_code:Words"}),
    ("leaf:users.json", "classification", {}, MLP),
    ("hf:saved", "classification", {**ROWS, "label": "kind"}, MLP),
    ("hf:saved", "regression", {**ROWS, "label": "total"}, MLP),
    ("forms_code:pairs", "classification", {}, MLP),
    ("forms_code:pairs", "regression", {"kind": "numbers"}, MLP),
)
"""``data.name``, ``task.name``, ``data.options``, ``model``."""


def trained(
    folder: Path, place: int, name: str, task: str, options: dict[str, Any], model: dict[str, Any], log: str = ""
):
    """Two rounds of FedFIbOS on three capacities; its line of the record."""
    import tomli_w

    from fedfibos import load_experiment, simulate
    from fedfibos.runs.measures import measures_of

    form, _, path = name.partition(":")
    where = f"{form}:{folder / path}" if form != "forms_code" else name
    owners = {"owner": "person"} if form in ("csv", "parquet", "hf") else {}
    natural = bool(owners) or form == "leaf"
    content = {
        "data": {
            "name": where,
            "options": {**options, **owners},
            "partition": {"scheme": "natural" if natural else "iid"},
        },
        "task": {"name": task},
        "model": model,
        "method": {"name": "fedfibos"},
        "federation": {
            "clients": PEOPLE, "cohort": PEOPLE, "rounds": 2, "capacities": {"1.0": 0.5, "0.5": 0.25, "0.25": 0.25}
        },
        "local": {"steps": 3, "batch_size": 5, "lr": 0.1},
        "evaluation": {"every": 1},
        "run": {"log": [log] if log else []},
    }  # fmt: skip
    run = folder / f"run-{place}{log}"
    (folder / "experiment.toml").write_text(tomli_w.dumps(content))
    final = simulate(load_experiment(folder / "experiment.toml"), run, workers=1)
    measure = measures_of(final)[0]
    value = final[measure.whole]["full"]["last"]
    assert value is not None
    return run, {
        "data": "dataset_of(TensorDataset)" if form == "forms_code" else name,
        "task": task,
        "rounds": final["rounds"],
        "metric": measure.name,
        "value": round(value, 6),
        "params_sha256": final["params_sha256"],
    }


def tracker_line(folder: Path, tracker: str) -> dict[str, Any]:
    """A run with one tracker, and what it left on this machine."""
    try:
        found = version(TRACKERS[tracker])
    except PackageNotFoundError:
        return {"tracker": tracker, "version": None}
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    run, line = trained(folder, len(RUNS), "csv:rows.csv", "regression", {**ROWS, "label": "total"}, MLP, tracker)
    own = {"tensorboard": run / "tensorboard", "wandb": run / "wandb", "mlflow": run / "mlruns"}
    left = own.get(tracker, folder / "trackio")
    files = [path for path in left.rglob("*") if path.is_file()]
    return {
        "tracker": tracker,
        "version": found,
        "rounds": line["rounds"],
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "params_sha256": line["params_sha256"],
    }


def record() -> dict[str, Any]:
    """Every run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        sys.path.insert(0, str(folder))
        made_data(folder)
        forms = [trained(folder, place, *run)[1] for place, run in enumerate(RUNS)]
        trackers = [tracker_line(folder, tracker) for tracker in TRACKERS]
    names = ("fedfibos", "torch", "numpy", "pyarrow", "datasets", "Pillow")
    about = {"python": platform.python_version(), **{package: version(package) for package in names}}
    return {"what": "two rounds on small generated data, four clients", **about, "forms": forms, "trackers": trackers}


def page(record: dict[str, Any]) -> str:
    """The tables, as Markdown."""
    lines = ["| `data.name` | `task.name` | measured by |", "|---|---|---|"]
    lines += [f"| `{one['data']}` | `{one['task']}` | {one['metric'].replace('_', ' ')} |" for one in record["forms"]]
    had = [f"{one['tracker']} {one['version']}" for one in record["trackers"] if one["version"]]
    lines += ["", f"One run with each tracker is on record too: {', '.join(had)}."]
    return "\n".join([BEGIN, "", *lines, "", END])


def main() -> None:
    """Train and write the record, or write the page."""
    if sys.argv[1:] == ["--page"]:
        text = PAGE.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        after = rest.split(END)[1]
        written = before + page(json.loads(RECORD.read_text(encoding="utf-8"))) + after
        PAGE.write_text(written, encoding="utf-8")
        return
    Path(sys.argv[1]).write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
