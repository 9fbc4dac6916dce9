"""A study of which less is better, perplexity: signs, words and figures' axes, read from the record of the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfibos.common.statistics import Spread
from fedfibos.report.drawing import Layout
from fedfibos.report.figures import accuracy_curves
from fedfibos.report.forest import forest
from fedfibos.report.looks import looks
from fedfibos.report.paired import answer, differences
from fedfibos.report.records import find_runs, read_record
from fedfibos.report.sorting import sort_records
from fedfibos.report.tables import best_of, written
from fedfibos.runs.measures import Measure

RECORD = Path(__file__).parents[2] / "results" / "tasks" / "language_model"
PERPLEXITY = Measure("perplexity", "lower", False)


@pytest.fixture(scope="module")
def problem():
    (one,) = sort_records([read_record(path, name) for path, name in find_runs([RECORD]).items()]).problems
    return one


def test_differences_say_how_far_below_the_reference_a_method_is(problem):
    found = answer(problem)
    table = differences(found, "x", "last evaluation")
    assert table.columns[0] == "below FedFIbOS"
    rows = {row[0].text: row[2].text for row in table.rows}
    assert rows["FedAvg"] == "+38.9 (n = 1)", "its perplexity is the lower one"
    assert table.note.startswith(
        "Difference of perplexity, how far it is below that of FedFIbOS, which is better, with 95 % intervals"
    )
    canvas = forest(found, looks(problem.groups), "x").draw(Layout.page)
    (said,) = {text.get_text() for text in [canvas._supxlabel] if text is not None}
    assert said == "perplexity below that of FedFIbOS (right is better)"


def test_the_names_of_the_curves_axes_are_on_the_figure(problem):
    canvas = accuracy_curves(problem, looks(problem.groups), "x").draw(Layout.page)
    canvas.canvas.draw()
    for pane in canvas.axes:
        box = pane.yaxis.label.get_window_extent()
        assert (box.y0 >= 0, box.y1 <= canvas.bbox.height) == (True, True)
    assert canvas.axes[0].get_ylabel() == "submodels, perplexity\n(lower is better)"


@pytest.mark.parametrize(
    ("value", "said"), [(902.384, "902.4"), (51234.4, "51234"), (9.2341, "9.234"), (0.49, "0.490")]
)
def test_numbers_have_four_figures(value, said):
    assert written(Spread(value, None, 1), PERPLEXITY) == f"{said} (n = 1)"


def test_the_lowest_mean_is_the_best():
    column = [Spread(value, 0.1, 3) for value in (103.4, 98.2, 120.0)]
    (cells,) = best_of([column], PERPLEXITY)
    assert [cell.bold for cell in cells] == [False, True, False]
