"""Write docs/explanation/performance.md and its page of further tables from results/bench.

``python benchmarks/performance.py``
"""

from __future__ import annotations

from statistics import median
from typing import Any

import performance_tables
from performance_tables import ROOT, SECTIONS, WORKLOADS, counted, load, spread, table

PAGE = ROOT / "docs" / "explanation" / "performance.md"

INTRODUCTION = """This page answers five questions about speed and memory:

- [What does a round cost, beside a plain loop?](#what-does-a-round-cost-beside-a-plain-loop)
- [What does a device need?](#what-does-a-device-need)
- [What does a cluster cost?](#what-does-a-cluster-cost)
- [What is slow, and what is fast?](#what-is-slow-and-what-is-fast)
- [How was it measured?](#how-was-it-measured)

[Further tables](evidence/performance.md) has the rest: memory for the scores of clients, fleets of a million clients,
selection, other libraries, another processor. `python benchmarks/performance.py` generates both pages from
`results/bench`. A cell shows the median, with the least and the most in brackets."""

ROUND = """A *plain loop* is the least that a round can take: one module, `torch.optim.SGD`, and the batches of one
client after another. It has no masks and no averaging. A workload is a model, the clients of a round, and the
steps of a client with the examples in each. The table has the processor time of a round of this
library, as a multiple of the plain loop's. Below 1 the library is faster. The plain loop trains the whole model
for every client; in the library, clients have the capacities 1, 1/2, 1/4, 1/8 and 1/16 in turn.

For convolutional models a round costs about as much as the plain loop. It costs more where a step does little
arithmetic with each parameter, as in an MLP, because FedFIbOS passes over all parameters more often.
Selecting, checking and averaging are done once for each client. They show if a client trains for few steps."""

DEVICE = """The table has the peak memory of a client's process over Flower, in MiB, as the operating system counts
it. The process trains ResNet-18 (11.2 million parameters) for three steps on batches of 20 examples. A *slice* of
a small capacity is a small network. A *mask* is trained in the shape of the whole model, so it saves bytes but no
memory. A dash was not measured."""

AFTER_DEVICE = """`fedfibos methods` prints an upper bound of this memory for your model, and `fedfibos plan` says
which devices can take part ([Plan a fleet](../how-to/plan_fleet.md)). [Submodels that fit the
device](devices.md#what-a-device-needs) explains the bound. [Export](../how-to/export.md#how-small-how-fast) has
the size and the speed of exported models. [Bytes](../reference/bytes.md) has what a round sends."""

CLUSTER = """With `--engine ray`, clients train on a Ray cluster. The table compares it with the default engine,
both with two processes on one machine. Starting Ray is not counted.

A cluster pays if a client's training takes much longer than sending its update. [Run on a
cluster](../how-to/cluster.md#what-bounds-a-larger-cluster) computes what this means for more nodes."""

SLOW = """Above 1 is slower than what it is compared with, below 1 is faster. The table has processor time. Two
rows with several processes, Flower's simulation and two workers, have wall time."""

MEASURED = """The sides of a comparison run in turn, in one process with one torch thread. One *turn* runs each
side once, and gives one ratio. The tables have the median, the least and the most of these ratios. Other work on
the machine changes processor time least. *Load* is the load average when the measurement ended. Each record is
`results/bench/NAME.json`; the command makes it again. A commit is *changed* if files were changed when the
measurement was made."""


def against_plain() -> str:
    """A round of the library over one of the plain loop, by workload."""
    rows = [
        [
            WORKLOADS[name],
            *(spread(result[side]["cpu"]["ratio"]) for side in ("fedavg", "fedfibos")),
            f"{result['bare']['cpu']['seconds'][0]:.3g}",
        ]
        for name, result in content("engine")["rows"].items()
    ]
    return table(["workload", "FedAvg", "FedFIbOS", "plain loop, s a round"], rows)


def device_memory() -> str:
    """MiB of a client's process, by method and capacity."""
    runs = content("device_memory")["runs"]
    peaks = {(run["method"], run["capacity"]): run["peak_mib"] for run in runs if run["outline"]}
    imports = median(run["torch_mib"] + run["imports_mib"] for run in runs)
    rows = [["Python, torch and Flower alone", "–", *[f"{imports:.0f}"] * 3]]
    for method, title, kind in (
        ("fedfibos-channels", "FedFIbOS on channels", "slice"),
        ("heterofl", "HeteroFL", "slice"),
        ("fedfibos", "FedFIbOS", "mask"),
        ("fiarse", "FIARSE", "mask"),
        ("fedavg", "FedAvg", "whole"),
    ):
        cells = [peaks.get((method, capacity)) for capacity in (0.0625, 0.25, 1.0)]
        rows.append([title, kind, *("–" if cell is None else f"{cell:.0f}" for cell in cells)])
    return table(["method", "a client holds a", "capacity 1/16", "1/4", "1"], rows, ("a client holds a",))


