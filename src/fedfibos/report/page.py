"""The report: one page that needs nothing else, and beside it the figures and tables as files."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from fedfibos.common.atomic_files import write_whole
from fedfibos.common.extras import extra
from fedfibos.report import figures, paper, tables
from fedfibos.report.devices import by_device
from fedfibos.report.drawing import Figure
from fedfibos.report.explore import explore_page
from fedfibos.report.forest import forest
from fedfibos.report.groups import Problem, Sorted
from fedfibos.report.labels import file_name, free_name
from fedfibos.report.looks import Look, looks
from fedfibos.report.paired import Answer, answer, differences, sentence
from fedfibos.report.partition import partition_figure
from fedfibos.report.records import find_runs, read_record
from fedfibos.report.rival import check_rival
from fedfibos.report.sorting import sort_records
from fedfibos.report.spent import spent
from fedfibos.report.table import Table, latex, markdown

with extra("report"):
    import jinja2


EXPLORE = "explore.html"
"""The page of curves to explore, in the folder beside the report."""


@dataclass(frozen=True)
class Verdicts:
    """Every method of a problem against one of them.

    Attributes:
        answer: The differences.
        lines: (colour, what there is to say of it) of every method.
        forest: The same as a figure.
        differences: The same as a table.
    """

    answer: Answer
    lines: tuple[tuple[str, str], ...]
    forest: Figure
    differences: Table


@dataclass(frozen=True)
class Section:
    """One problem on the page."""

    slug: str
    problem: Problem
    warning: str
    verdicts: Verdicts | None
    results: Table
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
        comparisons: The paper's tables beside ours, of the cells that have runs.
        without: The cells of the paper's tables that have none.
        runs: The table of runs.
        facts: What the page says of all runs.
        summary: What is taken of a run's evaluations, in words.
    """

    content: Sorted
    sections: tuple[Section, ...]
    comparisons: tuple[Table, ...]
    without: tuple[str, ...]
    runs: Table
    facts: tuple[tuple[str, str], ...]
    summary: str
    looks: Mapping[str, Look]

    @property
    def of_classes(self) -> bool:
        """Whether a problem is measured class by class: what the page says of that is left out elsewhere."""
        return any(section.problem.measure.name == "accuracy" for section in self.sections)

    def tables(self) -> list[Table]:
        """Every table, in the order of the page."""
        found: list[Table] = []
        for section in self.sections:
            found += [section.results, *([] if section.verdicts is None else [section.verdicts.differences])]
            found += [*section.details, section.communication, *section.kept, section.settings]
        return [*found, *self.comparisons, self.runs]

    def figures(self) -> list[Figure]:
        """Every figure, in the order of the page."""
        forests = [section.verdicts.forest for section in self.sections if section.verdicts is not None]
        return [*forests, *(figure for section in self.sections for figure in section.figures)]


def build_report(paths: Iterable[Path], against: str | None = None, summary: str = "last") -> Report:
    """Read runs and make all tables and figures.

    Args:
        paths: Run directories, or folders with run directories below them.
        against: The method that the others are compared with, seed by seed; see :func:`fedfibos.report.rival.rival`.
        summary: ``last``, ``last20`` or ``best``: what is taken of a run's evaluations.

    Raises:
        RecordError: Nothing to read, a damaged file, two different results of one experiment and seed, or no method
            that is called ``against``.
    """
    content = sort_records([read_record(path, name) for path, name in find_runs(paths).items()])
    check_rival(content.problems, against)
    drawn = looks(content.groups())
    sections: list[Section] = []
    for problem in content.problems:
        slug = _slug(problem, [section.slug for section in sections])
        sections.append(_section(problem, slug, drawn, against, summary))
    beside, without = paper.comparisons(content, summary)
    return Report(
        content,
        tuple(sections),
        tuple(beside),
        tuple(without) if beside else (),  # with none the problems are others than the paper's
        tables.runs(content),
        _facts(content),
        tables.STATISTICS[summary],
        drawn,
    )


def write_report(report: Report, out: Path) -> list[Path]:
    """Write the page and a folder beside it: figures (SVG, PDF, PNG), tables (LaTeX, Markdown), curves to explore.

    Args:
        report: What to show.
        out: The page, ``report.html``; the folder is ``report-files``, and of earlier reports nothing stays in it.

    Returns:
        What was written, the page first.
    """
    folder = out.with_name(f"{out.stem}-files")
    folder.mkdir(parents=True, exist_ok=True)
    written = {out: html(report, f"{folder.name}/{EXPLORE}").encode()}
    if report.sections:
        curves = explore_page([(section.slug, section.problem) for section in report.sections], report.looks)
        written[folder / EXPLORE] = curves.encode()
    for figure in report.figures():
        written |= {folder / f"{figure.slug}{ending}": content for ending, content in figure.files().items()}
    for table in report.tables():
        written |= {folder / f"{table.slug}.tex": latex(table).encode()}
        written |= {folder / f"{table.slug}.md": markdown(table).encode()}
    for path, data in written.items():
        write_whole(path, data)
    for path in folder.iterdir():
        if path.suffix in (".svg", ".pdf", ".png", ".tex", ".md", ".html") and path not in written:
            path.unlink()
    return list(written)


def html(report: Report, explore: str | None = None) -> str:
    """The page: all in one file, nothing is loaded from elsewhere. ``explore``: address of the curves' page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedfibos.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_url"] = data_url
    page = environment.get_template("page.html.jinja")
    return page.render(report=report, explore=explore, version=version("fedfibos"))


def data_url(svg: bytes) -> str:
    """A drawing as the address of an image."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _section(problem: Problem, slug: str, drawn: Mapping[str, Look], against: str | None, summary: str) -> Section:
    parts = by_device if problem.experiment.federation.devices else tables.by_capacity
    pictures = (
        partition_figure(problem, slug),
        figures.accuracy_curves(problem, drawn, slug),
        figures.jaccard_curves(problem, slug),
        figures.dispersion_curves(problem, drawn, slug),
    )
    return Section(
        slug,
        problem,
        problem.unlike(),
        _verdicts(answer(problem, against, summary), drawn, slug, summary),
        tables.results(problem, slug, summary),
        (parts(problem, slug, summary), tables.statistics(problem, slug), *spent(problem, slug)),
        tables.communication(problem, slug),
        tuple(tables.kept_shares(problem, slug)),
        tables.settings(problem, slug),
        tuple(picture for picture in pictures if picture is not None),
    )


def _verdicts(found: Answer | None, drawn: Mapping[str, Look], slug: str, summary: str) -> Verdicts | None:
    if found is None:
        return None
    lines = tuple((drawn[line.group.label].colour, sentence(line)) for line in found.lines)
    return Verdicts(found, lines, forest(found, drawn, slug), differences(found, slug, tables.STATISTICS[summary]))


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
