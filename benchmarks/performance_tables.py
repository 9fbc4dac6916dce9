"""Further tables of speed and memory, which ``python benchmarks/performance.py`` writes from results/bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workloads import WORKLOADS as BENCHED

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "results" / "bench", ROOT / "docs" / "explanation" / "evidence" / "performance.md"

WORKLOADS = {
    "tiny_mlp": "MLP 20-64-4, 10 clients × 7 steps of 32",
    "cnn": "CNN, 10⁵ parameters, 5 clients × 7 steps of 32",
    "resnet8": "ResNet-8, 5 clients × 7 steps of 32",
    "resnet18": "ResNet-18, 11.2 M, 2 clients × 3 steps of 20",
    "mlp_11m": "MLP, 11.0 M, 5 clients × 20 steps of 32",
    "mlp_11m_1_step": "the same, 1 step a client",
}
MASKED = {
    name: name for name in ("fiarse, its authors' code", "fiarse, as released", "fiarse, as in its paper", "fedfibos")
}
SIDES = {"fedavg": "FedAvg", "fedfibos": "FedFIbOS, selection included"}
SINGLE = {"mlp_11m_1_step": "MLP, 11.0 M, 5 clients × 1 step of 32"}
"""The same where it stands first."""


def load(piece: str) -> dict[str, Any] | None:
    """A piece's results, or None where it was not run."""
    path = RESULTS / f"{piece}.json"
    content: dict[str, Any] | None = json.loads(path.read_text()) if path.is_file() else None
    return content


def table(head: list[str], rows: list[list[str]], words: tuple[str, ...] = ()) -> str:
    """A Markdown table. The first column and those that ``words`` names hold words, the others numbers."""
    rule = ["---" if title in (head[0], *words) else "---:" for title in head]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows])


def spread(values: list[float], digits: int = 3) -> str:
    """Median (least to most)."""
    middle, least, most = (f"{value:.{digits}g}" for value in values)
    return f"{middle} ({least} to {most})"


def counted(turns: int) -> str:
    """How often a piece was measured."""
    return f"{turns} turn{'s' if turns != 1 else ''}"


def made(content: dict[str, Any]) -> str:
    """How a piece was measured, in one line."""
    of = content["made"]
    return (
        f"`{' '.join(of['command'])}`: {counted(content['repeats'])}; torch {of['torch']}, numpy {of['numpy']}, "
        f"{of['cores']} cores of {of['cpu']}, load average {content['load']:.1f}, commit {(of['commit'] or '?')[:12]}"
        f"{' with local changes' if (of['commit'] or '').endswith('-dirty') else ''}."
    )


def ratios(content: dict[str, Any], sides: dict[str, str], base: str, label: str | None = None) -> str:
    """One row for each workload and side: ratio of processor time and of wall time to the base, and its seconds.

    ``label`` names the workload where a piece changes it.
    """
    rows = []
    for workload, result in content["rows"].items():
        if "skipped" in result:
            rows.append([WORKLOADS.get(workload, workload), result["skipped"], "", "", ""])
            continue
        for side, title in sides.items():
            cpu = spread(result[side]["cpu"]["ratio"]) if "cpu" in result[side] else "–"
            wall = spread(result[side]["wall"]["ratio"])
            rows.append(
                [
                    label or WORKLOADS.get(workload, workload),
                    title,
                    cpu,
                    wall,
                    f"{result[base]['wall']['seconds'][0]:.3g}",
                ]
            )
    seconds = f"{'plain loop' if base == 'bare' else base}, s a round"
    return table(["workload", "side", "processor time", "wall time", seconds], rows)


def floors(content: dict[str, Any]) -> str:
    """The least that the engine's ratio can be: the plain loop's round and the passes that FedFIbOS adds to it."""
    engine, rows = load("engine"), []
    for name, result in content["rows"].items():
        sgd, ours = (result[side]["cpu"]["seconds"][0] for side in ("sgd", "fedfibos"))
        least = "–"
        if engine is not None:
            of = BENCHED[name]
            least = (
                f"{1 + (ours - sgd) * of.clients * of.steps / engine['rows'][name]['bare']['cpu']['seconds'][0]:.3f}"
            )
        rows.append([WORKLOADS[name], f"{1000 * sgd:.3g}", f"{1000 * ours:.3g}", least])
    return table(["workload", "SGD's update, ms a step", "with FedFIbOS's passes, ms", "floor of the ratio"], rows)


