"""Write docs/findings.md from the committed records: ``python docs/findings.py`` (``--check``: only compare).

Every number comes from ``results/small``. The prose around the tables is in this file; what it asserts of numbers is
asserted of the records too (``claim``): the page is not written while one of its sentences is false.
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from fedfibos.record import FINAL
from fedfibos.report.records import Record, read_record
from fedfibos.spread import Spread, spread

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "findings.md"
TITLES = {
    "full": "FedAvg, every client full-size (ceiling)",
    "heterofl": "HeteroFL",
    "fedrolex": "FedRolex",
    "fedbrb": "FedBRB (interpretation)",
    "fiarse": "FIARSE",
    "fedfibos": "FedFIbOS (default: shared score)",
    "algorithm1": "FedFIbOS `algorithm1` (per-client scores, the letter)",
    "ssp": "`ssp` f̄²x̃², shared, no prior",
    "ssp-client": "`ssp`, per client, per layer, no prior",
    "ssp-blend": "`ssp`, blend of scores, a fifth the client's, no prior",
    "core-50": "blend of the budget, half shared",
    "core-80": "blend of the budget, four fifths shared",
    "magnitude": "magnitude in FedFIbOS's round",
    "magnitude-05": "the same at lr .05",
    "random": "random masks, redrawn each round",
    "fedfibos-layer": "FedFIbOS, budget per layer",
    "fedfibos-participants": "FedFIbOS, average over participants (1/A)",
}
SPLITS = {"high": "two classes a client", "low": "five classes a client", "dirichlet": "Dirichlet 0.3"}
ACCURACIES: Mapping[str, tuple[str, ...]] = {
    "global, full": ("global_accuracy", "full", "last"),
    "global, submodels": ("global_accuracy", "submodels", "mean", "last"),
    "smallest (γ = .0625)": ("global_accuracy", "submodels", "0.0625", "last"),
    "local": ("local_accuracy", "mean", "last"),
    "local, adjusted": ("local_accuracy", "adjusted", "mean", "last"),
}
CAPACITIES = ("1.0", "0.5", "0.25", "0.125", "0.0625")

MAIN = ("high", "non-uniform")
"""The cell in which everything was run."""

Cell = tuple[str, str]
"""Split and capacity mix."""


@dataclass(frozen=True)
class Study:
    """All finished runs of the study: (split, mix) -> method -> records by seed."""

    cells: Mapping[Cell, Mapping[str, Sequence[Record]]]
    ceilings: Mapping[str, Sequence[Record]]
    tuning: Mapping[str, Mapping[str, Record | None]]
    diagnoses: Mapping[str, Mapping[str, Any]]
    precisions: Mapping[str, Sequence[Record]]

    def numbers(self, cell: Cell, method: str, *keys: str) -> dict[int, float]:
        """An entry of ``final.json`` by seed, where it has it."""
        found = {r.experiment.seed: _entry(r.final, keys) for r in self.cells.get(cell, {}).get(method, ())}
        return {seed: value for seed, value in found.items() if value is not None}

    def spread(self, cell: Cell, method: str, *keys: str) -> Spread | None:
        """The same over seeds."""
        return spread(self.numbers(cell, method, *keys).values())

    def difference(self, cell: Cell, one: str, other: str, *keys: str) -> Spread | None:
        """``one`` minus ``other``, seed by seed: both have the same partition, fleet and cohorts."""
        return spread(self._gaps(cell, one, other, *keys))

    def pooled(self, one: str, other: str, *keys: str) -> Spread | None:
        """The same over all pairs of all cells that have at least two of them."""
        gaps = [self._gaps(cell, one, other, *keys) for cell in self.cells]
        return spread(gap for of_cell in gaps if len(of_cell) > 1 for gap in of_cell)

    def _gaps(self, cell: Cell, one: str, other: str, *keys: str) -> list[float]:
        a, b = self.numbers(cell, one, *keys), self.numbers(cell, other, *keys)
        return [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]


def load(results: Path) -> Study:
    """Read the records that are there."""
    cells: dict[Cell, dict[str, list[Record]]] = {}
    for study in ("cifar10", "cifar10-readings"):
        for run in _finished(results / "small" / study):
            split, mix, method = run.parent.relative_to(results / "small" / study).parts
            cells.setdefault((split, mix), {}).setdefault(method, []).append(read_record(run))
    ceilings: dict[str, list[Record]] = {}
    for run in _finished(results / "small" / "cifar10-ceiling"):
        ceilings.setdefault(run.parts[-4], []).append(read_record(run))
    tuning: dict[str, dict[str, Record | None]] = {}
    for config in sorted((results / "small" / "cifar10-tuning").rglob("config.toml")):
        method, rate = config.parts[-4:-2]
        done = (config.parent / FINAL).exists()
        tuning.setdefault(method, {})[f".{rate}"] = read_record(config.parent) if done else None
    diagnoses = {}
    for found in sorted((results / "small" / "cifar10").rglob("seed-0/diagnosis.json")):
        diagnoses[found.parts[-3]] = json.loads(found.read_text())
    precisions: dict[str, list[Record]] = {}
    for run in _finished(results / "small" / "cifar10-precision"):
        precisions.setdefault(run.parent.name, []).append(read_record(run))
    return Study(cells, ceilings, tuning, diagnoses, precisions)


def _finished(folder: Path) -> list[Path]:
    return sorted(final.parent for final in folder.rglob(FINAL))


def _entry(values: Any, keys: Iterable[str]) -> float | None:
    for key in keys:
        values = values.get(key) if values is not None else None
    return None if values is None else float(values)


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head, numbers to the right."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| --- |" + " ---: |" * (len(rows[0]) - 1), *lines[1:]])


def percent(value: Spread | None) -> str:
    """An accuracy in %, with its spread."""
    return "–" if value is None else value.text(100)


def points(value: Spread | None) -> str:
    """A difference of accuracies in percentage points, signed."""
    if value is None:
        return "–"
    text = value.text(100)
    return f"+{text}" if value.mean > 0 else text.replace("-", "−")


def accuracies(study: Study, cell: Cell) -> str:
    """One cell's methods, the ceiling last."""
    methods = [name for name in TITLES if name in study.cells[cell]]
    rows = [["method", "seeds", *ACCURACIES]]
    for name in methods:
        seeds = len(study.cells[cell][name])
        rows.append([TITLES[name], str(seeds), *(percent(study.spread(cell, name, *k)) for k in ACCURACIES.values())])
    if records := study.ceilings.get(cell[0]):
        full = spread(_entry(r.final, ACCURACIES["global, full"]) for r in records)
        own = [spread(_entry(r.final, ACCURACIES[key]) for r in records) for key in ("local", "local, adjusted")]
        rows.append([TITLES["full"], str(len(records)), percent(full), "–", "–", *map(percent, own)])
    return table(rows)


