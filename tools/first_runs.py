"""Write the numbers of docs/how-to/first_runs.md: ``python tools/first_runs.py`` (``--check``: only compare).

Every block between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is generated here from ``results/``.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path

from fedfibos.cli.results import SUMMARIES
from fedfibos.cli.training_commands import demo as demo_command
from fedfibos.runs.stored import stored_bytes

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "how-to" / "first_runs.md"
DEMO_TITLES = {
    "fedavg-full": "FedAvg, all full-size",
    "fedavg-smallest": "FedAvg, all smallest",
    "heterofl": "HeteroFL",
    "fedrolex": "FedRolex",
    "fedbrb": "FedBRB (interpretation)",
    "fiarse": "FIARSE",
    "fedfibos": "FedFIbOS",
    "fedfibos-algorithm1": "FedFIbOS, algorithm1",
    "fedfibos-nested": "FedFIbOS, saliency, nested",
    "fedfibos-channels": "FedFIbOS on channels, nested",
}


def percent(fraction: float | None) -> str:
    """0.8125 -> ``81.2 %``."""
    return "–" if fraction is None else f"{100 * fraction:.1f} %"


def table(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def machine(run: Path) -> str:
    """Hardware and versions of a run."""
    environment = json.loads(stored_bytes(run / "environment.json"))
    return f"{environment['cpu']}, {environment['cores']} cores, torch {environment['torch']}"


def demo(results: Path) -> str:
    """The demo's table."""
    summary = inspect.signature(demo_command).parameters["summary"].default.value  # as the command prints it
    rows = [["method", "global, full", "submodels", "smallest", "local", "MB sent"]]
    seconds = 0.0
    for folder, title in DEMO_TITLES.items():
        final = json.loads(stored_bytes(results / "first-runs" / "demo" / folder / "final.json"))
        accuracy, sent = final["global_accuracy"], final["bytes"]["down"] + final["bytes"]["up"]
        submodels = accuracy["submodels"]
        seconds += final["seconds"]
        rows.append(
            [
                title,
                percent(accuracy["full"][summary]),
                percent(submodels["mean"][summary]),
                percent(submodels["0.0625"][summary]) if "0.0625" in submodels else "–",
                percent(final["local_accuracy"]["mean"][summary]),
                f"{sent / 1e6:.1f}",
            ]
        )
    where = machine(results / "first-runs" / "demo" / "fedfibos")
    return (
        "20 clients of five capacities train on the digits for 80 rounds. A Dirichlet distribution (0.3) deals them.\n"
        f"The table is of one seed, at the {SUMMARIES[summary]}. Training and evaluation took {seconds:.0f} s on\n"
        f"{where}. The records are in `results/first-runs.tar.zst`.\n\n" + table(rows) + "\n\n"
        "One seed of a toy problem shows that everything runs, not which method is better. The first three\n"
        "columns are accuracies on the whole test set: of the full model, of the clients' *submodels* (mean over\n"
        "capacities), and of those of the *smallest* capacity, 1/16. *Local*: each client's submodel on test\n"
        "examples in its own class proportions. *MB sent*: both ways, all clients and rounds together.\n"
        "*algorithm1*: the paper's Algorithm 1, a score for each client. *nested*: half of a client's steps train a\n"
        "smaller submodel inside its own. FedBRB has no public code: ours is an interpretation of its abstract."
    )


def cifar10(results: Path) -> str:
    """The CIFAR-10 run."""
    run = results / "first-runs" / "cifar10" / "resnet8-seed0"
    final = json.loads(stored_bytes(run / "final.json"))
    accuracy = final["global_accuracy"]
    return (
        "The second line trains FedFIbOS with the magnitude prior on a ResNet-8 with GroupNorm. In each of\n"
        f"{final['rounds']} rounds 10 of 100 clients train. The split is Dirichlet 0.3,\n"
        f"capacities are non-uniform, the seed is {final['seed']}.\n"
        "[Notation](../explanation/notation.md#how-the-paper-is-read) explains the prior. The full model\n"
        f"reached {percent(accuracy['full']['last'])} (best {percent(accuracy['full']['best'])}), the submodels "
        f"{percent(accuracy['submodels']['mean']['last'])} on average, and the smallest\n"
        f"{percent(accuracy['submodels']['0.0625']['last'])}. Chance is 10 %. It ran on {machine(run)}.\n"
        "The record is in `results/first-runs.tar.zst`."
    )


def generate(text: str, results: Path) -> str:
    """The page with its blocks written anew."""
    for name, block in (("demo", demo), ("cifar10", cifar10)):
        pattern = rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)"
        content = block(results)
        whole = re.compile(pattern, re.DOTALL)
        count = len(whole.findall(text))
        if count != 1:
            raise SystemExit(f"the page must have one block {name!r}, got {count}")
        text = whole.sub(lambda found: found[1] + content + "\n" + found[2], text)  # noqa: B023 (used at once)
    return text


def main() -> int:
    """Write or check."""
    text = PAGE.read_text(encoding="utf-8")
    wanted = generate(text, ROOT / "results")
    if "--check" in sys.argv[1:]:
        if text != wanted:
            print(f"{PAGE.name} differs from what results/ gives; run: python tools/first_runs.py", file=sys.stderr)
        return int(text != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