def cluster() -> str:
    """A round on Ray over one of the default engine."""
    titles = {"tiny_mlp": "MLP, 1,604 parameters", "resnet18": "ResNet-18, 11.2 M", "mlp_11m": "MLP, 11.0 M"}
    rows = []
    for name, row in content("ray")["rows"].items():
        ratio = [median(row["ratios"]), min(row["ratios"]), max(row["ratios"])]
        seconds = [f"{row['seconds'][side]:.3g}" for side in ("embedded", "ray")]
        rows.append([titles[name], f"{row['clients']} × {row['steps']}", *seconds, spread(ratio)])
    return table(["model", "clients × steps", "default engine, s a round", "Ray, s a round", "ratio"], rows)


SPEEDS = [
    ("engine", "mlp_11m_1_step", "fedfibos", "MLP of 11 M, one step a client", "plain loop", "train for more steps"),
    ("engine_xeon", "mlp_11m_1_step", "fedfibos", "the same on an Intel Xeon", "plain loop", "the same"),
    (
        "engine_default_allocator",
        "mlp_11m_1_step",
        "fedfibos",
        "the same without `keep_freed_memory()`",
        "plain loop",
        "call it in a program of your own; the command line does",
    ),
    ("flower", "tiny_mlp", "flower", "tiny model in Flower's own simulation", "plain loop", "`fedfibos run`"),
    (
        "layouts",
        "resnet8, group norm",
        "bfloat16, channels last",
        "`model.channels_last` with GroupNorm (and bfloat16)",
        "float32, channels first",
        "leave `channels_last` off",
    ),
    ("compile", "cnn", "compiled", "`torch.compile` on a CNN", "eager mode", "nothing; the engine does not use it"),
    ("workers", "cnn", "two", "two workers", "one worker", "`--workers 2`"),
    (
        "precision",
        "resnet18",
        "bfloat16",
        "bfloat16 on ResNet-18",
        "float32",
        '`local.precision = "bfloat16"`, where the processor has it',
    ),
    (
        "layouts",
        "lenet",
        "bfloat16, channels last",
        "bfloat16 and channels last on LeNet",
        "float32, channels first",
        "both settings, without GroupNorm",
    ),
]
"""Piece, workload, side; what it is, what it is compared with, and what to do."""


def speeds() -> str:
    """What makes a run slow or fast."""
    rows = []
    for piece, workload, side, what, against, advice in SPEEDS:
        of = content(piece)["rows"][workload][side]
        rows.append([what, against, spread((of.get("cpu") or of["wall"])["ratio"]), advice])
    return table(["what", "compared with", "time", "what to do"], rows, ("compared with", "what to do"))


def measured() -> str:
    """How every record was made."""
    rows = []
    for piece in [*(piece for piece, *_ in SECTIONS), "ray"]:
        if (of := load(piece)) is not None:
            made = of["made"]
            command, commit = " ".join(made["command"]), (made["commit"] or "?")
            rows.append(
                [
                    f"`{piece}`",
                    f"`{command}`",
                    counted(of["repeats"]),
                    f"{made['cores']} cores of {made['cpu']}",
                    f"{of['load']:.1f}",
                    commit[:12] + (", changed" if commit.endswith("-dirty") else ""),
                ]
            )
    command = "`benchmarks/device_memory.py results/bench/device_memory.json`"
    rows.append(["`device_memory`", command, "one process each", "–", "–", "–"])
    head = ["record", "command", "measured", "machine", "load", "commit"]
    return table(head, rows, ("command", "measured", "machine", "commit"))


def content(piece: str) -> dict[str, Any]:
    """A piece's results.

    Raises:
        FileNotFoundError: It was not run.
    """
    if (found := load(piece)) is None:
        raise FileNotFoundError(f"results/bench/{piece}.json is not there: `make bench` writes it")
    return found


def page() -> str:
    """The whole page."""
    parts = [
        "# Performance",
        INTRODUCTION,
        "## What does a round cost, beside a plain loop?",
        ROUND,
        against_plain(),
        "## What does a device need?",
        DEVICE,
        device_memory(),
        AFTER_DEVICE,
        "## What does a cluster cost?",
        CLUSTER,
        cluster(),
        "## What is slow, and what is fast?",
        SLOW,
        speeds(),
        "## How was it measured?",
        MEASURED,
        measured(),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    performance_tables.PAGE.write_text(performance_tables.page(), encoding="utf-8")