def passes(content: dict[str, Any]) -> str:
    """A client's passes in a round of one step and of twenty."""
    return "\n\n".join(
        f"{SINGLE.get(name, WORKLOADS[name])}:\n\n{client_passes(row, BENCHED[name].steps)}"
        for name, row in content["rows"].items()
    )


def client_passes(row: dict[str, Any], steps: int) -> str:
    """A client's passes, stage by stage, beside the fewest; and the ratio that these would give."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for of in row["made"]:
        stage = "the steps" if of["stage"] in ("observe", "update of the step") else of["stage"]
        stages.setdefault(stage, []).append(of)
    at_best = fewest(row["fewest"], steps)
    rows, least = [], 0.0
    for stage, operations in stages.items():
        moved, ms = (sum(of[key] for of in operations) for key in ("read", "ms"))
        moved += sum(of["written"] for of in operations)
        names = ", ".join(dict.fromkeys(f"`{of['operation'].strip('_')}`" for of in operations if of["ms"] > 0.1))
        cells = ["the same", f"{ms:.1f}"]
        if stage in at_best:
            bytes_, fewest_ms = at_best[stage]
            least += fewest_ms - ms
            cells = [str(bytes_), f"{fewest_ms:.1f}"]
        rows.append([f"{stage}: {names}", f"{moved:.0f}", f"{ms:.1f}", *cells])
    total = sum(of["ms"] for of in row["made"])
    rows.append(["all", "", f"{total:.1f}", "", f"{total + least:.1f}"])
    ours, best = (f"{ms / row['bare_ms']:.2f}" for ms in (total, total + least))
    rows.append(["over the plain loop", "", ours, "", best])
    return table(["stage, and torch's operations", "bytes", "ms", "fewest bytes", "ms in C"], rows)


def fewest(loops: dict[str, Any], steps: int) -> dict[str, tuple[int, float]]:
    """Stage -> bytes a parameter that a client must read and write, and milliseconds of the loops that do it."""
    if "skipped" in loops:
        return {}
    later = steps - 1
    return {
        "select": (5, loops["select_scores"]),
        "start": (13, loops["start"]),
        "the steps": (17 + 21 * later, loops["only_step"] + later * loops["step"]),
        "estimate": (9, loops["estimate"]),
        "update": (12, loops["finish"]),
        "look": (10, 2 * loops["look"]),
        "sums": (27, 2 * loops["add"] + loops["count"]),
    }


def against(content: dict[str, Any]) -> str:
    """FedFIbOS's ratios to the plain loop at two commits, measured in turn."""
    rows = [
        [
            SINGLE.get(workload, WORKLOADS[workload]),
            *(spread(result[when]["fedfibos"]["cpu"]["ratio"]) for when in ("before", "after")),
            *(spread(result[when]["fedfibos"]["wall"]["ratio"]) for when in ("before", "after")),
        ]
        for workload, result in content["rows"].items()
    ]
    return table(["workload", "processor time, before", "after", "wall time, before", "after"], rows)


def selection(content: dict[str, Any]) -> str:
    """Selection over 11.2 million scores."""
    rows = []
    for task, sides in content["rows"]["11.2M scores"].items():
        for side, kinds in sides.items():
            cpu = kinds["cpu"]
            rows.append([task, side, f"{1000 * cpu['seconds'][0]:.3g}", spread(cpu["ratio"])])
    return table(["share or task", "side", "ms of processor time", "ratio"], rows)


def upload_checks(content: dict[str, Any]) -> str:
    """One look at 11.2 million parameters, by the obvious operations and by the library's."""
    rows = []
    for question, sides in content["rows"]["11.2M parameters"].items():
        ms = [f"{1000 * sides[side]['cpu']['seconds'][0]:.3g}" for side in ("obvious", "fedfibos")]
        rows.append([question, *ms, spread(sides["fedfibos"]["cpu"]["ratio"])])
    return table(["question", "obvious, ms", "fedfibos, ms", "ratio"], rows)


def workers(content: dict[str, Any]) -> str:
    """Wall time of two at once over one after the other."""
    (row,) = content["rows"].values()
    rows = []
    for title, side in (("FedFIbOS, two workers", "two"), ("two plain loops at once", "bare, at once")):
        ratio = row[side]["wall"]["ratio"]
        rows.append([title, spread(ratio), f"{1 / ratio[0]:.2f}"])
    return table(["", "wall time", "times faster"], rows)


