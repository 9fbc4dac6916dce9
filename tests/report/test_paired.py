"""Methods against one of them: what an interval settles, in literal numbers and in words."""

from dataclasses import replace

import pytest

from fedfibos.common.statistics import spread
from fedfibos.config.choices import MethodChoice, ModelChoice
from fedfibos.config.experiment import Experiment
from fedfibos.config.federation import Federation
from fedfibos.config.sections import Data
from fedfibos.report.forest import forest
from fedfibos.report.groups import Group, Problem
from fedfibos.report.looks import COLOURS, looks
from fedfibos.report.paired import Verdict, answer, differences, sentence, signed, verdict
from fedfibos.report.records import Record

FLEET = Federation(clients=4, cohort=2, rounds=1, capacities={1.0: 0.5, 0.25: 0.5})
EXPERIMENT = Experiment(
    data=Data("digits"), model=ModelChoice("mlp"), federation=FLEET, method=MethodChoice("fedfibos")
)


def group(method, *accuracies, preset=None, label=None):
    """Runs of seeds 0, 1, ... with (submodels, full, γ = .25, local) each."""
    records = []
    for seed, (submodels, whole, quarter, local) in enumerate(accuracies):
        final = {
            "global_accuracy": {
                "full": {"last": whole, "best": whole},
                "submodels": {"0.25": {"last": quarter}, "mean": {"last": submodels, "best": 0.9}},
            },
            "local_accuracy": {"mean": {"last": local}},
        }
        experiment = replace(EXPERIMENT, method=MethodChoice(method, preset), seed=seed)
        records.append(Record(f"{method}/seed-{seed}", experiment, {}, (), final))
    return Group(label or method, tuple(records))


def problem(*groups):
    return Problem("Digits", "mlp", groups)


BASE = group("fedfibos", *[(0.50, 0.60, 0.40, 0.70)] * 3, label="FedFIbOS")
FIARSE = group(
    "fiarse", (0.51, 0.580, 0.401, 0.6), (0.512, 0.581, 0.402, 0.7), (0.514, 0.582, 0.400, 0.9), label="FIARSE"
)


def test_an_interval_is_that_of_student():
    half = 4.302653 * 0.01 / 3**0.5  # t of two degrees of freedom
    assert spread([0.01, 0.02, 0.03]).interval() == (pytest.approx(0.02 - half), pytest.approx(0.02 + half))
    half = 12.706205 * 0.01  # of one; sd / √2 is half the distance
    assert spread([0.0, 0.02]).interval() == (pytest.approx(0.01 - half), pytest.approx(0.01 + half))
    half = 2.919986 * 0.01 / 3**0.5
    assert spread([0.01, 0.02, 0.03]).interval(0.9) == (pytest.approx(0.02 - half), pytest.approx(0.02 + half))
    assert spread([0.5]).interval() is None


@pytest.mark.parametrize(
    ("gaps", "settled"),
    [
        ([0.010, 0.012, 0.014], Verdict.ahead),  # +0.70 to +1.70
        ([-0.010, -0.012, -0.014], Verdict.behind),
        ([0.010, 0.012, 0.021], Verdict.open),  # −0.02 to +2.89
        ([0.010, 0.012, 0.020], Verdict.ahead),  # +0.09 to +2.71
        ([-0.001, 0.000, 0.001], Verdict.equal),
        ([0.004, 0.005, 0.006], Verdict.equal),  # +0.25 to +0.75: leaves 0 out, and does not matter
        ([0.007, 0.008, 0.009], Verdict.ahead),  # +0.55 to +1.05: it may matter
        ([-0.007, -0.008, -0.009], Verdict.behind),
        ([-0.02, 0.00, 0.02], Verdict.open),
        ([0.03, 0.03], Verdict.ahead),  # no spread at all
        ([0.0, 0.0], Verdict.equal),
        ([0.3], Verdict.open),  # one seed
    ],
)
def test_what_an_interval_settles(gaps, settled):
    assert verdict(spread(gaps)) is settled


