"""The tables of a report: results, layers, communication, runs and settings."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedfibos.common.dotted_keys import flat
from fedfibos.common.formatting import duration
from fedfibos.common.statistics import Spread, spread
from fedfibos.common.validation import toml_text
from fedfibos.config.experiment import to_toml
from fedfibos.report.groups import Group, Problem, Sorted, file_names
from fedfibos.report.records import Record
from fedfibos.report.table import Cell, Table, row
from fedfibos.runs.measures import ACCURACY, Measure, measures_of

NONE = "–"
STATISTICS = {"last": "last evaluation", "last20": "mean of the last 20 evaluations", "best": "best evaluation"}
"""Of a run's evaluations: key of an accuracy's summary in ``final.json``, and what it is."""

ACCURACIES: Mapping[str, tuple[str, ...]] = {
    "global, full": ("global", "full"),
    "global, submodels": ("global", "submodels", "mean"),
    "local": ("local", "mean"),
}
"""Column -> where in ``final.json``, of the metric that comes first; the definitions are those of ``evaluate``."""

ADJUSTED = ("local", "adjusted", "mean")
"""The same of local accuracy adjusted by class frequencies, which older records do not have."""

TARGETS = (0.5, 0.75, 0.9)
"""Shares of the best mean accuracy of a problem, for the bytes that it takes to get there."""


def percent(value: Spread | None) -> str:
    """An accuracy in %."""
    return NONE if value is None else value.text(100)


def beside(problem: Problem) -> list[tuple[Measure, str, tuple[str, ...]]]:
    """The metrics after the first: each, its line's name, and where in ``final.json``; older records have none."""
    last = problem.groups[0].records[0].points[-1].evaluation
    places = {"full": ("full",), "submodels": ("submodels", "mean")}
    return [
        (measure, f"{BESIDE.get(measure.name, measure.words)}, {name}", (measure.name, *place))
        for measure in measures_of(last)[1:]
        for name, place in places.items()
    ]


BESIDE = {"balanced_accuracy": "balanced"}
"""Metric -> what it is called beside accuracies, where that is not its own name."""


def written(value: Spread | None, measure: Measure) -> str:
    """A value of a metric: in %, or with four figures."""
    return NONE if value is None else value.text(measure.scale, measure.digits(value.mean))


def best_of(columns: Sequence[Sequence[Spread | None]], measure: Measure = ACCURACY) -> list[list[Cell]]:
    """Cells of columns of a metric, the best means of each marked as printed.

    None where all are equal, and none where a value is of one seed: a difference of one seed ranks nobody.
    """
    marked = []
    for column in columns:
        if any(value is not None and value.n < 2 for value in column):
            marked.append([Cell(written(value, measure)) for value in column])
            continue
        printed = [
            None if value is None else f"{measure.scale * value.mean:.{measure.digits(value.mean)}f}"
            for value in column
        ]
        known = [text for text in printed if text is not None]
        top = max(known, key=lambda text: measure.sign * float(text)) if len(set(known)) > 1 else None
        bold = [text is not None and text == top for text in printed]
        marked.append([Cell(written(v, measure), bold=b) for v, b in zip(column, bold, strict=True)])
    return marked


def headline(problem: Problem, summary: str = "last") -> dict[str, tuple[str, ...]]:
    """The accuracies that methods are compared by: column -> where in ``final.json``."""
    of_smallest = {}
    if capacities := problem.experiment.federation.capacities:
        smallest = min(capacities)
        of_smallest = {f"global, γ = {smallest:g}": ("global", "submodels", str(smallest))}
    paths = {k: v for k, v in ACCURACIES.items() if k != "local"} | of_smallest | {"local": ACCURACIES["local"]}
    if any(group.over_seeds(*ADJUSTED, summary) for group in problem.groups):
        paths["local, adjusted"] = ADJUSTED
    return paths


def results(problem: Problem, slug: str, summary: str = "last") -> Table:
    """Accuracies; ``summary``: a key of :data:`STATISTICS`."""
    groups, paths = problem.groups, headline(problem, summary)
    measure = problem.measure
    columns = best_of([[group.over_seeds(*path, summary) for group in groups] for path in paths.values()], measure)
    rows = [row(g.label, str(len(g.records)), *cells) for g, *cells in zip(groups, *columns, strict=True)]
    for group in problem.references:
        accuracies = [written(group.over_seeds(*path, summary), measure) for path in paths.values()]
        rows.append(row(f"reference: {group.label}", str(len(group.records)), *accuracies))
    notes = [f"{problem.scale}. Mean ± sd over seeds."]
    if any(cell.bold for column in columns for cell in column):
        notes.append("Bold: the best mean of its column, whatever its spread.")
    elif any(len(group.records) == 1 for group in groups):
        notes.append("One seed ranks nobody: no mean is marked as the best.")
    if ADJUSTED in paths.values():
        notes.append("Adjusted: with the class frequencies of its own data, which a client knows whatever the method.")
    if len({tuple(record.experiment.seed for record in group.records) for group in groups}) > 1:
        notes.append("Rows have different seeds: means over other seeds are of other partitions and cohorts.")
    if summary == "last20":
        notes.append(_tail(problem))
    if majority := majority_share(problem):
        notes.append(majority)
    if problem.references:
        notes.append("References have other fleets: a ceiling or a floor, not rivals.")
    title = f"{headed(measure)}, {STATISTICS[summary]}: {problem.label}"
    return Table(f"results-{slug}", title, ("method", "seeds", *paths), tuple(rows), " ".join(notes))