def differences(study: Study, one: str, other: str) -> str:
    """``one`` minus ``other`` in every cell that has both."""
    rows = [["split, capacities", "seeds", *ACCURACIES]]
    for cell, methods in study.cells.items():
        if one in methods and other in methods:
            found = [study.difference(cell, one, other, *keys) for keys in ACCURACIES.values()]
            n = found[0].n if found[0] is not None else 0
            rows.append([f"{SPLITS[cell[0]]}, {cell[1]}", str(n), *map(points, found)])
    if len(rows) > 2:
        found = [study.pooled(one, other, *keys) for keys in ACCURACIES.values()]
        n = found[0].n if found[0] is not None else 0
        rows.append(["**all pairs**", str(n), *(f"**{points(value)}**" for value in found)])
    return table(rows)


def last_evaluation(study: Study, cell: Cell, method: str) -> list[Mapping[str, Any]]:
    """The last evaluation of every seed."""
    return [record.points[-1].evaluation for record in study.cells[cell].get(method, ())]


def similarity(study: Study, cell: Cell) -> str:
    """Jaccard similarity with the magnitude selection, and CV_F, at the last evaluation; the paper's beside them."""
    rows = [["selection", *(f"Jaccard, γ = {c}" for c in CAPACITIES[1:]), "CV_F", "CV of \\|x̃\\|"]]
    for name in study.cells[cell]:
        last = last_evaluation(study, cell, name)
        if not last[0]["jaccard"]:
            continue
        jaccard = [spread(e["jaccard"].get(c) for e in last) for c in CAPACITIES[1:]]
        cvs = [spread(e[key] for e in last) for key in ("cv_f", "cv_magnitude")]
        if study.cells[cell][name][0].experiment.method.settings.get("criterion") in ("magnitude", "random"):
            cvs[0] = None  # no score is kept; these records have the first magnitudes' there
        rows.append([TITLES[name], *("–" if v is None else v.text(1, 2) for v in [*jaccard, *cvs])])
    rows.append(["the paper (ResNet-18, CIFAR-10)", "0.42", "–", "–", "0.22", "17.5", "–"])
    return table(rows)


