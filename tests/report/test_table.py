"""A table in every form that it is written in."""

from dataclasses import replace

import pytest

from fedfibos.common.statistics import Spread
from fedfibos.report import tables
from fedfibos.report.table import Cell, Table, latex, markdown, row


def test_latex_and_markdown():
    made = Table("t", "A & B", ("layer_name", "γ"), (row("50 %", Cell("1 ± 2", bold=True)),))
    assert r"\caption{A \& B}" in latex(made)
    assert r"layer\_name & $\gamma$ \\" in latex(made)
    assert r"50 \% & \textbf{1 $\pm$ 2} \\" in latex(made)
    assert markdown(made) == "| layer_name | γ |\n| --- | ---: |\n| 50 % | **1 ± 2** |\n"
    with pytest.raises(ValueError, match="has 2 columns, got a row of 1"):
        replace(made, rows=(row("x"),))


def test_what_prints_equal_is_equally_good_and_nothing_is_best_of_equals():
    some, same = (
        [Spread(0.4004, 0.1, 2), Spread(0.4001, 0.1, 2), Spread(0.3, 0.1, 2), None],
        [Spread(0.25, None, 1)] * 4,
    )
    marked = tables.best_of([some, same])
    assert [cell.bold for cell in marked[0]] == [True, True, False, False]
    assert not any(cell.bold for cell in marked[1])


def test_a_long_latex_table_goes_over_pages():
    rows = tuple(row("a", str(n)) for n in range(50))
    text = latex(Table("long", "Title", ("one", "two"), rows))
    assert text.startswith("\\begin{longtable}{lr}\n\\caption{Title}")
    assert text.count("\\endhead") == 1
    assert "\\begin{table}" not in text
    assert text.rstrip().endswith("\\end{longtable}")