def headed(measure: Measure, of: str = "") -> str:
    """A metric at the beginning of a title: ``Accuracy in %``, ``Accuracy of each capacity's submodels in %``."""
    what = f"{measure.words} of {of}" if of else measure.words
    return what[0].upper() + what[1:] + measure.heading.removeprefix(measure.words)


def majority_share(problem: Problem) -> str:
    """What always answering the largest class reaches, in words; empty of older records, which do not say."""
    found = [(record.final or {}).get("majority_share") for group in problem.groups for record in group.records]
    share = spread(found)
    return "" if share is None else f"Always answering the largest class reaches {100 * share.mean:.1f} %."


def _tail(problem: Problem) -> str:
    """Which evaluations a mean of the last 20 is over."""
    points = min((record.points for group in problem.groups for record in group.records), key=len)
    tail = points[-20:]
    return f"Mean over the {len(tail)} evaluations from round {tail[0].round} to {tail[-1].round}."


def statistics(problem: Problem, slug: str) -> Table:
    """Last, mean of the last 20, and best evaluation."""
    rows = []
    for group in problem.groups:
        first = [(problem.measure, name, path) for name, path in ACCURACIES.items()]
        for number, (measure, name, path) in enumerate([*first, *beside(problem)]):
            if number >= len(first) and group.over_seeds(*path, "last") is None:
                continue
            values = (written(group.over_seeds(*path, key), measure) for key in STATISTICS)
            rows.append(row(group.label, name, *values))
    evaluations = min(len(record.points) for group in problem.groups for record in group.records)
    note = (
        f"Only {evaluations} evaluations a run: the mean of the last 20 is over all of them."
        if evaluations < 20
        else ""
    )
    if majority := majority_share(problem):
        note = f"{note} {majority}".strip()
    unit = ", in %" if problem.measure.share else ""
    title = f"Last, mean of the last 20, and best evaluation{unit}: {problem.label}"
    headings = ("method", problem.measure.words, *STATISTICS.values())
    return Table(f"statistics-{slug}", title, headings, tuple(rows), note, words=2)


def by_capacity(problem: Problem, slug: str, summary: str = "last") -> Table:
    """Accuracies of each capacity."""
    capacities = [str(c) for c in sorted(problem.experiment.federation.capacities, reverse=True)]
    rows, measure = [], problem.measure
    for group in problem.groups:
        for name, path in (
            ("global", ("global", "submodels")),
            ("local", ("local", "by_capacity")),
        ):
            found = [group.over_seeds(*path, c, summary) for c in capacities]
            rows.append(row(group.label, name, *(written(value, measure) for value in found)))
        held = [record.points[-1].evaluation.get("shares", {}) for record in group.records]
        if all(held):
            shares = [spread(of.get(c) for of in held) for c in capacities]
            rows.append(row(group.label, "share held", *(percent(share) for share in shares)))
    what = headed(measure, "each capacity's submodels")
    title = f"{what}, {STATISTICS[summary]}: {problem.label}"
    headings = ("method", measure.words, *(f"γ = {float(c):g}" for c in capacities))
    note = f"{problem.scale}. Share held: of the maskable parameters; whole channels realise at most the capacity."
    return Table(f"capacities-{slug}", title, headings, tuple(rows), note, words=2)


def kept_shares(problem: Problem, slug: str) -> list[Table]:
    """Share of every tensor that a client of each capacity holds, at the last evaluation; a table a method."""
    tables = []
    for name, group in zip(file_names(problem), problem.groups, strict=True):
        last = [record.points[-1].evaluation["kept_shares"] for record in group.records]
        capacities = [c for c in last[0] if float(c) < 1.0]
        if not capacities:
            continue
        rows = []
        for layer in last[0][capacities[0]]:
            shares = [spread(kept.get(c, {}).get(layer) for kept in last) for c in capacities]
            rows.append(row(layer, *(_share(share) for share in shares)))
        tables.append(
            Table(
                f"kept-{slug}-{name}",
                f"Kept share of every layer: {group.label}; {problem.label}",
                ("layer", *(f"γ = {float(c):g}" for c in capacities)),
                tuple(rows),
                f"Last evaluation, mean over {len(last)} seeds, the first client of each capacity. "
                "“dead”: it holds nothing of the layer in any seed.",
            )
        )
    return tables


def _share(share: Spread | None) -> Cell:
    if share is None:
        return Cell(NONE)
    return Cell("dead" if share.mean == 0.0 else f"{share.mean:.3f}", shade=share.mean)


