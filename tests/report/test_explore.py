"""The curves to explore: every line of the figures, one legend, and a page that loads nothing."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedfibos.report import build_report, html
from fedfibos.report.explore import explore_page, explored
from fedfibos.report.figures import accuracy_panels
from fedfibos.runs.measures import ACCURACY

RECORDS = Path(__file__).resolve().parents[2] / "results" / "small" / "cifar10-norm"


@pytest.fixture(scope="module")
def report():
    return build_report([RECORDS])


def test_every_panel_has_the_line_of_every_method_in_its_colour(report):
    problem = report.sections[0].problem
    figure = explored(problem, report.looks)
    curves = [trace for trace in figure.data if trace.name]
    assert len(curves) == len(accuracy_panels(ACCURACY)) * len(problem.groups)
    first = problem.groups[0]
    panel = accuracy_panels(ACCURACY)[0]
    line = panel[3](first, panel[2])
    assert list(curves[0].x) == [at for at, _ in line]
    assert list(curves[0].y) == [100 * value.mean for _, value in line]
    assert curves[0].text[-1] == f"{line[-1][1].text(100)} %, n = {line[-1][1].n}"
    assert curves[0].line.color == report.looks[first.label].colour
    bands = [trace for trace in figure.data if not trace.name]
    assert bands[0].y[0] == pytest.approx(100 * (line[0][1].mean + (line[0][1].sd or 0)))


def test_a_method_stands_once_in_the_legend_and_hides_everywhere(report):
    problem = report.sections[0].problem
    figure = explored(problem, report.looks)
    assert [trace.name for trace in figure.data if trace.showlegend] == [group.label for group in problem.groups]
    assert all(trace.legendgroup in report.looks for trace in figure.data)


def test_the_button_makes_the_axis_of_bytes_logarithmic(report):
    figure = explored(report.sections[0].problem, report.looks)
    assert [button.args for button in figure.layout.updatemenus[0].buttons] == [
        ({"xaxis3.type": "linear"},),
        ({"xaxis3.type": "log"},),
    ]
    assert figure.layout.xaxis3.title.text == "MB sent, both ways"


@pytest.mark.slow
def test_the_page_loads_nothing_and_the_report_points_at_it(report):
    page = explore_page([(section.slug, section.problem) for section in report.sections], report.looks)
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", page.split("<h1>")[1][:2000])
    assert "<script src" not in page
    assert page.count('class="plotly-graph-div"') == len(report.sections)
    assert all(f'id="{section.slug}"' in page for section in report.sections)
    assert f'<a href="r-files/explore.html#{report.sections[0].slug}">' in html(report, "r-files/explore.html")
    assert "explore.html" not in html(report)


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_it_within_its_width(report, tmp_path, width):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert browser, "this test needs chromium (or google-chrome) on the PATH"
    page = explore_page([(section.slug, section.problem) for section in report.sections], report.looks)
    script = """<script>addEventListener("load", () => setTimeout(() => {
        document.body.innerText = JSON.stringify({
            overflow: document.documentElement.scrollWidth - innerWidth,
            lines: document.querySelectorAll(".js-line").length,
            names: document.querySelectorAll(".legendtext").length,
        });
    }, 500));</script>"""
    path = tmp_path / "explore.html"
    path.write_text(page.replace("</body>", script + "</body>"))
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    arguments += ["--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
    done = subprocess.run([browser, *arguments], capture_output=True, text=True, timeout=120, check=True)
    shown = json.loads(re.search(r"<body>(\{.*\})</body>", done.stdout, re.DOTALL).group(1))
    groups = sum(len(section.problem.groups) for section in report.sections)
    assert shown["overflow"] <= 0
    assert shown["names"] == groups
    assert shown["lines"] >= len(accuracy_panels(ACCURACY)) * groups
