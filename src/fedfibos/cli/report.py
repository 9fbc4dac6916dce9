"""``fedfibos report``: run directories -> one page, with its figures and tables as files beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedfibos.common.formatting import count_of
from fedfibos.report import build_report, write_report


def report(runs: Sequence[Path], out: Path, against: str | None, summary: str, console: Console) -> None:
    """Write the report and say where it is."""
    content = build_report(runs, against, summary)
    written = write_report(content, out)
    problems = content.content.problems
    groups = len(content.content.groups())
    lines = [f"{count_of(groups, 'result')} on {count_of(len(problems), 'problem')}: {written[0]}"]
    if len(written) > 1:
        lines.append(f"figures (SVG, PDF, PNG) and tables (LaTeX, Markdown): {written[1].parent}")
    if unfinished := content.content.unfinished:
        lines.append(f"{len(unfinished)} unfinished runs are in no table of results")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