def communication(problem: Problem, slug: str) -> Table:
    """Bytes in all and until an accuracy is reached."""
    measure = problem.measure
    bests = [s.mean for g in problem.groups if (s := _best(g)) is not None]
    top = measure.best(bests) if bests else 0.0
    targets = [share * top for share in TARGETS] if measure.sign > 0 and top > 0 else []
    rounds = sorted({point.round for group in problem.groups for record in group.records for point in record.points})
    if len(rounds) == 1:  # nothing is known but the end
        targets = []
    rows = []
    for group in problem.groups:
        total = spread(record.points[-1].bytes / 1e6 for record in group.records)
        reached = [_reached(group, target) for target in targets]
        rows.append(row(group.label, "–" if total is None else total.text(digits=1), *reached))
    return Table(
        f"communication-{slug}",
        f"Communication in MB, both ways, whole cohort: {problem.label}",
        ("method", "whole run", *(f"to {measure.text(target)} {measure.words}" for target in targets)),
        tuple(rows),
        (
            f"Until the global {measure.words} of submodels first reaches 50, 75 and 90 % of the best mean that any "
            f"method here has ({measure.text(top)}), as far as evaluations tell: {len(rounds)} a run, the first after "
            f"round {rounds[0]}. "
            if targets
            else ""
        )
        + f"Counted before any compression; masks include their bitmap. {problem.scale}.",
    )


def _best(group: Group) -> Spread | None:
    return group.over_seeds("global", "submodels", "mean", "best")


def _reached(group: Group, target: float) -> str:
    """Megabytes until the accuracy, over the seeds that reach it."""
    sent = [bytes_to_accuracy(record, target) for record in group.records]
    value = spread(None if s is None else s / 1e6 for s in sent)
    if value is None:
        return "not reached"
    if missed := sent.count(None):
        told = value.text(digits=1).removesuffix(" (n = 1)")
        return f"{told} ({len(sent) - missed} of {len(sent)} seeds)"
    return value.text(digits=1)


def bytes_to_accuracy(record: Record, target: float) -> int | None:
    """Bytes sent until an evaluation whose global accuracy of submodels is at least ``target``; None for never."""
    for point in record.points:
        accuracy = point.evaluation["global"]["submodels"]["mean"]
        if accuracy is not None and accuracy >= target:
            return point.bytes
    return None


def runs(content: Sorted) -> Table:
    """Every run: seed, commit, hardware, time, digest of the parameters."""
    records = [record for group in content.groups() for record in group.records]
    rows = []
    for record in [*records, *content.unmeasured, *content.unfinished]:
        environments = [record.environment, *record.environment.get("resumed", [])]
        final = record.final
        digest = "unfinished" if final is None else final["params_sha256"][:12]
        rows.append(
            row(
                record.name,
                str(record.experiment.seed),
                f"{len(record.rounds)} of {record.experiment.federation.rounds}",
                _each(environments, commit),
                _each(environments, hardware),
                _each(environments, lambda e: f"{e['torch']}, Python {e['python']}"),
                duration(sum(line["seconds"] for line in record.rounds)),
                str(sum(len(line["rejected"]) for line in record.rounds)),
                digest,
            )
        )
    headings = (
        "run",
        "seed",
        "rounds",
        "commit",
        "hardware",
        "torch",
        "time",
        "rejected uploads",
        "parameters (SHA-256)",
    )
    note = "Seconds of rounds and evaluations, on a machine that other work may have shared."
    return Table("runs", "Runs", headings, tuple(rows), note, words=len(headings))


def _each(environments: Sequence[Mapping[str, Any]], describe: Callable[[Mapping[str, Any]], str]) -> str:
    return ", then ".join(dict.fromkeys(map(describe, environments)))


def commit(environment: Mapping[str, Any]) -> str:
    """The commit, shortened, and whether there were uncommitted changes."""
    text = environment.get("commit")
    if text is None:
        return "none recorded"
    digest, _, dirty = str(text).partition("-")
    return digest[:10] + (" with uncommitted changes" if dirty else "")


def hardware(environment: Mapping[str, Any]) -> str:
    """Processor and where clients trained."""
    device = environment["device"]
    return f"{environment['cpu']}, {environment['cores']} cores" + ("" if device == "cpu" else f", {device}")


def settings(problem: Problem, slug: str) -> Table:
    """The resolved settings: equal ones once, others method by method."""
    configs = [flat(tomllib.loads(to_toml(group.experiment))) for group in problem.groups]
    keys = [key for key in dict.fromkeys(key for config in configs for key in config) if key != "seed"]
    rows = []
    for key in keys:
        values = [toml_text(config[key]) if key in config else NONE for config in configs]
        same = len(set(values)) == 1
        rows.append(row(key, values[0] if same else "", *([""] * len(values) if same else values)))
    title = f"Resolved settings: {problem.label}"
    headings = ("setting", "all", *(group.label for group in problem.groups))
    return Table(f"settings-{slug}", title, headings, tuple(rows), words=len(headings))
