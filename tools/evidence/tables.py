"""The tables of the findings, and how numbers are written in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evidence.records import ACCURACIES, CAPACITIES, Cell, Study, entry, last_evaluation
from evidence.words import interval, percent
from fedfibos.common.statistics import Spread, spread

TITLES = {
    "full": "FedAvg, every client full-size (ceiling)",
    "fedavg": "FedAvg, every client full-size (ceiling)",
    "heterofl": "HeteroFL",
    "fedrolex": "FedRolex",
    "fedbrb": "FedBRB (interpretation)",
    "fiarse": "FIARSE",
    "fedfibos": "FedFIbOS (shared score, magnitude prior)",
    "fedfibos-none": "FedFIbOS (default: shared score, no prior)",
    "algorithm1": "FedFIbOS `algorithm1` (per-client scores, dense, 1/A)",
    "ssp": "`ssp` f̄²x̃², shared, no prior",
    "ssp-client": "`ssp`, per client, per layer, no prior",
    "ssp-blend": "`ssp`, blend of scores, a fifth the client's, no prior",
    "core-50": "blend of the budget, half shared",
    "core-80": "blend of the budget, four fifths shared",
    "magnitude": "magnitude in FedFIbOS's round",
    "magnitude-05": "the same at lr .05",
    "random": "random masks, redrawn each round",
    "fedfibos-025": "FedFIbOS (magnitude prior) at lr .025",
    "fedfibos-dense": "FedFIbOS (magnitude prior), dense estimates",
    "fedfibos-none-dense": "FedFIbOS (default), dense estimates",
    "algorithm1-holders": "`algorithm1`, average over holders",
    "fedfibos-layer": "FedFIbOS, budget per layer",
    "fedfibos-participants": "FedFIbOS, average over participants (1/A)",
    "fiarse-layer": "FIARSE, budget per layer",
    "algorithm1-layer": "`algorithm1`, budget per layer",
    "fiarse-head": "FIARSE, head held, its authors' three groups",
    "fedfibos-head": "FedFIbOS, head held",
    "heterofl-nested": "HeteroFL, nested",
    "heterofl-nested-slower": "HeteroFL, nested, lr .025",
    "fiarse-nested": "FIARSE, nested",
    "fedfibos-nested": "Fisher masks, nested",
    "saliency": "saliency",
    "saliency-nested": "saliency, nested",
    "saliency-nested-rare": "saliency, nested, rare",
    "channels": "channels",
    "channels-nested": "channels, nested",
    "channels-nested-tuned": "channels, nested, lr .025",
    "fiarse-momentum": "FIARSE, momentum",
    "fiarse-nested-momentum": "FIARSE, nested, momentum",
    "fiarse-nested-momentum-7": "FIARSE, nested, momentum .7",
    "saliency-nested-rare-momentum": "saliency, nested, rare, momentum",
    "channels-nested-momentum": "channels, nested, momentum",
    "channels-nested-momentum-7": "channels, nested, momentum .7",
    "channels-nested-momentum-everyone": "channels, nested, momentum; every device in every round",
    "saliency-floor-nested-rare-momentum": "saliency with a floor, nested, rare, momentum",
    "saliency-floor-rare-momentum": "saliency with a floor, rare, momentum",
    "saliency-floor-nested-often-momentum": "saliency with a floor, nested, momentum",
    "power-floor-nested-rare-momentum": "f̄^½x² with a floor, nested, rare, momentum",
    "saliency-floor-nested": "saliency with a floor, nested, rare",
    "saliency-floor-nested-often": "saliency with a floor, nested",
    "which-nested-momentum": "channels, uniform widths, nested, momentum",
    "saliency-rare": "saliency, rare",
    "saliency-nested-often": "saliency, nested",
    "channels-sandwich": "channels, `sandwich`, lr .025",
    "channels-distilled": "channels, `sandwich`, distillation, lr .025",
}
"""Method of a study -> its name in the tables."""

NAMES = """*Saliency* and *channels* are FedFIbOS. *Nested* means nested steps. *Rare* means that clients send estimates
in every tenth round only. *Momentum* is momentum at the server, with a lower rate."""
"""What the short names mean, for pages whose tables have them."""


def table(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A Markdown table; the first row is its head, and the columns after the first ``words`` are numbers."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * words + " ---: |" * (len(rows[0]) - words), *lines[1:]])


def accuracies(study: Study, cell: Cell) -> str:
    """One cell's methods, the ceiling last."""
    methods = [name for name in TITLES if name in study.cells[cell]]
    rows = [["method", "seeds", *ACCURACIES, "GB up"]]
    for name in methods:
        seeds = len(study.cells[cell][name])
        sent = study.spread(cell, name, "bytes", "up")
        rows.append(
            [
                TITLES[name],
                str(seeds),
                *(percent(study.spread(cell, name, *k)) for k in ACCURACIES.values()),
                "–" if sent is None else f"{sent.mean / 1e9:.2f}",
            ]
        )
    if records := study.ceilings.get(cell[0]):
        full = spread(entry(r.final, ACCURACIES["global, full"]) for r in records)
        own = [spread(entry(r.final, ACCURACIES[key]) for r in records) for key in ("local", "local, adjusted")]
        rows.append([TITLES["full"], str(len(records)), percent(full), "–", "–", *map(percent, own), "–"])
    return table(rows)


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
    rows.append(["two sets at random", *(f"{float(c) / (2 - float(c)):.2f}" for c in CAPACITIES[1:]), "–", "–"])
    if cell[0] == "dirichlet":
        rows.append(["the paper (ResNet-18, CIFAR-10, this split)", "0.42", "–", "–", "0.22", "17.5", "–"])
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
        found = [spread(entry(final, keys) for final in finals.values()) for keys in ACCURACIES.values()]
        rows.append([name, str(len(finals)), *map(percent, found)])
    half, single = by_seed["bfloat16"], by_seed["float32"]
    both = sorted(half.keys() & single.keys())
    gaps = []
    for keys in ACCURACIES.values():
        pairs = [(entry(half[seed], keys), entry(single[seed], keys)) for seed in both]
        gaps.append(spread(a - b for a, b in pairs if a is not None and b is not None))
    rows.append(["bfloat16 minus float32", str(len(both)), *map(interval, gaps)])
    return [
        "## What bfloat16 costs",
        "FedFIbOS alone, two classes a client, non-uniform capacities, 240 rounds, everything else equal:",
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
    known = sorted({rate for by_rate in study.tuning.values() for rate in by_rate})
    rows = [["method", *(f"lr {f'{rate:f}'.rstrip('0')[1:]}" for rate in known)]]
    for name in (n for n in TITLES if n in study.tuning):
        found = {
            rate: (record and entry(record.final, ACCURACIES["global, submodels"])) or math.nan
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
    rows = [["γ", "selection", "ε (surrogate)", "e, held", "e, dense", "δ², held", "ε orders e: held", "dense"]]
    for capacity, found in diagnosis["capacities"].items():
        for selection in ("method", "fisher", "ssp", "magnitude", "random"):
            of = found["selections"][selection]
            row = [
                capacity,
                "the method's own" if selection == "method" else selection,
                f"{of['surrogate']['mean']:.1e}",
            ]
            row += [f"{_spread(of['error'][way]).text(1, 2)}" for way in ("held", "dense")]
            row += [_spread(of["coefficient"]["held"]).text(1, 3)]
            row += [_spread(found["order_agreement"][way]).text(1, 2) for way in ("held", "dense")]
            rows.append(row if selection == "method" else [*row[:-2], "", ""])
    return table(rows)


def _spread(values: Mapping[str, Any]) -> Spread:
    return Spread(values["mean"], values["sd"], values["n"])
