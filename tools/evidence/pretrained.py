"""docs/explanation/pretrained.md: channels of a pretrained encoder, and whether it is the which or the how many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evidence import pretrained_images
from evidence.compared import Comparison, comparisons
from evidence.records import CAPACITIES, FULL, LOCAL, MAIN, SMALLEST, SUBMODELS, Study, last_evaluation
from evidence.tables import NAMES, TITLES, table
from evidence.words import claim, percent, verdict
from fedfibos.common.statistics import Spread

CELL = ("dirichlet", "non-uniform")
LINES = (
    "heterofl",
    "fedrolex",
    "channels",
    "channels-nested",
    "fiarse",
    "fiarse-layer",
    "fedfibos-none",
    "saliency-nested",
    "saliency-nested-often",
    "saliency-floor-nested",
    "saliency-floor-nested-often",
)
NAMED = {"saliency-nested": "saliency, nested, rare", "saliency-nested-often": "saliency, nested"}
"""Names of the lines that are other settings here than in the study of images."""
BY_CAPACITY: Mapping[str, Sequence[str]] = {
    f"1/{round(1 / float(c))}": ("global_accuracy", "submodels", c, "last") for c in CAPACITIES[1:]
}
COLUMNS = {"full": FULL, **BY_CAPACITY, "mean": SUBMODELS, "local": LOCAL}
ENCODER = "network.bert.encoder.layer"
AXES = {
    "residual stream": "network.bert.embeddings.word_embeddings.weight",
    "heads, block 1": f"{ENCODER}.0.attention.self.query.bias",
    "heads, block 2": f"{ENCODER}.1.attention.self.query.bias",
    "inner units, block 1": f"{ENCODER}.0.intermediate.dense.bias",
    "inner units, block 2": f"{ENCODER}.1.intermediate.dense.bias",
    "pooler": "network.bert.pooler.dense.bias",
}
ABLATION = {
    "neither-nested": ("uniform", "the first"),
    "which-nested": ("uniform", "the highest scores"),
    "widths-nested": ("by score", "the first"),
    "channels-nested": ("by score", "the highest scores"),
}
SETTINGS = {
    "every-10": "selected in every tenth round (`every = 10`)",
    "every-100": "selected twice in the run (`every = 100`)",
    "memory-50": "a short memory of the estimates (`ema_rate = 0.5`)",
    "memory-99": "a long memory (`ema_rate = 0.99`)",
}
"""Lines that select less often, or keep another memory of the estimates."""


def page(study: Study, images: Study, ablation: Study) -> str:
    """The page."""
    parts = [*encoder(study), *pretrained_images.section(images), *which_or_how_many(ablation)]
    return "\n\n".join([INTRODUCTION, NAMES, *parts, LIMITS]) + "\n"


def encoder(study: Study) -> list[str]:
    """Accuracies, and what the slices hold."""
    names = [name for name in LINES if name in study.cells[CELL]]
    mean = {name: _number(study.spread(CELL, name, *SUBMODELS)) for name in names}
    full = {name: _number(study.spread(CELL, name, *FULL)) for name in names}
    smallest = {name: _number(study.spread(CELL, name, *SMALLEST)) for name in names}
    kept = last_evaluation(study, CELL, "channels")[0]["kept_shares"]
    return [
        "## A pretrained encoder",
        "AG News, 200 clients, Dirichlet 1.0, non-uniform capacities, 30 rounds "
        "(`experiments/small/ag_news-channels.toml`). The encoder is the first two blocks of all-MiniLM-L6-v2, with "
        "texts of 32 tokens. Capacities are shares of the parameters. All methods train at one learning rate. Accuracy "
        "on the test set in %; chance is 25 %:",
        _accuracies(study, names),
        claim(
            mean["heterofl"] < mean["channels"]
            and mean["fiarse"] < mean["channels"] < mean["fiarse-layer"]
            and smallest["heterofl"] < 0.26 < smallest["channels"]
            and mean["channels"] < mean["fedfibos-none"]
            and full["channels"] < min(full["heterofl"], full["fiarse"]),
            "FedFIbOS on channels is above chance at every capacity. HeteroFL's small slices are at chance. In the "
            "mean over the submodels FedFIbOS on channels is above FIARSE. It is below FIARSE with a budget per layer, "
            "and far below FedFIbOS with masks. Its full model is below those of HeteroFL and FIARSE.",
        ),
        claim(
            mean["channels-nested"] < mean["channels"] and mean["saliency-nested"] < mean["fedfibos-none"] - 0.2,
            "Nested steps lowered the mean of channels here. Masks by saliency, with nested steps and rare estimates, "
            "are far behind the default. These were the recommended settings on images.",
        ),
        claim(
            mean["saliency-floor-nested"] > mean["saliency-nested"] + 0.1
            and smallest["saliency-floor-nested"] > smallest["saliency-nested"] + 0.1
            and mean["saliency-nested-often"] > mean["saliency-nested"] + 0.1
            and mean["saliency-floor-nested"] > mean["fiarse-layer"]
            and mean["saliency-nested-often"] < mean["fedfibos-none"],
            "Two causes were found, on one seed. Small masks lost whole layers, and three estimates in 30 rounds are "
            "few. A floor for every tensor (`method.floor = 0.25`) repairs the first at no bytes, and brings them "
            "above FIARSE with a budget per layer. It is part of the preset `recommended` now. Estimates in every "
            "round (*saliency, nested*) repair the second, for nearly twice the upload.",
        ),
        claim(
            abs(mean["saliency-floor-nested-often"] - mean["fedfibos-none"]) < 0.01
            and smallest["saliency-floor-nested-often"] > smallest["fedfibos-none"] + 0.02
            and mean["saliency-floor-nested-often"] > mean["fiarse-layer"] + 0.05,
            "Both together reach the default's mean, and are above it with the smallest submodels. They are well above "
            "FIARSE with a budget per layer.",
        ),
        *at_equal_arithmetic(study),
        "## What the slices of the encoder hold",
        "Share of each axis that a slice of FedFIbOS on channels holds in the last round, in %:",
        _shares(kept),
        claim(
            kept["0.0625"][AXES["heads, block 1"]] == 1.0
            and kept["0.0625"][AXES["heads, block 2"]] > 0.9
            and kept["0.0625"][AXES["residual stream"]] < 0.1,
            "Nearly all heads stay, and most inner units go. The residual stream is cut most as the budget shrinks. "
            "The word embeddings have one weight for every word and every channel of this stream. They are three "
            "quarters of all parameters. So a budget of parameters cuts the stream to a share of about γ. A mask does "
            "not have to cut it, because it can leave out words instead.",
        ),
    ]


def at_equal_arithmetic(study: Study) -> list[str]:
    """Slices whose budget is of operations instead of parameters."""
    cell = ("dirichlet", "macs")
    rows = [["method", "seeds", *COLUMNS, "GB up"]]
    for name in ("heterofl", "channels"):
        values = [percent(study.spread(cell, name, *keys)) for keys in COLUMNS.values()]
        seeds = str(len(study.cells[cell][name]))
        rows.append([TITLES[name], seeds, *values, _gigabytes(study.spread(cell, name, "bytes", "up"))])
    mean = {name: _number(study.spread(cell, name, *SUBMODELS)) for name in ("heterofl", "channels")}
    least = _number(study.spread(cell, "channels", *SMALLEST))
    return [
        'The same with capacities as shares of the *arithmetic* of an example (`federation.budget = ["macs"]`). Word '
        "embeddings take no arithmetic, so slices may keep more of them, and send more:",
        table(rows),
        claim(
            mean["channels"] > mean["heterofl"] + 0.3 and least > 0.7,
            "Here channels chosen by Fisher information serve every capacity, at 1/16 too. HeteroFL's slices are at "
            "chance from 1/4 on. Masks cannot be compared: they take the arithmetic of the whole model.",
        ),
    ]


def which_or_how_many(study: Study) -> list[str]:
    """One of the two choices, the other, and both."""
    cell = study.cells[MAIN]
    rows = [["channels an axis", "which", "seeds", *COLUMNS]]
    for name, said in ABLATION.items():
        values = [percent(study.spread(MAIN, name, *keys)) for keys in COLUMNS.values()]
        rows.append([*said, str(len(cell[name])), *values])
    return [
        "## Which channels, or how many?",
        "FedFIbOS on channels makes two choices: how many channels each axis keeps, and which ones. Each can be made "
        "by the scores, or as HeteroFL makes it: the same share of every axis, and the first channels. The study is on "
        "CIFAR-10 with two classes for each client, non-uniform capacities, nested steps and equal budgets of "
        "parameters. It has a quarter of the rounds of [the other studies](nested.md) "
        "(`experiments/small/cifar10-channels-ablation.toml`). Accuracy on the test set in %:",
        table(rows),
        *_read_so(study),
    ]


def _read_so(study: Study) -> list[str]:
    """What the lines show."""
    pairs = {
        "both − neither": ("channels", "neither"),
        "both − which alone": ("channels", "which"),
        "which, with uniform widths − neither": ("which", "neither"),
        "how many, with the first channels − neither": ("widths", "neither"),
    }
    rows = [Comparison(said, study, f"{one}-nested", f"{other}-nested", MAIN) for said, (one, other) in pairs.items()]
    found = [row.of(SUBMODELS) for row in rows]
    mean = {name: _number(study.spread(MAIN, f"{name}-nested", *SUBMODELS)) for name in ("channels", "which", "widths")}
    neither = study.numbers(MAIN, "neither-nested", *SUBMODELS)
    worst = [
        min(value - neither[seed] for seed, value in study.numbers(MAIN, f"{name}-nested", *SUBMODELS).items())
        for name in ("which", "widths")
    ]
    return [
        claim(
            mean["channels"] > max(mean["which"], mean["widths"], *neither.values()) + 0.03
            and [verdict(difference) for difference in found] == ["not settled", "ahead", "not settled", "not settled"]
            and max(worst) < -0.05,
            "Both choices together have the highest mean, and are ahead of the choice of channels alone. Against the "
            "first channels nothing is settled. On one of the three seeds both together gain nothing, and each choice "
            "alone is far behind.",
        ),
        comparisons("", rows, judged="mean of the submodels"),
        "## How often to select, and how much evidence",
        "The same study, seed 0. The last line of the first table above selects in every round, with "
        "`ema_rate = 0.95`. The differences of other settings to it:",
        comparisons(
            "",
            [Comparison(said, study, name, "channels-nested", MAIN) for name, said in SETTINGS.items()],
            judged="mean of the submodels",
        ),
    ]


def _accuracies(study: Study, names: Sequence[str]) -> str:
    rows = [["method", "kind", "seeds", *COLUMNS, "GB up"]]
    for name in names:
        kind = "slice" if name in ("heterofl", "fedrolex", "channels", "channels-nested") else "mask"
        values = [percent(study.spread(CELL, name, *keys)) for keys in COLUMNS.values()]
        sent = _gigabytes(study.spread(CELL, name, "bytes", "up"))
        rows.append([NAMED.get(name, TITLES[name]), kind, str(len(study.cells[CELL][name])), *values, sent])
    return table(rows)


def _shares(kept: Mapping[str, Mapping[str, float]]) -> str:
    rows = [["γ", *AXES]]
    for capacity in CAPACITIES[1:]:
        rows.append([capacity, *(f"{100 * kept[capacity][tensor]:.0f}" for tensor in AXES.values())])
    return table(rows)


def _number(value: Spread | None) -> float:
    assert value is not None
    return value.mean


def _gigabytes(sent: Spread | None) -> str:
    return "–" if sent is None else f"{sent.mean / 1e9:.2f}"


INTRODUCTION = """# Channels of a pretrained encoder; which channels, or how many

In a pretrained model, channels differ in importance before any training. This page answers two questions about
[FedFIbOS on channels](devices.md). How well does it slice such a model? Does it gain by its choice of channels, or by
its choice of how many each layer keeps? Runs of a pretrained model have `method.start = "estimate"`, so that nothing is
cut before the first estimates. `python tools/findings.py` generates the page from `results/small`."""

LIMITS = """## Limits

- Lines with one seed are a first look. A second seed can move them by some points.
- The studies have few rounds. The encoder is two blocks of a small model. In each study all methods have one learning
  rate, which was tuned for none. On CIFAR-100 the accuracies are low, and differences of a point are within the noise.
- Lines with three seeds are from the records of earlier studies with the same settings.
- The training set lacks a third of its texts ([the data](evidence/cifar10.md#the-data)).

## Run it again

Add `--only seed=0` for the runs on record alone.

    fedfibos sweep experiments/small/ag_news-channels.toml --out results/small/ag_news-channels
    fedfibos sweep experiments/small/cifar100-pretrained.toml --out results/small/cifar100-pretrained
    fedfibos sweep experiments/small/cifar10-channels-ablation.toml --out results/small/cifar10-channels-ablation
    python tools/findings.py"""
