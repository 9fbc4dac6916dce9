"""The report: one page that needs nothing else, and beside it the figures and tables as files."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from fedfibos.common.atomic_files import write_whole
from fedfibos.common.extras import extra
from fedfibos.report import figures, paired, paper, tables
from fedfibos.report.figures import Figure
from fedfibos.report.groups import Problem, Sorted, file_name, free_name, sort_records
from fedfibos.report.records import find_runs, read_record
from fedfibos.report.table import Table, latex, markdown

with extra("report"):
    import jinja2


@dataclass(frozen=True)
class Section:
    """One problem on the page."""

    slug: str
    problem: Problem
    warning: str
    results: Table
    differences: Table | None
    details: tuple[Table, ...]
    communication: Table
    kept: tuple[Table, ...]
    settings: Table
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Report:
    """All that a report shows.

    Attributes:
        content: The runs, sorted.
        sections: One a problem.
        comparisons: The paper's tables beside ours, and whether any cell of it has a run.
        runs: The table of runs.
    """

    content: Sorted
    sections: tuple[Section, ...]
    comparisons: tuple[tuple[Table, bool], ...]
    runs: Table
    facts: tuple[tuple[str, str], ...] = field(default=())

    def tables(self) -> list[Table]:
        """Every table, in the order of the page."""
        found = [table for table, _ in self.comparisons]
        for section in self.sections:
            found += [section.results, *([] if section.differences is None else [section.differences])]
            found += [*section.details, section.communication, *section.kept, section.settings]
        return [*found, self.runs]

    def figures(self) -> list[Figure]:
        """Every figure, in the order of the page."""
        return [figure for section in self.sections for figure in section.figures]


def build_report(paths: Iterable[Path], against: str | None = None) -> Report:
    """Read runs and make all tables and figures.

    Args:
        paths: Run directories, or folders with run directories below them.
        against: The method that the others are compared with, seed by seed; see :func:`fedfibos.report.paired.rival`.

    Raises:
        RecordError: Nothing to read, a damaged file, two different results of one experiment and seed, or no method
            that is called ``against``.
    """
    content = sort_records([read_record(path, name) for path, name in find_runs(paths).items()])
    paired.check_rival(content.problems, against)
    sections: list[Section] = []
    for problem in content.problems:
        sections.append(_section(problem, _slug(problem, [section.slug for section in sections]), against))
    beside = tuple(paper.comparisons(content))
    if not any(has_runs for _, has_runs in beside):
        beside = ()  # other problems than the paper's
    return Report(content, tuple(sections), beside, tables.runs(content), _facts(content))


def write_report(report: Report, out: Path) -> list[Path]:
    """Write the page, and figures (SVG, PNG) and tables (LaTeX, Markdown) into a folder beside it.

    Args:
        report: What to show.
        out: The page, ``report.html``; the folder is ``report-files``, and of earlier reports nothing stays in it.

    Returns:
        What was written, the page first.
    """
    folder = out.with_name(f"{out.stem}-files")
    folder.mkdir(parents=True, exist_ok=True)
    written = {out: html(report).encode()}
    for figure in report.figures():
        written |= {folder / f"{figure.slug}.svg": figure.svg, folder / f"{figure.slug}.png": figure.png}
    for table in report.tables():
        written |= {folder / f"{table.slug}.tex": latex(table).encode()}
        written |= {folder / f"{table.slug}.md": markdown(table).encode()}
    for path, data in written.items():
        write_whole(path, data)
    for path in folder.iterdir():
        if path.suffix in (".svg", ".png", ".tex", ".md") and path not in written:
            path.unlink()
    return list(written)


def html(report: Report) -> str:
    """The page: all in one file, nothing is loaded from elsewhere."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedfibos.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_url"] = data_url
    return environment.get_template("page.html.jinja").render(report=report, version=version("fedfibos"))


def data_url(figure: Figure) -> str:
    """The figure's SVG as the address of an image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(figure.svg).decode()}"


def _section(problem: Problem, slug: str, against: str | None) -> Section:
    dispersion = figures.dispersion_curves(problem, slug)
    return Section(
        slug,
        problem,
        problem.unlike(),
        tables.results(problem, slug),
        paired.differences(problem, slug, against),
        (tables.by_capacity(problem, slug), tables.statistics(problem, slug)),
        tables.communication(problem, slug),
        tuple(tables.kept_shares(problem, slug)),
        tables.settings(problem, slug),
        (
            *figures.accuracy_curves(problem, slug),
            *figures.jaccard_curves(problem, slug),
            *([] if dispersion is None else [dispersion]),
            figures.communication_curves(problem, slug),
        ),
    )


def _slug(problem: Problem, taken: Sequence[str]) -> str:
    """A name for files: ``cifar-10-2-classes-a-client-non-uniform``, with a number where it is taken."""
    return free_name(file_name(problem.label), taken)


def _facts(content: Sorted) -> tuple[tuple[str, str], ...]:
    """What the head of the page says of the runs."""
    records = [record for group in content.groups() for record in group.records]
    environments = [e for record in records for e in (record.environment, *record.environment.get("resumed", []))]
    seeds = sorted({record.experiment.seed for record in records})
    counts = sorted({len(group.records) for group in content.groups()})
    each = f"{counts[0]} to {counts[-1]} runs" if len(counts) > 1 else "".join(f"{n} runs" for n in counts)
    each = "1 run" if counts == [1] else each
    return (
        ("finished runs", str(len(records))),
        ("unfinished runs", f"{len(content.unfinished)}, in no table of results"),
        ("seeds", f"{', '.join(map(str, seeds))} ({each} behind each number)"),
        ("commits", ", ".join(sorted({tables.commit(e) for e in environments}))),
        ("hardware", "; ".join(sorted({tables.hardware(e) for e in environments}))),
        ("torch", ", ".join(sorted({e["torch"] for e in environments}))),
    )
