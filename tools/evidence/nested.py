"""docs/explanation/nested.md: nested steps, saliency and channels, beside the same cells of the earlier studies."""

from __future__ import annotations

from evidence import equal_devices
from evidence.compared import PLACES, Comparison, between, comparisons, side_by_side
from evidence.records import CAPACITIES, DIRICHLET, FULL, LOCAL, MAIN, SUBMODELS, Cell, Study, entry
from evidence.tables import NAMES, TITLES, rates, table
from evidence.words import claim, percent, verdict
from fedfibos.common.statistics import spread

LINES = (
    "heterofl",
    "heterofl-nested",
    "heterofl-nested-slower",
    "fiarse",
    "fiarse-nested",
    "fedfibos-none",
    "fedfibos-nested",
    "saliency",
    "saliency-nested",
    "saliency-nested-rare",
    "channels",
    "channels-nested",
    "channels-nested-tuned",
    "fiarse-nested-momentum",
    "saliency-nested-rare-momentum",
    "saliency-floor-nested-rare-momentum",
    "channels-nested-momentum",
    "channels-sandwich",
    "channels-distilled",
)

BASE = "fiarse"
CLOSEST = (
    "heterofl",
    "fiarse",
    "fiarse-nested-momentum",
    "saliency-nested",
    "saliency-nested-rare-momentum",
    "channels-nested-momentum",
)
"""Methods whose distance to the ceiling is shown."""
BY_CAPACITY = {f"1/{round(1 / float(c))}": ("global_accuracy", "submodels", c, "last") for c in CAPACITIES[1:]}
COLUMNS = {"full": FULL, **BY_CAPACITY, "mean": SUBMODELS, "local": LOCAL}


def page(study: Study, devices: Study) -> str:
    """The page."""
    parts = [INTRODUCTION, NAMES]
    for cell in study.in_order():
        names = [name for name in LINES if name in study.cells[cell]]
        if not any("-nested" in name for name in names):
            continue
        rows = [Comparison(TITLES[name], study, name, BASE, cell) for name in names if name != BASE]
        parts += [
            f"## {study.data}, {study.where(cell)} capacities",
            "Accuracy on the test set at the last evaluation, in %, mean ± standard deviation over seeds:",
            _accuracies(study, cell, names),
            "The difference to FIARSE in points, paired by seed, with its 95 % interval:",
            comparisons("minus FIARSE", rows, PLACES, judged="mean of the submodels"),
            *(what_nested_steps_give(study) if cell == MAIN else []),
        ]
    parts += [*momentum_at_the_server(study), *average_over_rounds(study), *to_the_ceiling(study)]
    parts += ["## Rates", TUNED, rates(study)]
    return "\n\n".join([*parts, *equal_devices.section(devices), LIMITS]) + "\n"


def what_nested_steps_give(study: Study) -> list[str]:
    """Channels with and without them, with two classes a client."""
    alone, nested = (study.difference(MAIN, name, BASE, *SUBMODELS) for name in ("channels", "channels-nested"))
    unstable = study.numbers(MAIN, "heterofl-nested", *SUBMODELS)
    slices = "heterofl-nested-slower"
    rows = between(study, MAIN, (slices, "heterofl"), ("channels-nested", slices))
    lifted = study.difference(MAIN, "heterofl-nested-slower", "heterofl", *SUBMODELS)
    ahead = study.difference(MAIN, "channels-nested", "heterofl-nested-slower", *SUBMODELS)
    return [
        claim(
            alone is not None and verdict(alone) == "behind" and verdict(nested) == "ahead",
            "Channels need nested steps. Without them they are behind FIARSE over the submodels, most of all with the "
            "smallest. With them they are ahead.",
        ),
        claim(
            min(unstable.values()) < 0.05 and len(unstable) == 2,
            "HeteroFL with nested steps is unstable at its rate. In one of its two runs nearly all updates were not "
            "finite, and in the other the full model is the worst.",
        ),
        claim(
            lifted is not None and ahead is not None and verdict(lifted) == "ahead" and lifted.mean > ahead.mean > 0,
            "At half that rate nested steps lift HeteroFL's slices too, and give most of the lead of channels with "
            "nested steps over plain HeteroFL. The choice of channels gives the rest, which three pairs do not settle.",
        ),
        side_by_side(rows),
    ]