def test_a_method_in_words():
    found = answer(problem(FIARSE, BASE))
    assert found.reference is BASE
    assert found.measures == ("submodels", "full model", "γ = 0.25", "local")
    (line,) = found.lines
    assert sentence(line) == (
        "FIARSE: ahead over the submodels (+1.2 points, +0.7 to +1.7; 3 seeds); behind in the full model; "
        "equal within 1 point at γ = 0.25; not settled in local accuracy."
    )
    (turned,) = answer(problem(FIARSE, BASE), "fiarse").lines
    assert sentence(turned).startswith("FedFIbOS: behind over the submodels (−1.2 points, −1.7 to −0.7; 3 seeds); ")


def test_one_seed_and_one_verdict_for_all_in_words():
    found = answer(problem(group("fiarse", (0.4, 0.4, 0.4, 0.4)), BASE))
    assert sentence(found.lines[0]) == (
        "fiarse: not settled over the submodels (−10.0 points; 1 seed); in every other measure too."
    )
    assert answer(problem(BASE)) is None
    assert answer(problem(FIARSE, BASE), "heterofl") is None


def test_the_summary_that_is_asked_for_is_compared():
    found = answer(problem(FIARSE, BASE), summary="best")
    assert found.measures == ("submodels", "full model")  # the others have no best here
    assert found.lines[0].differences["submodels"].mean == 0.0


def test_the_table_marks_what_is_settled():
    table = differences(answer(problem(FIARSE, BASE)), "x", "last evaluation")
    assert table.title == "Differences from FedFIbOS, seed by seed, last evaluation: Digits"
    assert [(cell.text, cell.bold) for cell in table.rows[0]] == [
        ("FIARSE", False),
        ("3", False),
        ("+1.2 [+0.7, +1.7]", True),
        ("−1.9 [−2.1, −1.7]", True),
        ("= +0.1 [−0.1, +0.3]", False),
        ("+3.3 [−34.6, +41.3]", False),
    ]


@pytest.mark.parametrize(("value", "text"), [(0.0123, "+1.2"), (-0.0123, "−1.2"), (0.0004, "0.0"), (-0.0004, "0.0")])
def test_a_difference_has_its_sign(value, text):
    assert signed(value) == text


def test_the_forest_says_what_it_shows_and_its_text_is_text():
    found = answer(problem(FIARSE, BASE))
    figure = forest(found, looks([FIARSE, BASE]), "x")
    assert figure.slug == "forest-x"
    for svg in (figure.wide.decode(), figure.narrow.decode()):
        for text in ("FIARSE", "submodels", "full model", "γ = 0.25", "points ahead of FedFIbOS"):
            assert f">{text}</text>" in svg
        assert "Digits" not in svg  # no title in the drawing
        assert COLOURS["fiarse"] in svg
    assert 'width="504pt"' in figure.wide.decode()  # 7 inches
    assert 'width="244.8pt"' in figure.narrow.decode()  # 3.4
    files = figure.files()
    assert b"/Type0" in files[".pdf"]  # a TrueType font, not outlines
    assert b"/Type3" not in files[".pdf"]


def test_the_forest_says_when_its_axis_is_logarithmic():
    near, far = group("fiarse", *[(0.51, 0.6, 0.4, 0.7)] * 3), group("heterofl", *[(0.2, 0.3, 0.1, 0.4)] * 3)
    shown = looks([near, far, BASE])
    assert "logarithmic" not in forest(answer(problem(near, BASE)), shown, "x").title
    assert forest(answer(problem(near, far, BASE)), shown, "x").title.endswith(
        "The axis is logarithmic beyond 2 points, with lines at 3, 10 and 30."
    )


def test_every_method_and_variant_has_a_colour_of_its_own():
    names = ("fedavg", "heterofl", "fedrolex", "fedbrb", "fiarse", "fedfibos", "fedfibos-channels")
    groups = [group(name, (0.5, 0.5, 0.5, 0.5), label=name) for name in names]
    letter = group("fedfibos", (0.5, 0.5, 0.5, 0.5), preset="algorithm1", label="FedFIbOS “algorithm1”")
    nested = [group(name, (0.5, 0.5, 0.5, 0.5), label=f"{name}, nested = 0.5") for name in names]
    found = looks([*nested, letter, *groups])
    assert {name: found[name].colour for name in names} == {name: COLOURS[name] for name in names}
    assert found["FedFIbOS “algorithm1”"].colour == "#7a5cc9"
    assert len({look.colour for look in found.values()}) == 15
    assert looks([*groups, letter, *nested]).keys() == found.keys()