def compile_gain(content: dict[str, Any]) -> str:
    """Ratio of processor time, and what compiling took."""
    rows = []
    for name, row in content["rows"].items():
        if "skipped" in row:
            rows.append([WORKLOADS.get(name, name), row["skipped"], ""])
            continue
        first = row["first_call_seconds"]
        rows.append([WORKLOADS.get(name, name), spread(row["compiled"]["cpu"]["ratio"]), f"{first:.0f}"])
    return table(["workload", "processor time", "first call, s"], rows)


def population(content: dict[str, Any]) -> str:
    """Rounds of 1,000 clients out of more and more."""
    rows = [
        [f"{int(n):,}", spread(row["cpu"]["seconds"]), spread(row["wall"]["seconds"]), f"{row['grown_mib']:.0f}"]
        for n, row in content["rows"].items()
    ]
    return table(["registered", "processor s a round", "wall s a round", "MiB over the start"], rows)


def homes(content: dict[str, Any]) -> str:
    """Peak memory of keeping scores."""
    rows = [
        [home, f"{row['clients']}", f"{row['peak_gib']:.2f}", f"{row['disk_gb']:.1f}"]
        for home, row in content["rows"].items()
    ]
    return table(["home", "clients", "peak resident GiB", "disk GB"], rows)


def halves(content: dict[str, Any]) -> str:
    """What rounding to two bytes changes in selections."""
    rows = [
        [f"{float(capacity):g}", f"{100 * mean:.4f} %", f"{100 * row['largest'][capacity]:.4f} %"]
        for row in content["rows"].values()
        for capacity, mean in row["mean"].items()
    ]
    return table(["capacity", "mean over clients", "largest"], rows)