def by_capacity(study: Study, cell: Cell) -> str:
    """Global accuracy of the submodels of every capacity."""
    rows = [["method", *(f"γ = {c}" for c in CAPACITIES)]]
    for name in (n for n in TITLES if n in study.cells[cell]):
        found = [study.spread(cell, name, "global_accuracy", "submodels", c, "last") for c in CAPACITIES]
        rows.append([TITLES[name], *map(percent, found)])
    return table(rows)


def precision(study: Study) -> list[str]:
    """bfloat16 beside float32, and their paired difference."""
    by_seed = {name: {r.experiment.seed: r.final for r in records} for name, records in study.precisions.items()}
    if by_seed.keys() != {"float32", "bfloat16"}:
        return []
    rows = [["precision", "seeds", *ACCURACIES]]
    for name, finals in by_seed.items():
        found = [spread(_entry(final, keys) for final in finals.values()) for keys in ACCURACIES.values()]
        rows.append([name, str(len(finals)), *map(percent, found)])
    half, single = by_seed["bfloat16"], by_seed["float32"]
    both = sorted(half.keys() & single.keys())
    gaps = []
    for keys in ACCURACIES.values():
        pairs = [(_entry(half[seed], keys), _entry(single[seed], keys)) for seed in both]
        gaps.append(spread(a - b for a, b in pairs if a is not None and b is not None))
    rows.append(["bfloat16 minus float32", str(len(both)), *map(points, gaps)])
    return [
        "## What bfloat16 costs",
        "FedFIbOS, two classes a client, non-uniform, 240 rounds; everything else equal:",
        table(rows),
    ]


def kept(study: Study, cell: Cell, capacity: str) -> str:
    """Mean share of every layer's weights that the submodels of a capacity hold."""
    names = [name for name in TITLES if name in study.cells[cell]]
    layers = list(last_evaluation(study, cell, names[0])[0]["kept_shares"][capacity])
    rows = [["selection", *(f"`{layer}`" for layer in layers if layer.endswith("weight"))]]
    for name in names:
        shares = [e["kept_shares"][capacity] for e in last_evaluation(study, cell, name)]
        means = [sum(share[layer] for share in shares) / len(shares) for layer in layers if layer.endswith("weight")]
        rows.append([TITLES[name], *(f"{100 * mean:.1f} %" for mean in means)])
    return table(rows)


def rates(study: Study) -> str:
    """Validation accuracy over the submodels by method and learning rate."""
    known = sorted({rate for by_rate in study.tuning.values() for rate in by_rate}, key=float)
    rows = [["method", *(f"lr {rate}" for rate in known)]]
    for name in (n for n in TITLES if n in study.tuning):
        found = {
            rate: (record and _entry(record.final, ACCURACIES["global, submodels"])) or math.nan
            for rate, record in study.tuning[name].items()
        }
        best = max((value for value in found.values() if not math.isnan(value)), default=None)
        cells = []
        for rate in known:
            value = found.get(rate)
            text = "" if value is None else "diverged" if math.isnan(value) else f"{100 * value:.1f}"
            cells.append(f"**{text}**" if value is not None and value == best else text)
        rows.append([TITLES[name], *cells])
    return table(rows)


def errors(diagnosis: Mapping[str, Any]) -> str:
    """Surrogate and true masking errors of selections at a trained model, and how often the first orders the second."""
    rows = [["γ", "selection", "ε (surrogate)", "e, held", "e, dense", "ε orders e: held", "dense"]]
    for capacity, found in diagnosis["capacities"].items():
        for selection in ("fisher", "ssp", "magnitude", "random"):
            of = found["selections"][selection]
            row = [capacity, selection, f"{of['surrogate']['mean']:.1e}"]
            row += [f"{_spread(of['error'][way]).text(1, 2)}" for way in ("held", "dense")]
            row += [_spread(found["order_agreement"][way]).text(1, 2) for way in ("held", "dense")]
            rows.append(row if selection == "fisher" else [*row[:-2], "", ""])
    return table(rows)


def _spread(values: Mapping[str, Any]) -> Spread:
    return Spread(values["mean"], values["sd"], values["n"])


