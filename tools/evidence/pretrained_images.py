"""The part of docs/explanation/pretrained.md on a pretrained network for images."""

from __future__ import annotations

from evidence.records import CAPACITIES, FULL, LOCAL, SMALLEST, SUBMODELS, Cell, Study, last_evaluation
from evidence.tables import TITLES, table
from evidence.words import claim, percent

CELL: Cell = ("dirichlet", "non-uniform")
LINES = {"heterofl": "slice", "channels": "slice", "channels-nested": "slice", "fiarse": "mask"}
COLUMNS = {
    "full": FULL,
    **{f"1/{round(1 / float(c))}": ("global_accuracy", "submodels", c, "last") for c in CAPACITIES[1:]},
    "mean": SUBMODELS,
    "local": LOCAL,
}
AXES = {
    "stem": "_conv_stem",
    "block 2": "_blocks.1._expand_conv",
    "block 6": "_blocks.5._expand_conv",
    "block 10": "_blocks.9._expand_conv",
    "block 12": "_blocks.11._expand_conv",
    "block 14": "_blocks.13._expand_conv",
    "last convolution": "_conv_head",
}


def section(study: Study) -> list[str]:
    """Accuracies, and what the slices hold."""
    mean, full, smallest = (
        {name: _number(study, name, keys) for name in LINES} for keys in (SUBMODELS, FULL, SMALLEST)
    )
    kept = last_evaluation(study, CELL, "channels")[0]["kept_shares"]
    share = {c: {name: kept[c][f"network.{tensor}.weight"] for name, tensor in AXES.items()} for c in CAPACITIES[1:]}
    return [
        "## A pretrained network for images",
        "EfficientNet-Lite0 with ImageNet's weights and a new head, on a fifth of CIFAR-100 with its pictures enlarged "
        "to 64 pixels. 20 clients, Dirichlet 0.3, non-uniform capacities, 20 rounds of 5 clients with 10 steps each "
        "(`experiments/small/cifar100-pretrained.toml`). Capacities are shares of the parameters. Accuracy on 1,000 "
        "test pictures in %; chance is 1 %:",
        _accuracies(study),
        claim(
            mean["heterofl"] < mean["channels"] - 0.03
            and abs(mean["channels"] - mean["fiarse"]) < 0.01
            and full["channels"] < full["fiarse"]
            and max(smallest.values()) < 0.03
            and max(full.values()) < 0.15,
            "This is the start of a training: so few rounds bring the full model to 12 % at most. FedFIbOS on channels "
            "is ahead of HeteroFL's slices by 3.6 points in the mean, and level with FIARSE's masks, whose full model "
            "is better. At 1/16 no method is far from chance.",
        ),
        claim(
            mean["channels-nested"] < mean["channels"] - 0.01 and full["channels-nested"] < full["channels"] - 0.01,
            "Nested steps lowered the accuracy here too.",
        ),
        "Share of some axes that a slice of FedFIbOS on channels holds in the last round, in %:",
        table([["γ", *AXES], *([c, *(f"{100 * x:.0f}" for x in share[c].values())] for c in share)]),
        claim(
            all(share[c]["block 2"] > 0.95 and share[c]["stem"] > 0.85 for c in share)
            and share["0.0625"]["block 14"] < 0.02
            and share["0.25"]["last convolution"] < 0.1,
            "Early blocks, which have few parameters, stay nearly whole. The last ones have most of the parameters, "
            "and are cut to a few channels. So a slice of 1/16 has the early features and little to tell classes apart "
            "with.",
        ),
    ]


def _accuracies(study: Study) -> str:
    rows = [["method", "kind", "seeds", *COLUMNS, "GB up"]]
    for name, kind in LINES.items():
        values = [percent(study.spread(CELL, name, *keys)) for keys in COLUMNS.values()]
        sent = f"{_number(study, name, ('bytes', 'up')) / 1e9:.2f}"
        rows.append([TITLES[name], kind, str(len(study.cells[CELL][name])), *values, sent])
    return table(rows)


def _number(study: Study, name: str, keys: tuple[str, ...]) -> float:
    value = study.spread(CELL, name, *keys)
    assert value is not None
    return value.mean