SECTIONS: list[tuple[str, str, str, Any]] = [
    (
        "engine",
        "A round against a plain loop",
        "The [first page](../performance.md#what-does-a-round-cost-beside-a-plain-loop) says what the plain loop is. "
        "Clients have the capacities 1, 1/2, 1/4, 1/8 and 1/16 in turn. The plain loop trains the whole model for "
        "every client. Both sides keep freed memory for later use, as the command line does.",
        lambda c: ratios(c, SIDES, "bare"),
    ),
    (
        "engine_xeon",
        "The first table on another processor",
        "An Intel Xeon instead of an AMD EPYC. Its arithmetic is faster in comparison with its memory. So passes "
        "over the parameters take a larger part of the time. This shows in large models that do little arithmetic "
        "with each parameter.",
        lambda c: ratios(c, SIDES, "bare"),
    ),
    (
        "engine_default_allocator",
        "The first table without `keep_freed_memory()`",
        "`keep_freed_memory()` keeps freed memory for later use. This table is for a program that does not call it, "
        "and so has the C library's default allocator. To see what the call gains, compare the seconds of the plain "
        "loop with those of the first table.",
        lambda c: ratios(c, SIDES, "bare"),
    ),
    (
        "floors",
        "The floor of FedFIbOS",
        "A step of FedFIbOS passes over all parameters more often than a step of SGD. It also adds up squared "
        "gradients, and multiplies the update by the mask. So with torch's operations the ratio cannot fall below a "
        "floor. The time above the floor is spent once for each client, not in each step: on selecting, on gathering "
        "the client's values, on the update and on the sums.",
        floors,
    ),
    (
        "passes",
        "The passes of a client",
        "In the 11.0 M MLP the time goes into passes over the parameters. The tables have those of a client, on "
        "average over the five clients, in a round of one step and of twenty. Bytes are for each parameter, read and "
        "written. Milliseconds are of processor time. *Fewest bytes* is what a client with a mask must read and "
        "write if each stage is one loop; `benchmarks/fused.c` has these loops. Selection's loop leaves out the "
        "bracket and the ranking of the few scores inside it. The forward and backward pass are not changed, nor is "
        "the server's step, of which a client's share is a fifth. The last line is the floor of the ratio. The "
        "library has no compiled extension: for this difference it would need a second path to the same bytes.",
        passes,
    ),
    (
        "against",
        "Fewer passes, before and after",
        "The library was measured before and after some passes were removed, both in turn. Holders are counted in "
        "bytes. Selection looks for NaN only among the few scores near its threshold. The first step writes its "
        "squares instead of adding them to zeros. The start of a client that holds everything is not copied. Runs have "
        "the same bytes as before. The ratios are to the plain loop.",
        against,
    ),
    (
        "upload_checks",
        "Checks of an upload",
        "Beside its steps, a client costs some passes over all parameters. Where torch's obvious operation is slow, "
        "the library uses a faster one with the same result (`fedfibos/backend/reductions.py`). The table has "
        "processor time.",
        upload_checks,
    ),
    (
        "workers",
        "Two workers against one",
        "FedFIbOS with 10 clients. Below 1 is faster. The second row shows the most that the machine can gain: two "
        "plain loops in two processes at the same time, against the same loops one after the other.",
        workers,
    ),
    (
        "precision",
        "bfloat16 against float32",
        '`local.precision = "bfloat16"` uses autocast. Weights, sums and the state of the optimiser stay float32. '
        "Below 1 is faster. [CIFAR-10](cifar10.md#what-bfloat16-costs) has the accuracy.",
        lambda c: ratios(c, {"bfloat16": "bfloat16"}, "float32"),
    ),
    (
        "layouts",
        "Channels last",
        "`model.channels_last = true` stores images and weights with the channels last. The table has FedAvg in both "
        "precisions. Ratios are to float32 with channels first. Below 1 is faster. Most models without GroupNorm gain. "
        "GroupNorm's CPU kernel is slow in this layout.",
        lambda c: ratios(c, {side: side for side in next(iter(c["rows"].values())) if side != "float32"}, "float32"),
    ),
    (
        "compile",
        "`torch.compile`",
        "The gradients of ten steps, compiled, against the same in eager mode. Below 1 is faster. The engine does not "
        "use `torch.compile`.",
        compile_gain,
    ),
    (
        "selection",
        "Selection of 11.2 million scores",
        "A submodel is selected by a top-k over all scores. It takes exactly k of them. Of equal scores the first "
        "positions win.",
        selection,
    ),
    (
        "population",
        "Fleets of up to a million clients",
        "In each round 1,000 of the registered clients train a tiny MLP with FedFIbOS for one step. The simulator "
        "keeps one integer for each registered client.",
        population,
    ),
    (
        "homes",
        "Per-client scores of 124.6 million parameters",
        "A method may have a score vector for each client. `run.score_home` says where these are kept: in `memory`, on "
        "`disk`, or with the `client`. With `disk`, memory does not grow with the number of clients; the files do. "
        "With `client`, each client sends the bitmap of its mask, and the server keeps no score. All three give the "
        "same results to the bit. The table has the peak resident memory of the process, as the operating system "
        "counts it (`ru_maxrss`). In the measured round a mask is selected for every client, and every client's score "
        "is updated.",
        homes,
    ),
    (
        "halves",
        "Two bytes for each score",
        "`run.score_bytes = 2` stores a score in two bytes instead of four. How much does this change the selection? "
        "The table has the share of coordinates that are selected by one and not by the other. The study ran 300 "
        "rounds of Algorithm 1 on CIFAR-10, with 100 clients of two classes each. A client's scores were rounded again "
        "whenever it took part. The two bytes have ten bits of fraction, exponents from 2⁻⁶⁰ to 2³ and no sign, so "
        "squared gradients do not underflow.",
        halves,
    ),
    (
        "masked",
        "A masked round by FIARSE's own code and by ours",
        "Five clients of capacities 1 to 1/16 train ResNet-18 with batch normalisation for 3 steps of 20 images. The "
        "first row is the loop of the authors' released server (commit 281519c), without its evaluation. The next two "
        "rows are our FIARSE. One has the mask and gradient of the released code, the other those of the paper.",
        lambda c: ratios(c, MASKED, "bare", "ResNet-18, 11.2 M, 5 clients × 3 steps of 20"),
    ),
    (
        "pfl",
        "pfl-research 0.6 against the plain loop",
        "Both train FedAvg.",
        lambda c: ratios(c, {"pfl": "pfl"}, "bare"),
    ),
    (
        "flower",
        "Flower's Ray simulation against the plain loop",
        "Both train FedAvg. Ray has one actor. The first two rounds start it, and are not counted.",
        lambda c: ratios(c, {"flower": "Flower with Ray"}, "bare"),
    ),
]


def page() -> str:
    """The whole page."""
    parts = [
        "# Performance: further tables",
        "[Performance](../performance.md) answers the usual questions. This page has further tables. "
        "`python benchmarks/performance.py` generates both from `results/bench`. The line below each table has the "
        "command that measures it again.",
        "A cell shows the median over turns, with the least and the most in brackets. *s* is seconds. "
        "[How was it measured?](../performance.md#how-was-it-measured) says what a turn is.",
    ]
    for piece, title, text, draw in SECTIONS:
        if (content := load(piece)) is not None:
            parts += [f"## {title}", text, draw(content), made(content)]
    return "\n\n".join(parts) + "\n"