def paper_global(split: str, mix: str) -> tuple[float, float] | None:
    """The paper's global accuracies of FedFIbOS and FIARSE in a CIFAR-10 cell, in %."""
    path = ROOT / "src" / "fedfibos" / "report" / "paper.toml"
    wanted = {"high": 2, "low": 5, "dirichlet": 0.3}[split]
    for printed in tomllib.loads(path.read_text())["tables"]:
        for row in printed["rows"]:
            capacities, partition = row.get("capacities") or printed["capacities"], row["partition"]
            dealt = partition.get("classes_per_client", partition.get("alpha"))
            if row["data"] == "cifar10" and dealt == wanted and capacities == mix:
                return row["fedfibos"][1], row["fiarse"][1]
    return None


def paper_gap(split: str, mix: str) -> float:
    """Points between the two."""
    printed = paper_global(split, mix)
    assert printed is not None
    return printed[0] - printed[1]


def claim(truth: bool, sentence: str) -> str:
    """A sentence about the numbers, if it is true."""
    if not truth:
        raise SystemExit(f"docs/findings.py says what the records do not: {sentence!r}")
    return sentence


def page(study: Study) -> str:
    """The whole page."""
    return (
        "\n\n".join(
            [*opening(study), *conclusions(study), *tables(study), *mechanism(study), *precision(study), again()]
        )
        + "\n"
    )


def opening(study: Study) -> list[str]:
    """What was run, and with which learning rates."""
    runs = sum(len(records) for methods in study.cells.values() for records in methods.values())
    first = next(iter(study.cells[MAIN].values()))[0]
    made, local, federation = first.environment, first.experiment.local, first.experiment.federation
    return [
        "# Findings: does Fisher selection beat magnitude?",
        "Generated by `python docs/findings.py` from `results/small`. Accuracies are those of [notation](notation.md), "
        "at the last evaluation, in %, mean ± sample standard deviation over seeds; one seed has no spread and proves "
        "nothing.",
        "## The study",
        f"CIFAR-10, {runs} runs beside the ceilings: {federation.clients} clients, {federation.cohort} a round, "
        f"{federation.rounds} rounds of {local.steps} steps of {local.batch_size} images, SGD with momentum "
        f"{local.momentum:g}, cosine schedule, {local.precision}; the LeNet of McMahan et al. at half the width "
        "(277,610 parameters; no normalisation, so the sliced methods run without the scaler). Capacities 1, 1/2, 1/4, "
        "1/8, 1/16. Submodels of one client a capacity are evaluated where they are personal. "
        f"{made['cpu']}, one core a run, torch {made['torch']}, commit {str(made['commit'])[:12]}. It is not the "
        "paper's scale (ResNet-18, 800 rounds of longer training): orders and mechanisms can be compared, not figures.",
        "Learning rates were chosen per method on a tenth of the training data that no client got (two classes a "
        "client, non-uniform, 240 rounds, seed 0). Accuracy there over the submodels, the chosen one bold:",
        rates(study),
    ]


def tables(study: Study) -> list[str]:
    """Accuracies of every cell, and paired differences."""
    parts = []
    for cell in sorted(study.cells, key=lambda c: (list(SPLITS).index(c[0]), c[1])):
        parts += [f"## CIFAR-10, {SPLITS[cell[0]]}, {cell[1]} capacities", accuracies(study, cell)]
        if printed := paper_global(*cell):
            parts.append(f"The paper's global accuracies here: FedFIbOS {printed[0]:.1f}, FIARSE {printed[1]:.1f}.")
    parts += [
        "## Differences",
        "Percentage points, paired by seed: same partition, fleet and cohorts. “Ahead” and “behind” are said above "
        "where a paired t-test says so at the 95 % level. “All pairs” takes every seed of every cell with at least two "
        "as one sample.",
    ]
    for one, other, title in (
        ("fedfibos", "fiarse", "FedFIbOS (shared score) minus FIARSE"),
        ("fedfibos", "magnitude", "FedFIbOS minus magnitude, everything else equal"),
        ("algorithm1", "fiarse", "Algorithm 1 to the letter minus FIARSE"),
        ("algorithm1", "fedfibos", "Algorithm 1 to the letter minus FedFIbOS with a shared score"),
        ("ssp", "fedfibos", "`ssp` minus FedFIbOS"),
    ):
        parts += [f"**{title}**", differences(study, one, other)]
    return parts


