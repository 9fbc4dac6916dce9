"""docs/explanation/pretrained.md: channels of a pretrained encoder, and whether it is the which or the how many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evidence.records import CAPACITIES, FULL, LOCAL, MAIN, SMALLEST, SUBMODELS, Study, last_evaluation
from evidence.tables import TITLES, table
from evidence.words import claim, percent
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
)
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
    "which-nested": ("uniform", "the highest scores"),
    "widths-nested": ("by score", "the first"),
    "channels-nested": ("by score", "the highest scores"),
}


def page(study: Study, ablation: Study) -> str:
    """The page."""
    return "\n\n".join([INTRODUCTION, *encoder(study), *which_or_how_many(ablation), LIMITS]) + "\n"


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
            "Slices chosen by estimates are all above chance, where HeteroFL's small slices are at chance. Their mean "
            "is also above that of masks by magnitude. It is below that of masks with a budget per layer, and 20 "
            "points below that of masks by Fisher information. Their full model is below those of HeteroFL and FIARSE.",
        ),
        claim(
            mean["channels-nested"] < mean["channels"] and mean["saliency-nested"] < mean["fedfibos-none"] - 0.2,
            "Nested steps lowered the mean here. So did saliency with nested steps and rare estimates, the recommended "
            "setting for masks: it is far behind the default. In 30 rounds it has three estimates. We did not separate "
            "the causes.",
        ),
        "## What the slices of the encoder hold",
        "Share of each axis that a slice of FedFIbOS on channels holds in the last round, in %:",
        _shares(kept),
        claim(
            kept["0.0625"][AXES["heads, block 1"]] == 1.0
            and kept["0.0625"][AXES["heads, block 2"]] > 0.9
            and kept["0.0625"][AXES["residual stream"]] < 0.1,
            "Heads stay nearly all, and most inner units go. What decides is the residual stream. The word embeddings "
            "have a weight for every word and channel of it, three quarters of all parameters. So a budget of "
            "parameters cuts the stream to about the capacity itself. A mask need not: it leaves out words.",
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
        "FedFIbOS on channels decides how many channels each axis keeps, and which. Here two lines decide only one of "
        "the two. CIFAR-10, two classes a client, non-uniform capacities, nested steps, equal parameters, and a "
        "quarter of the rounds of [the other studies](nested.md) "
        "(`experiments/small/cifar10-channels-ablation.toml`). Accuracy on the test set in %:",
        table(rows),
        *_read_so(study),
    ]


def _read_so(study: Study) -> list[str]:
    """What the two lines show."""
    both, which, widths = (
        _number(study.spread(MAIN, f"{name}-nested", *SUBMODELS)) for name in ("channels", "which", "widths")
    )
    return [
        claim(
            widths < which - 0.02 and which < both - 0.02,
            "Both count. The channels of the highest scores in uniform widths are ahead of the first channels in "
            "widths by score. The two choices together are ahead of each alone. One seed.",
        )
    ]


def _accuracies(study: Study, names: Sequence[str]) -> str:
    rows = [["method", "kind", "seeds", *COLUMNS, "GB up"]]
    for name in names:
        kind = "slice" if name in ("heterofl", "fedrolex", "channels", "channels-nested") else "mask"
        values = [percent(study.spread(CELL, name, *keys)) for keys in COLUMNS.values()]
        sent = _gigabytes(study.spread(CELL, name, "bytes", "up"))
        rows.append([TITLES[name], kind, str(len(study.cells[CELL][name])), *values, sent])
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

In a pretrained model channels differ in importance before any training. This page has what
[FedFIbOS on channels](devices.md) made of one, and whether it gains by which channels it takes or by how many. A run of
a pretrained model begins with `method.start = "estimate"`: nothing is cut before the
first estimates. The page is generated by `python tools/findings.py` from `results/small`."""

LIMITS = """## Limits

- Lines with one seed are a first look. A second seed can move them by some points.
- Few rounds, two blocks of a small encoder, one learning rate for all methods, tuned for none.
- The other lines are from the records of earlier studies at the same settings.
- The training set lacks a third of its texts ([the data](evidence/cifar10.md#the-data)).

## Run it again

    fedfibos sweep experiments/small/ag_news-channels.toml --out results/small/ag_news-channels
    fedfibos sweep experiments/small/cifar10-channels-ablation.toml --out results/small/cifar10-channels-ablation
    python tools/findings.py"""