def momentum_at_the_server(study: Study) -> list[str]:
    """What it gives channels and FIARSE, and what is left between them."""
    ours, theirs = "channels-nested-momentum", "fiarse-nested-momentum"
    masks, floored = "saliency-nested-rare-momentum", "saliency-floor-nested-rare-momentum"
    pairs = (
        (ours, "channels-nested-tuned"),
        (theirs, "fiarse-nested"),
        (ours, "fiarse"),
        (ours, "fiarse-nested"),
        (ours, theirs),
        (masks, "saliency-nested-rare"),
        (masks, "fiarse"),
        (masks, theirs),
    )
    rows = [row for cell in study.in_order() for row in between(study, cell, *pairs)]
    ahead = [study.difference(MAIN, ours, "fiarse", *keys) for keys in PLACES.values()]
    return [
        "## Momentum at the server",
        "The server keeps a running sum of the updates (`server.momentum = 0.5`), and clients train at a lower rate. "
        "It costs no bytes and no work of the clients.",
        claim(
            all(
                found is not None and found.n >= 5 and verdict(found) == "ahead" and found.mean >= 0.05
                for found in ahead
            ),
            "With two classes a client, channels with nested steps and this momentum are ahead of FIARSE by more than "
            "five points in the full model, over the submodels and with the smallest.",
        ),
        side_by_side(rows),
        claim(
            all(
                study.numbers(cell, floored, *keys)[0] == study.numbers(cell, masks, *keys)[0]
                for cell in (MAIN, DIRICHLET)
                for keys in PLACES.values()
            ),
            "A *floor* makes every tensor sure of a quarter of its share (`method.floor = 0.25`). In this network it "
            "changes nothing: no layer falls below it. It is part of the preset `recommended` for the sake of [deep "
            "networks](evidence/cifar10.md#a-deep-network-with-batch-normalisation).",
        ),
    ]


def average_over_rounds(study: Study) -> list[str]:
    """A constant rate, with and without the average."""
    rows = [["method, nested steps, rate .025", "schedule", "served", *PLACES]]
    gained, cosine = [], []
    for name, title in (("channels-nested", "channels"), ("fiarse-nested", "FIARSE")):
        found = []
        for line, schedule, served in (
            (name, "cosine", "the parameters"),
            (f"{name}-constant", "constant", "the parameters"),
            (f"{name}-constant-averaged", "constant", "their average"),
        ):
            record = study.tuning[line][0.025]
            assert record is not None
            accuracies = [entry(record.final, keys) or 0.0 for keys in PLACES.values()]
            rows.append([title, schedule, served, *(f"{100 * a:.1f}" for a in accuracies)])
            found.append(accuracies)
        gained += [averaged - plain for plain, averaged in zip(*found[1:], strict=True)]
        cosine.append(found[1][1] < found[0][1] < found[2][1])
    return [
        "## An average over rounds",
        "With `server.average = 0.98` the server serves a moving average of the global parameters. Training is the "
        "same with and without. Accuracy on held-out training examples in %, two classes a client, seed 0:",
        table(rows),
        claim(
            min(gained) > 0.05 and all(cosine),
            "With a constant rate the last round's parameters are far below their average. A rate that falls to 0 has "
            "part of the same effect, at the end of the run alone. In the mean of the submodels the average is ahead "
            "of it on this seed.",
        ),
    ]