def mechanism(study: Study) -> list[str]:
    """What the selections are like."""
    parts = [
        "## What becomes of the small capacities",
        "Global accuracy of the submodels, two classes a client, non-uniform:",
        by_capacity(study, MAIN),
        "Share of each layer's weights that submodels of capacity .0625 hold:",
        kept(study, MAIN, "0.0625"),
        "## Whose selection is it?",
        "Jaccard similarity with the selection of the same size by magnitude, and coefficients of variation, at the "
        "last evaluation (two classes a client, non-uniform):",
        similarity(study, MAIN),
    ]
    for name, diagnosis in study.diagnoses.items():
        parts += [
            f"## The surrogate and the error it stands for: the model of {TITLES[name]}",
            f"`fedfibos diagnose` at the last round, seed 0, {len(diagnosis['clients'])} clients. ε is what selection "
            "minimises (the Fisher-weighted weights that are left out); e the squared difference of the gradients with "
            "and without the mask, on the held coordinates or on all; mean ± sd over clients. The last columns: how "
            "often two of the selections are in the same order by ε and by e (Assumption 5; chance is .5).",
            errors(diagnosis),
        ]
    return parts


def conclusions(study: Study) -> list[str]:
    """What the tables say; every sentence about numbers is checked against them."""
    full, submodels, smallest, local = (ACCURACIES[key] for key in list(ACCURACIES)[:4])

    def over(one: str, other: str, keys: tuple[str, ...]) -> Spread:
        found = study.difference(MAIN, one, other, *keys)
        assert found is not None
        return found

    def value(method: str, keys: tuple[str, ...]) -> Spread:
        found = study.spread(MAIN, method, *keys)
        assert found is not None
        return found

    def pooled(keys: tuple[str, ...]) -> Spread:
        found = study.pooled("fedfibos", "fiarse", *keys)
        assert found is not None
        return found

    shared, letter = over("fedfibos", "fiarse", full), over("algorithm1", "fiarse", full)
    sub, tiny = over("fedfibos", "fiarse", submodels), over("fedfibos", "fiarse", smallest)
    letter_sub, letter_local = over("algorithm1", "fiarse", submodels), over("algorithm1", "fiarse", local)
    jaccard = spread(e["jaccard"]["0.5"] for e in last_evaluation(study, MAIN, "algorithm1"))
    least = spread(e["jaccard"]["0.0625"] for e in last_evaluation(study, MAIN, "algorithm1"))
    cv = spread(e["cv_f"] for e in last_evaluation(study, MAIN, "algorithm1"))
    assert jaccard is not None
    assert least is not None
    assert cv is not None
    ssp_tiny = over("ssp", "fedfibos", smallest)
    orders = {
        c: [d["capacities"][c]["order_agreement"]["dense"]["mean"] for d in study.diagnoses.values()]
        for c in ("0.5", "0.25", "0.125", "0.0625")
    }
    lower = all(
        d["capacities"][c]["selections"]["ssp"]["error"][way]["mean"]
        < d["capacities"][c]["selections"]["fisher"]["error"][way]["mean"]
        for d in study.diagnoses.values()
        for c in orders
        for way in ("held", "dense")
    )
    sentences = [
        claim(
            max(shared.mean, sub.mean, tiny.mean) < 0.08,
            "**Ten points over magnitude? No.** FedFIbOS with one shared score is "
            f"{verdict(shared)} in the full model, {verdict(sub)} over the submodels, {verdict(tiny)} with the "
            f"smallest, all against FIARSE. In the paper it is {paper_gap(*MAIN):.0f} points ahead.",
        ),
        f"**Over all splits and mixes** ({pooled(full).n} pairs of runs): {verdict(pooled(full))} in the full model, "
        f"{verdict(pooled(submodels))} over the submodels, {verdict(pooled(smallest))} with the smallest, "
        f"{verdict(pooled(local))} in local accuracy.",
        claim(
            clear(letter, 1) and clear(letter_sub, -1) and clear(letter_local, 1),
            f"**Algorithm 1 to the letter is another thing.** Per-client scores give the best full model "
            f"({points(letter)} over FIARSE) and by far the best local accuracy ({points(letter_local)}), and "
            f"submodels that know their own client's classes only ({points(letter_sub)} over all classes): the "
            f"smallest hold {_classifier(study):.0f} % of the classifier's weights, those of two classes. Local "
            "accuracy rewards that, global accuracy of submodels punishes it.",
        ),
        *local_knowledge(study),
        claim(
            abs(jaccard.mean - 0.42) < 0.1 and abs(least.mean - 0.22) < 0.1 and abs(cv.mean - 17.5) < 3,
            f"**The paper's diagnostics are those of per-client scores.** Algorithm 1's Jaccard similarity with "
            f"magnitude ({jaccard.text(1, 2)} at γ = .5, {least.text(1, 2)} at .0625) and CV_F ({cv.text(1, 1)}) are "
            "near what the paper prints (.42, .22, 17.5); its accuracies are not.",
        ),
        claim(
            min(orders["0.5"]) > 0.8 and min(orders["0.25"]) > 0.7 and max(orders["0.0625"]) < 0.35 and lower,
            "**Why not for the small ones: the surrogate stops standing for the error.** At γ = .5 and .25 the order "
            f"by ε is the order by the true masking error (agreement {min(orders['0.5']):.2f} and "
            f"{min(orders['0.25']):.2f} or more, in all models diagnosed); at γ = .0625 it is nearly the reverse "
            f"({max(orders['0.0625']):.2f} or less). The surrogate is a second-order expansion about the full model, "
            "and leaving out fifteen sixteenths of it is no small step. `ssp`, which weighs by the parameter itself as "
            "the expansion does, has a smaller true error than plain Fisher at every capacity.",
        ),
        f"**`ssp`** with the same shared score is {verdict(ssp_tiny)} with the smallest capacity and "
        f"{verdict(over('ssp', 'fedfibos', full))} in the full model, against the Fisher ranking.",
    ]
    kept_of = [e["kept_shares"]["0.0625"] for name in study.cells[MAIN] for e in last_evaluation(study, MAIN, name)]
    weights = [share for shares in kept_of for name, share in shares.items() if name.endswith("weight")]
    sentences.append(
        claim(min(weights) > 0, "No layer's weights are dead here, at any capacity, under any of the selections.")
    )
    one, two = over("fedfibos", "magnitude", full), over("fedfibos", "magnitude", submodels)
    unstable = study.numbers(MAIN, "magnitude-05", *full)
    sentences.append(
        claim(
            one.mean > shared.mean and sum(value < 0.11 for value in unstable.values()) == 1 and len(unstable) == 2,
            "**With everything but the ranking equal** (magnitude instead of Fisher in the same round, at FIARSE's "
            f"learning rate), Fisher is {verdict(one)} in the full model and {verdict(two)} over the submodels: more "
            "than against FIARSE, whose gradient factor is part of its strength. Magnitude is also the less stable: at "
            "FedFIbOS's learning rate one seed of two ended at chance, ",
        )
        + claim(study.tuning["fiarse"][".05"] is None, "and FIARSE diverged there.")
    )
    mixed = {
        "a blend of scores (a fifth the client's)": ("ssp-blend", "ssp"),
        "a budget half by the shared score, half by the client's": ("core-50", "fedfibos"),
        "a budget four fifths by the shared score": ("core-80", "fedfibos"),
    }
    gaps = {said: (over(*pair, local), over(*pair, submodels)) for said, pair in mixed.items()}
    sentences.append(
        claim(
            all(of_local.mean > 0 > of_sub.mean for of_local, of_sub in gaps.values()),
            "**No mask tried has both.** Against the shared score alone, "
            + "; ".join(
                f"{said} is {verdict(of_local)} in local accuracy and {verdict(of_sub)} over the submodels"
                for said, (of_local, of_sub) in gaps.items()
            )
            + ". What a mask gains for its client's classes it takes from the others.",
        )
    )
    by_layer, layer_tiny = over("fedfibos-layer", "fedfibos", full), over("fedfibos-layer", "fedfibos", smallest)
    sentences.append(
        claim(
            clear(by_layer, -1),
            f"**A budget per layer** instead of one for all is {verdict(by_layer)} in the full model and "
            f"{verdict(layer_tiny)} with the smallest: most parameters lie in one layer, which needs its share least.",
        )
    )
    sentences.append(
        "**The paper's 1/A** (line 20) in place of the holders' average is "
        f"{verdict(over('fedfibos-participants', 'fedfibos', full))} in the full model, "
        f"{verdict(over('fedfibos-participants', 'fedfibos', submodels))} over the submodels and "
        f"{verdict(over('fedfibos-participants', 'fedfibos', smallest))} with the smallest."
    )
    sentences.append(
        "**Which default?** The shared score stays the default: it serves all capacities with one global model, needs "
        "one average instead of one a client, and no coordinate outside a client's budget is ever computed or sent. "
        '`criterion = "ssp", prior = "none"` is worth its one line where the smallest devices count. '
        "Where a device is judged on its own classes, let it add their log frequencies to the logits before it pays "
        "for scores of its own."
    )
    return ["## What follows", *sentences]


