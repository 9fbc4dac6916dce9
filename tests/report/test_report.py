"""The page of a report: whole, by itself, and the same each time."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from made_runs import EXPERIMENT, seeds, table, write_run

from fedfibos.cli import main
from fedfibos.cli.exit_codes import REFUSED
from fedfibos.config.choices import MethodChoice
from fedfibos.report import build_report, html, write_report


def test_unfinished_runs_are_counted_and_in_no_result(runs):
    write_run(runs / "unfinished", replace(EXPERIMENT, seed=5), finished=False)
    report = build_report([runs])
    assert dict(report.facts)["unfinished runs"] == "1, in no table of results"
    assert [r[1].text for r in table(report, "results").rows] == ["2", "2"]
    assert [r[-1].text for r in table(report, "runs").rows].count("unfinished") == 1


class Balanced(HTMLParser):
    """Fails on a tag that is not closed where it should be; notes what is loaded from elsewhere."""

    VOID = ("meta", "img", "br", "source")

    def __init__(self):
        super().__init__()
        self.open, self.loaded = [], []

    def handle_starttag(self, tag, attributes):
        self.loaded += [value for name, value in attributes if name in ("src", "srcset", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(runs):
    parser = Balanced()
    page = html(build_report([runs]))
    parser.feed(page)
    assert parser.open == []
    assert parser.loaded
    assert all(value.startswith(("#", "data:image/svg+xml;base64,")) for value in parser.loaded)
    anchors = {value[1:] for value in parser.loaded if value.startswith("#")}
    assert anchors <= set(re.findall(r'id="([^"]+)"', page))
    for wanted in ("0123456789", "Some processor, 2 cores", "2.13.0", "local.steps", "federation.capacities.0.0625"):
        assert wanted in page


@pytest.mark.slow
def test_figures_and_tables_lie_beside_the_page_and_are_the_same_each_time(runs, tmp_path):
    first = write_report(build_report([runs]), tmp_path / "a.html")
    assert first[0] == tmp_path / "a.html"
    assert all(path.parent == tmp_path / "a-files" for path in first[1:])
    names = sorted(path.name for path in first[1:])
    slug = "cifar-10-2-classes-a-client-non-uniform"
    for figure in ("forest", "curves", "jaccard", "cv"):
        for ending in (".svg", ".png", ".pdf", "-column.svg", "-column.pdf"):
            assert f"{figure}-{slug}{ending}" in names
    assert {f"results-{slug}.tex", f"results-{slug}.md", "runs.tex"} <= set(names)
    again = build_report([runs])
    assert first[0].read_text() == html(again, "a-files/explore.html")
    figure = again.figures()[0]
    assert all((first[1].parent / f"{figure.slug}{end}").read_bytes() == file for end, file in figure.files().items())


@pytest.fixture
def slices(tmp_path):
    """Runs that have one figure."""
    seeds(tmp_path / "slices", replace(EXPERIMENT, method=MethodChoice("heterofl")), 0.5, 0.6)
    return tmp_path / "slices"


def test_the_command(runs, slices, tmp_path, capsys):
    assert main(["report", str(slices), "--out", str(tmp_path / "r.html"), "--summary", "best"]) == 0
    assert "1 result on 1 problem:" in capsys.readouterr().out
    assert "Accuracy in %, best evaluation: " in (tmp_path / "r.html").read_text()
    assert main(["report", str(tmp_path / "nothing")]) == REFUSED
    assert "it does not exist" in capsys.readouterr().err
    (runs / "fiarse" / "seed-0" / "final.json").write_text("{")
    assert main(["report", str(runs)]) == REFUSED
    assert "final.json is damaged" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_all_of_it(runs, tmp_path, width):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert browser, "this test needs chromium (or google-chrome) on the PATH"
    page = tmp_path / "r.html"
    write_report(build_report([runs]), page)
    script = """<script>addEventListener("load", () => {
        const boxes = [...document.querySelectorAll(".scroll")];
        document.body.innerText = JSON.stringify({
            overflow: document.documentElement.scrollWidth - innerWidth,
            images: [...document.images].map(image => image.naturalWidth),
            tables: boxes.filter(box => box.scrollWidth > box.clientWidth).length,
            width: innerWidth,
            names: [...document.querySelectorAll("tbody th[scope=row], .verdicts li")].filter(name =>
                name.offsetParent && name.getBoundingClientRect().right > innerWidth).length,
            shown: [...document.images].map(image => image.currentSrc.length),
            first: document.querySelector("main section").className,
        });
    });</script>"""
    page.write_text(page.read_text().replace("</body>", script + "</body>"))
    arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},900",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run([browser, *arguments], capture_output=True, text=True, timeout=120, check=True)
    shown = json.loads(re.search(r"<body>(\{.*\})</body>", done.stdout, re.DOTALL).group(1))
    assert shown["overflow"] <= 0  # tables scroll in their own box, the page does not
    assert len(shown["images"]) == 4
    assert shown["names"] == 0
    assert shown["first"] == "answer"
    assert all(shown["images"])
    if shown["width"] < 500:
        assert shown["tables"] > 0


@pytest.mark.slow
def test_an_earlier_report_leaves_nothing_behind(slices, tmp_path):
    folder = tmp_path / "page-files"
    folder.mkdir()
    (folder / "results-of-another-problem.tex").write_text("old")
    (folder / "notes.txt").write_text("mine")
    write_report(build_report([slices]), tmp_path / "page.html")
    assert not (folder / "results-of-another-problem.tex").exists()
    assert (folder / "notes.txt").read_text() == "mine"
