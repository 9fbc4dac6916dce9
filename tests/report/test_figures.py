"""What figures show."""

from dataclasses import replace

import pytest
from made_runs import EXPERIMENT, write_run
from matplotlib.figure import Figure as Canvas

from fedfibos.cli.methods import summary
from fedfibos.common.statistics import Spread
from fedfibos.config.choices import MethodChoice
from fedfibos.methods import METHODS
from fedfibos.report import build_report, figures, html
from fedfibos.report.looks import Look, looks


@pytest.mark.slow
def test_figures_with_many_versions_keep_their_axes_and_tell_all_lines_apart(tmp_path):
    """Twelve versions of one method: a legend of long labels must not press the axes flat, no two lines look alike."""
    for number in range(12):
        options = {"ema_rate": 0.5 + number / 100, "criterion": "ssp", "prior": "none", "average": "participants"}
        write_run(tmp_path / str(number), replace(EXPERIMENT, method=MethodChoice("fedfibos", None, options)))
    report = build_report([tmp_path])
    (problem,) = report.content.problems
    assert len({look.colour for look in looks(problem.groups).values()}) == len(problem.groups) == 12
    for figure in report.figures():
        assert figure.wide  # a warning that the layout collapsed would fail the test


def test_a_single_seed_has_no_bar_and_a_single_point_can_be_seen():
    axes = Canvas().add_subplot()
    round_, square = Look("#000000", "-", "o"), Look("#000000", "-", "s")
    figures._draw(axes, [(30.0, Spread(0.5, None, 1))], round_, 0, 2)
    assert [line.get_marker() for line in axes.lines] == ["o"]
    assert axes.containers[0].has_yerr is False
    figures._draw(axes, [(30.0, Spread(0.5, 0.1, 2))], square, 1, 2)
    assert axes.containers[1].has_yerr is True
    assert axes.containers[1].lines[0].get_marker() == "s"
    assert axes.dataLim.y0 <= 0.4
    assert axes.dataLim.y1 >= 0.6


def test_seeds_are_a_band_and_the_range_is_that_of_the_data():
    axes = Canvas().add_subplot()
    line = [(15.0, Spread(0.40, 0.02, 2)), (30.0, Spread(0.50, 0.02, 2))]
    figures._draw(axes, line, Look("#000000", "-", "o"), 0, 20, scale=100)
    (band,) = axes.collections
    assert band.get_paths()[0].get_extents().extents.tolist() == [15.0, 38.0, 30.0, 52.0]
    wild = [(15.0, Spread(0.45, 0.30, 2))]
    figures._cut(axes, [line, line, line, wild])
    assert axes.get_ylim() == pytest.approx((40 - 3, 50 + 3))  # usual bands of 2, a twentieth of 10, and a half


def test_a_method_of_one_s_own_has_a_colour_and_no_presets(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["fedavg"])
    assert summary("mine").presets == ()
    write_run(tmp_path / "run", replace(EXPERIMENT, method=MethodChoice("mine")))
    assert "mine" in html(build_report([tmp_path]))
    with pytest.raises(ValueError, match="preset of mine must be absent, got 'best'"):
        MethodChoice("mine", "best")