def local_knowledge(study: Study) -> list[str]:
    """How much of a local accuracy is knowing which classes the client has."""
    local, adjusted = ACCURACIES["local"], ACCURACIES["local, adjusted"]
    letter, shared = study.pooled("algorithm1", "fedfibos", *local), study.pooled("algorithm1", "fedfibos", *adjusted)
    if letter is None or shared is None:
        return []
    rows = [["", *(TITLES[name] for name in ("fiarse", "fedfibos", "algorithm1"))]]
    for cell in sorted(study.cells, key=lambda c: (list(SPLITS).index(c[0]), c[1])):
        for said, keys in (("local", local), ("local, adjusted", adjusted)):
            found = [study.spread(cell, name, *keys) for name in ("fiarse", "fedfibos", "algorithm1")]
            rows.append([f"{SPLITS[cell[0]]}, {cell[1]}: {said}", *map(percent, found)])
    raw = [
        (study.spread(cell, "fedfibos", *adjusted), study.spread(cell, "algorithm1", *local)) for cell in study.cells
    ]
    return [
        claim(
            shared.mean < 0.15 * letter.mean
            and _all_rise(study)
            and all(a is not None and b is not None and a.mean > b.mean for a, b in raw),
            "**Its local accuracy is knowledge of the classes, which is free.** A client knows how often it has which "
            "class. Told that, by the log frequencies added to the logits, every method rises; over all splits and "
            f"mixes the lead of per-client scores over the shared one falls from {points(letter)} to {points(shared)} "
            "points, and in every cell the shared score with the frequencies is above the per-client scores without. "
            "So one setting does have both: one shared score, its submodels good for all classes, and every client's "
            "class frequencies at prediction.",
        ),
        table(rows),
    ]