def to_the_ceiling(study: Study) -> list[str]:
    """By how much submodels are below FedAvg with the whole model, capacity by capacity."""
    columns = {"full": FULL, **BY_CAPACITY}
    rows = [["split", "method", *columns]]
    tops, masks = [], [1.0]
    for cell in (MAIN, DIRICHLET):
        top = spread(entry(record.final, FULL) for record in study.ceilings[cell[0]])
        assert top is not None
        tops.append(f"{percent(top)} % with {study.splits[cell[0]]} ({top.n} seeds)")
        for name in CLOSEST:
            found = [study.spread(cell, name, *keys) for keys in columns.values()]
            if all(value is not None for value in found):
                gaps = [top.mean - value.mean for value in found if value is not None]
                rows.append([study.splits[cell[0]], TITLES[name], *(f"{100 * gap:.1f}" for gap in gaps)])
                masks = gaps if (cell, name) == (DIRICHLET, "saliency-nested-rare-momentum") else masks
    return [
        "## What remains to the ceiling",
        f"FedAvg that trains the whole model on every client, without momentum at the server, reaches {tops[0]} and "
        f"{tops[1]}. Points that methods are below it, means over seeds:",
        table(rows),
        claim(
            max(masks) < 0.025,
            "Under Dirichlet splits saliency masks with momentum at the server are within about two points of it at "
            "every capacity.",
        ),
    ]


def _accuracies(study: Study, cell: Cell, names: list[str]) -> str:
    rows = [["method", "seeds", *COLUMNS, "GB up"]]
    for name in names:
        sent = study.spread(cell, name, "bytes", "up")
        values = [percent(study.spread(cell, name, *keys)) for keys in COLUMNS.values()]
        gigabytes = "–" if sent is None else f"{sent.mean / 1e9:.2f}"
        rows.append([TITLES[name], str(len(study.cells[cell][name])), *values, gigabytes])
    return table(rows)


INTRODUCTION = """# Nested steps, saliency and channels

This page measures seven ideas that go beyond the paper. It is generated by `python tools/findings.py` from
`results/small`. [Train small submodels well](../how-to/nested_steps.md) says how to use the ideas.

- **Nested steps** (`local.nested = 0.5`): half of a client's steps train a smaller submodel that lies inside its own.
  The number of steps stays the same.
- **Saliency** (`method.criterion = "saliency"`): parameters are ranked by f̄x², the second-order loss of removing one,
  instead of by f̄, the Fisher average.
- **Rare estimates** (`method.estimate_every = 10`): clients send their estimate f̂ only in every tenth round. The
  upload is then little larger than that of a method without estimates (*GB up* in the tables).
- **Channels** (`method.name = "fedfibos-channels"`): Fisher information chooses whole channels, so a submodel is a
  smaller network.
- **Momentum at the server** (`server.optimizer = "momentum"`, `server.momentum = 0.5`): the server adds up the updates
  of the rounds, and clients train at a lower rate.
- **An average over rounds** (`server.average = 0.98`): the server serves a moving average of the global parameters.
- **Sandwich** (`local.nested_rule = "sandwich"`): every step trains all that a client holds and its smallest member,
  in two passes. With *distillation* the smallest member also learns from the outputs of the larger one.

The tables also have other methods with nested steps, where these were run. They show what the training gives without
the selection."""

TUNED = """Accuracy on held-out training examples, mean over the submodels, in %, by learning rate. Two classes a client
and non-uniform capacities, all 800 rounds, seed 0 (`experiments/small/cifar10-nested-tuning.toml`). The best of each
method is bold:"""

LIMITS = """## Limits

- Rates were tuned on one seed. The lines without a rate in their name have the rates of the study without nested
  steps: .05 for FedFIbOS and HeteroFL, .025 for FIARSE.
- Methods have equal numbers of parameters, but not equal arithmetic. A slice (channels) costs less arithmetic than a
  mask of the same capacity. In a nested step it trains even smaller tensors.
- One data set, and one small network without normalisation. [CIFAR-100](evidence/cifar100.md) has the best of these
  methods with few seeds. [A pretrained encoder](pretrained.md) and [a deep
  network](evidence/cifar10.md#a-deep-network-with-batch-normalisation) give another order.
- [Findings](findings.md) says what “ahead”, “equal within 1” and “not settled” mean.
- FIARSE, HeteroFL and FedFIbOS without nested steps are from the records of earlier studies at the same settings.

## Run it again

    fedfibos sweep experiments/small/cifar10-nested.toml --out results/small/cifar10-nested
    python tools/findings.py"""
