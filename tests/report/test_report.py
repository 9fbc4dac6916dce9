"""Reports: what is averaged with what, the paper's cells, literal numbers, and the page in a browser."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas

from fedfibos.cli import main
from fedfibos.cli.exit_codes import REFUSED
from fedfibos.cli.methods import summary
from fedfibos.common.statistics import Spread
from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.experiment import Experiment, to_toml
from fedfibos.config.federation import Federation
from fedfibos.config.sections import Data, Evaluation
from fedfibos.data.partition import Partition
from fedfibos.methods import METHODS
from fedfibos.report import build_report, figures, html, tables, write_report
from fedfibos.report.groups import Group
from fedfibos.report.labels import method_label
from fedfibos.report.looks import Look, looks
from fedfibos.report.paper import comparisons, paper_figures
from fedfibos.report.records import find_runs, read_record
from fedfibos.report.rival import rival
from fedfibos.report.sorting import sort_records
from fedfibos.report.table import Cell, Table, latex, markdown, row
from fedfibos.report.tables import bytes_to_accuracy
from fedfibos.runs.reading import RecordError
from fedfibos.runs.summary import summarise
from fedfibos.training import LocalTraining

FEW = Partition("pathological", classes_per_client=2)
EXPERIMENT = Experiment(
    data=Data("cifar10", FEW),
    model=ModelChoice("resnet8"),
    federation=Federation(clients=100, cohort=10, rounds=4, capacities="non-uniform"),
    method=MethodChoice("fedfibos"),
    local=LocalTraining(steps=5),
    evaluation=Evaluation(every=2),
)
CAPACITIES = ("1.0", "0.5", "0.25", "0.125", "0.0625")
ENVIRONMENT = {
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "python": "3.11.7",
    "torch": "2.13.0",
    "cpu": "Some processor",
    "cores": 2,
    "device": "cpu",
}


def evaluation(accuracy, scored):
    small = round(accuracy - 0.1, 6)
    return {
        "global": {
            "full": accuracy,
            "submodels": {**dict.fromkeys(CAPACITIES, small), "mean": small},
        },
        "local": {"mean": accuracy + 0.2, "by_capacity": dict.fromkeys(CAPACITIES, accuracy + 0.2)},
        "jaccard": dict(zip(CAPACITIES, (1.0, 0.5, 0.4, 0.3, 0.2), strict=True)) if scored else {},
        "cv_f": 10 * accuracy if scored else None,
        "cv_magnitude": 1.5,
        "kept_shares": {c: {"conv.weight": float(c), "fc_1.weight": 0.0 if c == "0.0625" else 1.0} for c in CAPACITIES},
    }


def write_run(folder, experiment, accuracies=(0.3, 0.5), finished=True, digest="ab" * 32):
    """A run directory as the engine writes it, with these accuracies of the full model."""
    folder.mkdir(parents=True)
    scored = experiment.method.name == "fedfibos"
    rounds = []
    for number in range(1, experiment.federation.rounds + 1 if finished else 3):
        line = {"round": number, "loss": 1.0, "participants": [0], "rejected": {}, "seconds": 1.0}
        line["bytes"] = {"down": 1_000_000, "up": 2_000_000}
        if number % 2 == 0:
            line["evaluation"] = evaluation(accuracies[number // 2 - 1], scored)
        rounds.append(line)
    (folder / "config.toml").write_text(to_toml(experiment))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rounds))
    if finished:
        final = {
            "method": experiment.method.name,
            "seed": experiment.seed,
            "params_sha256": digest,
            **summarise(rounds),
        }
        (folder / "final.json").write_text(json.dumps(final))


def seeds(folder, experiment, *accuracies):
    for seed, accuracy in enumerate(accuracies):
        write_run(folder / f"seed-{seed}", replace(experiment, seed=seed), (0.3, accuracy))


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "results"
    seeds(folder / "fedfibos", EXPERIMENT, 0.5, 0.6)
    seeds(folder / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")), 0.4, 0.4)
    return folder


def content(folder):
    return sort_records([read_record(path, name) for path, name in find_runs([folder]).items()])


def table(report, slug):
    return next(table for table in report.tables() if table.slug.startswith(slug))


def test_only_the_seed_may_differ_within_a_number(runs):
    slower = replace(EXPERIMENT, local=replace(EXPERIMENT.local, lr=0.01))
    seeds(runs / "slower", slower, 0.7)
    (problem,) = content(runs).problems
    assert [(group.label, len(group.records)) for group in problem.groups] == [
        ("FIARSE", 2),
        ("FedFIbOS, lr = 0.01", 1),
        ("FedFIbOS, lr = 0.05", 2),
    ]
    spread = problem.groups[2].over_seeds("global_accuracy", "full", "last")
    assert (spread.mean, spread.sd, spread.n) == (pytest.approx(0.55), pytest.approx(0.0707107), 2)


def test_other_rounds_or_another_measurement_are_another_problem(runs):
    longer = replace(EXPERIMENT, federation=replace(EXPERIMENT.federation, rounds=6))
    write_run(runs / "longer", longer, (0.1, 0.2, 0.3))
    fewer = replace(EXPERIMENT, evaluation=replace(EXPERIMENT.evaluation, submodel_clients=3))
    write_run(runs / "fewer", fewer)
    tuning = replace(EXPERIMENT, evaluation=replace(EXPERIMENT.evaluation, validation=0.1))
    write_run(runs / "tuning", tuning)
    labels = [(problem.label, problem.scale) for problem in content(runs).problems]
    scale = "resnet8 (group norm), 100 clients, 10 a round, {} rounds"
    assert any(scale.format(4) + ", measured on validation examples" in pair for pair in labels)
    assert ("CIFAR-10, 2 classes a client, non-uniform, 6 rounds", scale.format(6)) in labels
    assert ("CIFAR-10, 2 classes a client, non-uniform, 4 rounds, submodel_clients = 3", scale.format(4)) in labels
    assert len({label for label, _ in labels}) == len(labels) == 4


def test_bytes_of_scores_and_cadence_of_evaluations_keep_runs_apart(tmp_path):
    """The first changes results; of the second "best" and "until an accuracy" are made."""
    half = replace(EXPERIMENT, run=replace(EXPERIMENT.run, score_bytes=2, score_home="disk"))
    write_run(tmp_path / "whole", EXPERIMENT)
    write_run(tmp_path / "half", replace(half, seed=1), digest="cd" * 32)
    (problem,) = content(tmp_path).problems
    assert [len(group.records) for group in problem.groups] == [1, 1]
    often = replace(EXPERIMENT.evaluation, every=EXPERIMENT.evaluation.every + 1)
    write_run(tmp_path / "often", replace(EXPERIMENT, evaluation=often, method=MethodChoice("fiarse")))
    assert len(content(tmp_path).problems) == 2


def test_settings_that_change_nothing_keep_runs_together(runs):
    unused = replace(EXPERIMENT.data, partition=replace(FEW, alpha=0.7))
    write_run(runs / "third", replace(EXPERIMENT, seed=2, data=unused, run=replace(EXPERIMENT.run, checkpoint_every=3)))
    (problem,) = content(runs).problems
    assert [len(group.records) for group in problem.groups] == [2, 3]


def test_unfinished_runs_are_counted_and_in_no_result(runs):
    write_run(runs / "unfinished", replace(EXPERIMENT, seed=5), finished=False)
    report = build_report([runs])
    assert dict(report.facts)["unfinished runs"] == "1, in no table of results"
    assert [r[1].text for r in table(report, "results").rows] == ["2", "2"]
    assert [r[-1].text for r in table(report, "runs").rows].count("unfinished") == 1


def test_one_run_twice_counts_once_and_two_results_of_one_seed_are_refused(runs, tmp_path):
    shutil.copytree(runs / "fedfibos" / "seed-0", runs / "copy")
    sorted_ = content(runs)
    assert [len(group.records) for group in sorted_.problems[0].groups] == [2, 2]
    assert "results/fedfibos/seed-0 has the settings, seed and results of results/copy" in sorted_.notes[0]
    write_run(runs / "again", EXPERIMENT, digest="cd" * 32)
    with pytest.raises(RecordError, match="same experiment and seed with different results"):
        content(runs)


def test_unequal_budgets_are_said(runs):
    assert content(runs).problems[0].unlike() == ""
    write_run(runs / "more", replace(EXPERIMENT, local=LocalTraining(steps=50), method=MethodChoice("heterofl")))
    assert "no comparison at equal cost" in content(runs).problems[0].unlike()
    masking = replace(EXPERIMENT.local, absent_labels="mask")
    write_run(runs / "masking", replace(EXPERIMENT, local=masking, method=MethodChoice("fedrolex")))
    assert "(absent_labels) differs here" in content(runs).problems[0].unlike()


def test_a_ceiling_stands_beside_what_it_is_the_ceiling_of(runs):
    fleet = replace(EXPERIMENT.federation, capacities={1.0: 1.0})
    ceiling = replace(EXPERIMENT, method=MethodChoice("fedavg"), federation=fleet)
    write_run(runs / "ceiling", ceiling, (0.5, 0.95))
    report = build_report([runs])
    assert len(report.sections) == 1
    reference = [cell.text for cell in table(report, "results").rows[-1]]
    assert reference[0] == "reference: FedAvg, all clients at 1"
    assert reference[2] == "95.0 (n = 1)"
    assert not any(cell.bold for cell in table(report, "results").rows[-1])
    assert dict(report.facts)["finished runs"] == "5"
    assert len(table(report, "runs").rows) == 5
    write_run(runs / "other data", replace(ceiling, data=Data("cifar100", FEW)))
    assert len(content(runs).problems) == 2


def test_results_are_the_records_numbers_with_the_best_marked(runs):
    results = table(build_report([runs]), "results")
    assert results.columns == ("method", "seeds", "global, full", "global, submodels", "global, γ = 0.0625", "local")
    texts = {entries[0].text: [cell.text for cell in entries[1:]] for entries in results.rows}
    assert texts["FIARSE"] == ["2", "40.0 ± 0.0", "30.0 ± 0.0", "30.0 ± 0.0", "60.0 ± 0.0"]
    assert texts["FedFIbOS"] == ["2", "55.0 ± 7.1", "45.0 ± 7.1", "45.0 ± 7.1", "75.0 ± 7.1"]
    assert [cell.bold for cell in results.rows[1]] == [False, False, True, True, True, True]


def test_the_summary_that_is_asked_for_is_shown_everywhere(runs):
    report = build_report([runs], summary="last20")
    results = table(report, "results")
    assert results.title.startswith("Accuracy in %, mean of the last 20 evaluations: ")
    assert "Mean over the 2 evaluations from round 2 to 4." in results.note
    assert [cell.text for cell in results.rows[0][1:4]] == ["2", "35.0 ± 0.0", "25.0 ± 0.0"]  # of 30 and 40, 20 and 30
    assert table(report, "differences").rows[0][2].text == "−7.5 [−39.3, +24.3]"
    assert table(report, "capacities").rows[0][2].text == "25.0 ± 0.0"
    assert table(report, "paper").rows[3][3].text == "55.0 ± 0.0"


def test_what_counts_every_class_alike_is_shown_where_it_is_on_record(runs):
    assert "largest class" not in table(build_report([runs]), "results").note
    path = runs / "fiarse" / "seed-0" / "final.json"
    curve = {"last": 0.25, "last20": 0.2, "best": 0.3}
    both = {"full": curve, "submodels": {"mean": curve}}
    final = json.loads(path.read_text()) | {"balanced_accuracy": both, "macro_f1": both, "majority_share": 0.183}
    path.write_text(json.dumps(final))
    report = build_report([runs])
    assert "Always answering the largest class reaches 18.3 %." in table(report, "results").note
    rows = [tuple(cell.text for cell in entries[:3]) for entries in table(report, "statistics").rows]
    assert rows[3:7] == [
        ("FIARSE", "balanced, full", "25.0 (n = 1)"),
        ("FIARSE", "balanced, submodels", "25.0 (n = 1)"),
        ("FIARSE", "macro F1, full", "25.0 (n = 1)"),
        ("FIARSE", "macro F1, submodels", "25.0 (n = 1)"),
    ]
    assert not any("balanced" in entry[1].text for entry in table(report, "statistics").rows[7:])


def test_rows_of_other_seeds_are_said(runs):
    said = "Rows have different seeds"
    assert said not in table(build_report([runs]), "results").note
    write_run(runs / "fiarse" / "more", replace(EXPERIMENT, method=MethodChoice("fiarse"), seed=7))
    assert said in table(build_report([runs]), "results").note


def test_every_cell_of_the_paper_and_only_matching_runs_beside_it(runs):
    letter = replace(EXPERIMENT, method=MethodChoice("fedfibos", "algorithm1"))
    write_run(runs / "letter", letter)
    other = replace(EXPERIMENT, federation=replace(EXPERIMENT.federation, capacities={1.0: 0.5, 0.5: 0.5}))
    write_run(runs / "other", other, (0.9, 0.9))
    (first,), without = comparisons(content(runs))
    assert len(first.rows) == 6
    assert len(without) == 13
    assert without[0] == "CIFAR-10 Low: 5 classes a client, non-uniform"
    assert "CIFAR-10 High: 2 classes a client, non-uniform" not in without
    rows = [tuple(cell.text for cell in entries) for entries in first.rows]
    high = [entries[1:] for entries in rows if entries[0] == "CIFAR-10 High: 2 classes a client, non-uniform"]
    where = "resnet8 (group norm), 100 clients, 10 a round, 4 rounds"
    assert high == [
        ("HeteroFL", "84.05", "no run", "34.44", "no run", "no run", ""),
        ("FedRolex", "83.92", "no run", "39.01", "no run", "no run", ""),
        ("FedBRB (our interpretation)", "89.90", "no run", "54.48", "no run", "no run", ""),
        ("FIARSE", "91.19", "60.0 ± 0.0", "59.85", "30.0 ± 0.0", "40.0 ± 0.0", f"2 seeds; {where}"),
        ("FedFIbOS", "92.80", "75.0 ± 7.1", "92.34", "45.0 ± 7.1", "55.0 ± 7.1", f"2 seeds; {where}"),
        (
            "FedFIbOS “algorithm1”",
            "92.80",
            "70.0 (n = 1)",
            "92.34",
            "40.0 (n = 1)",
            "50.0 (n = 1)",
            f"1 seed; {where}",
        ),
    ]


def test_the_paper_s_numbers():
    methods = ("heterofl", "fedrolex", "fedbrb", "fiarse", "fedfibos")
    cells = [row[m] for table in paper_figures()["tables"] for row in table["rows"] for m in methods if m in row]
    assert len(cells) == 52
    assert all(len(cell) == 2 for cell in cells)
    assert [round(sum(cell[i] for cell in cells), 2) for i in (0, 1)] == [3693.05, 3024.24]  # of the printed numbers


def test_bytes_until_an_accuracy(runs):
    record = read_record(runs / "fedfibos" / "seed-0")
    assert bytes_to_accuracy(record, 0.2) == 6_000_000
    assert bytes_to_accuracy(record, 0.21) == 12_000_000
    assert bytes_to_accuracy(record, 0.41) is None
    rows = [[cell.text for cell in entries] for entries in table(build_report([runs]), "communication").rows]
    assert rows == [  # the best mean is 45 %: targets 22.5, 33.75 and 40.5 %
        ["FIARSE", "12.0 ± 0.0", "12.0 ± 0.0", "not reached", "not reached"],
        ["FedFIbOS", "12.0 ± 0.0", "12.0 ± 0.0", "12.0 ± 0.0", "12.0 (1 of 2 seeds)"],
    ]


def test_a_dead_layer_is_seen(runs):
    kept = table(build_report([runs]), "kept")
    assert kept.columns == ("layer", "γ = 0.5", "γ = 0.25", "γ = 0.125", "γ = 0.0625")
    texts = [[cell.text for cell in entries] for entries in kept.rows]
    assert texts[0] == ["conv.weight", "0.500", "0.250", "0.125", "0.062"]
    assert texts[1] == ["fc_1.weight", "1.000", "1.000", "1.000", "dead"]


def test_latex_and_markdown():
    made = Table("t", "A & B", ("layer_name", "γ"), (row("50 %", Cell("1 ± 2", bold=True)),))
    assert r"\caption{A \& B}" in latex(made)
    assert r"layer\_name & $\gamma$ \\" in latex(made)
    assert r"50 \% & \textbf{1 $\pm$ 2} \\" in latex(made)
    assert markdown(made) == "| layer_name | γ |\n| --- | ---: |\n| 50 % | **1 ± 2** |\n"
    with pytest.raises(ValueError, match="has 2 columns, got a row of 1"):
        replace(made, rows=(row("x"),))


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
    assert "it is not a folder" in capsys.readouterr().err
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


def test_one_evaluation_tells_no_bytes_until_an_accuracy(tmp_path):
    write_run(tmp_path / "only", replace(EXPERIMENT, federation=replace(EXPERIMENT.federation, rounds=2)), (0.4,))
    found = table(build_report([tmp_path]), "communication")
    assert found.columns == ("method", "whole run")


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


def test_an_earlier_report_leaves_nothing_behind(slices, tmp_path):
    folder = tmp_path / "page-files"
    folder.mkdir()
    (folder / "results-of-another-problem.tex").write_text("old")
    (folder / "notes.txt").write_text("mine")
    write_report(build_report([slices]), tmp_path / "page.html")
    assert not (folder / "results-of-another-problem.tex").exists()
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_setting_that_a_method_chose_itself_is_not_in_its_label():
    method = MethodChoice("fedfibos", None, {"sharing": "client"})
    assert method.settings["fisher"] == "dense"
    assert method_label(replace(EXPERIMENT, method=method)) == "FedFIbOS, sharing = client"
    shared = MethodChoice("fedfibos", None, {"prior": "magnitude"})
    assert method_label(replace(EXPERIMENT, method=shared)) == "FedFIbOS, prior = magnitude"


def test_another_problem_than_the_paper_s_is_not_set_beside_it(tmp_path):
    digits = replace(EXPERIMENT, data=Data("digits", FEW), model=ModelChoice("mlp"))
    write_run(tmp_path / "run", digits)
    report = build_report([tmp_path])
    assert report.comparisons == ()
    assert "The paper's tables beside ours" not in html(report)
    (beside, *_) = build_report([_cifar(tmp_path)]).comparisons
    assert beside.slug == "paper-1-classes-non-uniform"


def _cifar(folder):
    write_run(folder / "cifar" / "run", EXPERIMENT)
    return folder / "cifar"


def test_a_method_of_one_s_own_has_a_colour_and_no_presets(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["fedavg"])
    assert summary("mine").presets == ()
    write_run(tmp_path / "run", replace(EXPERIMENT, method=MethodChoice("mine")))
    assert "mine" in html(build_report([tmp_path]))
    with pytest.raises(ValueError, match="preset of mine must be absent, got 'best'"):
        MethodChoice("mine", "best")


def test_differences_are_taken_seed_by_seed(tmp_path):
    seeds(tmp_path / "fedfibos", EXPERIMENT, 0.50, 0.60, 0.70)
    seeds(tmp_path / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")), 0.48, 0.59, 0.67)
    seeds(tmp_path / "heterofl", replace(EXPERIMENT, method=MethodChoice("heterofl")), 0.10, 0.90)
    seeds(tmp_path / "fedrolex", replace(EXPERIMENT, method=MethodChoice("fedrolex")), 0.25, 0.34, 0.47)
    made = table(build_report([tmp_path]), "differences")
    assert made.columns[:4] == ("minus FedFIbOS", "seeds", "submodels", "full model")
    heterofl, fedrolex, fiarse = made.rows
    # Of −2, −1, −3: 2 ± 4.303 · 1 / √3, Student's t of two degrees of freedom.
    assert [cell.text for cell in fiarse[:3]] == ["FIARSE", "3", "−2.0 [−4.5, +0.5]"]
    assert [cell.text for cell in heterofl[:3]] == ["HeteroFL", "2", "−5.0 [−449.7, +439.7]"]
    assert [line[2].bold for line in made.rows] == [False, True, False]
    assert fedrolex[2].text == "−24.7 [−28.5, −20.9]"
    against = table(build_report([tmp_path], "fiarse"), "differences")
    assert [line[0].text for line in against.rows] == ["HeteroFL", "FedRolex", "FedFIbOS"]
    assert [cell.text for cell in against.rows[2][1:3]] == ["3", "+2.0 [−0.5, +4.5]"]


def test_a_difference_is_clear_by_a_paired_t_test():
    below, above = Spread(0.02, 0.02 * 3**0.5 / 4.31, 3), Spread(0.02, 0.02 * 3**0.5 / 4.30, 3)
    assert below.clear(1)
    assert not below.clear(-1)
    assert not above.clear(1)
    assert Spread(-0.02, 0.0, 2).clear(-1)
    assert not Spread(0.5, None, 1).clear(1)
    assert (below.signed(100), Spread(-0.012, 0.001, 3).signed(100)) == ("+2.0 ± 0.8", "−1.2 ± 0.1")


def test_a_single_seed_and_no_common_seed(runs, tmp_path):
    seeds(tmp_path / "one" / "fedfibos", EXPERIMENT, 0.5)
    seeds(tmp_path / "one" / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")), 0.4)
    made = table(build_report([tmp_path / "one"]), "differences")
    assert made.rows[0][2] == Cell("−10.0 (n = 1)")
    assert "tells nothing" in made.note
    write_run(tmp_path / "other" / "fedfibos", replace(EXPERIMENT, seed=7))
    write_run(tmp_path / "other" / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")))
    report = build_report([tmp_path / "other"])
    assert not any(made.slug.startswith("differences") for made in report.tables())
    assert html(report)
    with pytest.raises(RecordError, match="no method of these runs is 'mine': there are fiarse, fedfibos"):
        build_report([runs], "mine")


def test_differences_are_from_the_fedfibos_nearest_to_its_defaults(tmp_path):
    def fedfibos(name, preset=None, **settings):
        seeds(tmp_path / name, replace(EXPERIMENT, method=MethodChoice("fedfibos", preset, settings)), 0.5, 0.6)

    fedfibos("letter", "algorithm1")
    fedfibos("started", prior="magnitude")
    fedfibos("slower", server_lr=0.5)
    first = content(tmp_path).problems[0].groups
    assert "algorithm1" in first[0].label  # the first row is not the one
    base = rival(content(tmp_path).problems[0], None)
    assert base.experiment.method.preset is None  # of the two that are one setting away the first row
    assert base is not None
    fedfibos("plain")
    assert rival(content(tmp_path).problems[0], None).label == "FedFIbOS"


def test_against_takes_the_variant_that_a_sweep_printed(tmp_path):
    for prior in ("magnitude", "none"):
        for rate in (0.1, 0.2):
            local = replace(EXPERIMENT.local, lr=rate)
            method = MethodChoice("fedfibos", None, {"prior": prior})
            seeds(
                tmp_path / "high" / f"prior-{prior}" / str(rate), replace(EXPERIMENT, method=method, local=local), 0.5
            )
    (problem,) = content(tmp_path).problems
    label = "FedFIbOS, prior = magnitude, lr = 0.2"
    assert rival(problem, "prior-magnitude/0.2").label == label
    for common in ("high", "0.1", "prior-magnitude", "seed-0"):  # of two or of all
        assert rival(problem, common) is None
    with pytest.raises(RecordError, match=r"no method of these runs is 'mine': there are .*, prior-magnitude/0\.2"):
        build_report([tmp_path], "mine")
    one, other = (tmp_path / "high" / "prior-none" / rate / "seed-0" for rate in ("0.1", "0.2"))
    (problem,) = sort_records([read_record(path, name) for path, name in find_runs([one, other]).items()]).problems
    assert rival(problem, "0.2").experiment.local.lr == 0.2


def test_folders_of_equal_names_are_told_apart_by_what_is_above_them(tmp_path):
    for variant, prior in (("ours", "none"), ("started", "magnitude")):
        method = MethodChoice("fedfibos", None, {"prior": prior})
        seeds(tmp_path / "st" / variant / "lo", replace(EXPERIMENT, method=method), 0.5)
    runs = [tmp_path / "st" / variant / "lo" / "seed-0" for variant in ("ours", "started")]
    assert list(find_runs(runs).values()) == ["ours/lo/seed-0", "started/lo/seed-0"]
    (problem,) = sort_records([read_record(path, name) for path, name in find_runs(runs).items()]).problems
    assert rival(problem, "started").label == "FedFIbOS, prior = magnitude"


def test_the_label_of_a_method_of_one_s_own_leaves_its_defaults_out(tmp_path, monkeypatch):
    choice = MethodChoice("own_method:Movement", None, {"server_lr": 1.0})
    with monkeypatch.context() as found:
        found.syspath_prepend(Path(__file__).parents[2] / "examples")
        assert method_label(replace(EXPERIMENT, method=choice)) == "Movement"
        slower = replace(choice, settings={"server_lr": 0.5})
        assert method_label(replace(EXPERIMENT, method=slower)) == "Movement, server_lr = 0.5"
    gone = replace(choice, name="code_that_is_gone:Movement")
    assert method_label(replace(EXPERIMENT, method=gone)) == "Movement, server_lr = 1"


def test_a_finished_run_without_all_its_rounds_names_the_file(runs):
    path = runs / "fiarse" / "seed-0" / "rounds.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(RecordError, match=r"seed-0/rounds\.jsonl: must have the 4 rounds of a finished run, got 3"):
        content(runs)
    path.unlink()
    with pytest.raises(RecordError, match=r"rounds\.jsonl: must have the 4 rounds .*, there is no such file"):
        content(runs)


@pytest.mark.parametrize(
    ("key", "said"),
    [("dealt_sha256", "Clients had other examples"), ("initial_sha256", "The model began with other values")],
)
def test_runs_of_a_seed_that_began_otherwise_are_no_pair(runs, key, said):
    def dealt(run, digest):
        (runs / run / "environment.json").write_text(json.dumps({**ENVIRONMENT, key: digest}))

    dealt("fedfibos/seed-0", "aa")
    assert content(runs).problems[0].unlike() == ""  # the other record does not say
    dealt("fiarse/seed-0", "aa")
    assert content(runs).problems[0].unlike() == ""
    dealt("fiarse/seed-0", "bb")
    assert content(runs).problems[0].unlike().startswith(f"{said} in some runs of seed 0 ({key} in ")
    assert [cell.text for cell in table(build_report([runs]), "differences").rows[0][1:3]] == ["1", "−20.0 (n = 1)"]


@pytest.mark.parametrize(
    ("partition", "beside"),
    [(Partition("dirichlet", alpha=0.3), True), (Partition("dirichlet", alpha=0.5), False), (FEW, False)],
)
def test_the_paper_s_figures_are_set_beside_its_own_split_alone(tmp_path, partition, beside):
    seeds(tmp_path, replace(EXPERIMENT, data=Data("cifar10", partition)), 0.5)
    drawn = [figure.wide.decode() for figure in build_report([tmp_path]).figures()]
    assert any("CV_F, paper" in svg for svg in drawn) == beside
    assert any("paper, γ = 0.5" in svg for svg in drawn) == beside


def test_methods_that_hold_more_than_their_capacity_are_named(tmp_path):
    seeds(tmp_path / "fiarse", replace(EXPERIMENT, method=MethodChoice("fiarse")), 0.4)
    seeds(tmp_path / "fedavg", replace(EXPERIMENT, method=MethodChoice("fedavg")), 0.6)
    for name, share in (("fiarse", 0.07), ("fedavg", 1.0)):
        path = tmp_path / name / "seed-0" / "rounds.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "evaluation" in line:
                line["evaluation"]["shares"] = {"1.0": 1.0, "0.0625": share}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (problem,) = content(tmp_path).problems
    assert problem.unlike() == (
        "Clients hold more than their capacities with FedAvg (“share held”): no comparison at equal capacity."
    )


def test_methods_of_one_s_own_are_told_apart_in_figures(tmp_path):
    def group(name):
        record = read_record(tmp_path / "run")
        changed = replace(record.experiment.method, name=name, settings={})
        return Group(
            name.partition(":")[2] or name, (replace(record, experiment=replace(record.experiment, method=changed)),)
        )

    write_run(tmp_path / "run", EXPERIMENT)
    found = looks([group("fiarse"), group("mine:A"), group("mine:B"), group("mine:C")])
    assert len({look.colour for look in found.values()}) == 4


def test_a_ceiling_stands_beside_a_fleet_that_is_assigned(tmp_path):
    assigned = [1.0] * 50 + [0.5] * 50
    fleet = Federation(clients=100, cohort=10, rounds=4, assigned=assigned)
    write_run(tmp_path / "fedfibos", replace(EXPERIMENT, federation=fleet))
    ceiling = replace(
        EXPERIMENT, method=MethodChoice("fedavg"), federation=replace(EXPERIMENT.federation, capacities={1.0: 1.0})
    )
    write_run(tmp_path / "ceiling", ceiling)
    (problem,) = content(tmp_path).problems
    assert [group.label for group in problem.references] == ["FedAvg, all clients at 1"]