def _all_rise(study: Study) -> bool:
    """Whether every method's local accuracy is higher with the class frequencies, in every cell."""
    pairs = [
        (study.spread(cell, name, *ACCURACIES["local"]), study.spread(cell, name, *ACCURACIES["local, adjusted"]))
        for cell, methods in study.cells.items()
        for name in methods
    ]
    return all(plain is not None and told is not None and told.mean > plain.mean for plain, told in pairs)


def clear(difference: Spread, sign: int) -> bool:
    """Whether a paired difference has that sign at the 95 % level."""
    if difference.sd is None:
        return False
    return sign * difference.mean > student.ppf(0.975, difference.n - 1) * difference.sd / math.sqrt(difference.n)


def verdict(difference: Spread) -> str:
    """``2.1 ± 0.3 points ahead``, or that the seeds do not tell."""
    for sign, word in ((1, "ahead"), (-1, "behind")):
        if clear(difference, sign):
            size = replace(difference, mean=abs(difference.mean))
            return f"{percent(size)} points {word}"
    return f"not told apart ({points(difference)} points)"


def _classifier(study: Study) -> float:
    """Mean share of the classifier's weights that Algorithm 1's smallest submodels hold, in %."""
    shares = [e["kept_shares"]["0.0625"]["classifier.weight"] for e in last_evaluation(study, MAIN, "algorithm1")]
    return 100 * sum(shares) / len(shares)


def again() -> str:
    """The commands."""
    return (
        "## Again\n\n"
        "    fedfibos sweep experiments/small/cifar10-tuning.toml\n"
        "    fedfibos sweep experiments/small/cifar10.toml           # and cifar10-ceiling, cifar10-readings\n"
        "    fedfibos report results/small/cifar10 results/small/cifar10-ceiling results/small/cifar10-readings\n"
        "    fedfibos diagnose RUN"
    )


def main() -> int:
    """Write or check."""
    wanted = page(load(ROOT / "results"))
    if "--check" in sys.argv[1:]:
        if PAGE.read_text() != wanted:
            print("docs/findings.md differs from what results/ gives; run: python docs/findings.py", file=sys.stderr)
        return int(PAGE.read_text() != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
