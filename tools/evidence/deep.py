"""The part of docs/explanation/evidence/cifar10.md on a deep network with batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping

from evidence.records import CAPACITIES, DIRICHLET, FULL, LOCAL, SMALLEST, SUBMODELS, Study, last_evaluation
from evidence.tables import NAMES, TITLES, table
from evidence.words import claim, percent, verdict

LINES = {
    "fedavg": "whole",
    "heterofl": "slice",
    "channels": "slice",
    "channels-nested": "slice",
    "channels-nested-momentum": "slice",
    "which-nested-momentum": "slice",
    "fiarse": "mask",
    "fedfibos-none": "mask",
    "algorithm1": "mask",
    "fiarse-momentum": "mask",
    "fiarse-nested-momentum": "mask",
    "saliency-nested": "mask",
    "saliency-nested-rare-momentum": "mask",
    "saliency-floor-nested-rare-momentum": "mask",
    "saliency-floor-nested-often-momentum": "mask",
    "saliency-floor-rare-momentum": "mask",
    "power-floor-nested-rare-momentum": "mask",
}
COLUMNS = {
    "full": FULL,
    **{f"1/{round(1 / float(c))}": ("global_accuracy", "submodels", c, "last") for c in CAPACITIES[1:]},
    "mean": SUBMODELS,
    "local": LOCAL,
}
TENSORS = {"stem": "conv1", "stage 1": "blocks.1.conv2", "stage 2": "blocks.3.conv2", "stage 3": "blocks.5.conv2"}
LAST = {"stage 4, first": "blocks.6.conv2", "stage 4, last": "blocks.7.conv2"}


def section(study: Study) -> list[str]:
    """Accuracies, and what each method's smallest submodel holds of the stages."""
    names = [name for name in LINES if name in study.cells[DIRICHLET]]
    rows = [["method", "kind", "seeds", *COLUMNS, "GB up"]]
    for name in names:
        values = [percent(study.spread(DIRICHLET, name, *keys)).removesuffix(" (n = 1)") for keys in COLUMNS.values()]
        sent = study.spread(DIRICHLET, name, "bytes", "up")
        gigabytes = "–" if sent is None else f"{sent.mean / 1e9:.2f}"
        rows.append([TITLES[name], LINES[name], str(len(study.cells[DIRICHLET][name])), *values, gigabytes])
    tensors = {**TENSORS, **LAST}
    held = [["method", "γ", *tensors, "classifier"]]
    for name in (n for n in names if LINES[n] != "whole"):
        kept = last_evaluation(study, DIRICHLET, name)[0]["kept_shares"]
        for capacity in ("0.25", "0.0625"):
            share = [kept[capacity][f"{tensor}.weight"] for tensor in (*tensors.values(), "classifier")]
            held.append([TITLES[name], capacity, *(f"{100 * x:.1f}" for x in share)])
    behind = {name: study.difference(DIRICHLET, name, "fiarse", *SUBMODELS) for name in names}
    plain, lifted, slices = (behind[name] for name in ("channels-nested", "channels-nested-momentum", "heterofl"))
    assert plain is not None
    assert lifted is not None
    assert slices is not None
    default = behind["fedfibos-none"]
    unfloored, floored = (behind[f"saliency-{kind}nested-rare-momentum"] for kind in ("", "floor-"))
    assert unfloored is not None
    assert floored is not None
    uniform, alike, often, plainly, momentum = (
        behind[name]
        for name in (
            "which-nested-momentum",
            "fiarse-nested-momentum",
            "saliency-floor-nested-often-momentum",
            "saliency-floor-rare-momentum",
            "fiarse-momentum",
        )
    )
    assert plainly is not None
    assert momentum is not None
    assert uniform is not None
    assert alike is not None
    assert often is not None

    def one_seed(name: str) -> float:
        """The difference to FIARSE on seed 0 alone."""
        return study.numbers(DIRICHLET, name, *SUBMODELS)[0] - study.numbers(DIRICHLET, "fiarse", *SUBMODELS)[0]

    empty, none = (
        sum(share == 0.0 for share in early(study, f"saliency-{kind}nested-rare-momentum").values())
        for kind in ("", "floor-")
    )
    told, small = (
        study.numbers(DIRICHLET, "algorithm1", *keys)[0] - study.numbers(DIRICHLET, "fiarse", *keys)[0]
        for keys in (LOCAL, SMALLEST)
    )
    theirs = last_evaluation(study, DIRICHLET, "algorithm1")[0]["kept_shares"]["0.0625"]
    nothing = theirs[f"{LAST['stage 4, last']}.weight"]
    smallest = last_evaluation(study, DIRICHLET, "fiarse")[0]["kept_shares"]["0.0625"]
    last = [smallest[f"{tensor}.weight"] for tensor in LAST.values()]
    return [
        "## A deep network with batch normalisation",
        "ResNet-18 at a quarter of its width, with batch normalisation (701,466 parameters). Dirichlet 0.3, "
        "non-uniform capacities, 80 rounds of 10 clients, each with 25 steps of 20 images "
        "(`experiments/small/cifar10-resnet.toml`). HeteroFL has its scaler. Lines have one to three seeds, and "
        "the learning rates are those of the LeNet. So this shows what happens in a deep network, and not which method "
        "is best. Accuracy at the last evaluation in %:",
        table(rows),
        NAMES,
        "Share of some convolutions that a submodel holds in the last round, in %:",
        table(held),
        claim(
            default is not None and default.n >= 3 and default.mean < -0.03 and verdict(default) != "ahead",
            "The default, ranked by Fisher information alone, has the lower mean than FIARSE. So depth and batch "
            "normalisation do not explain the lead that the paper reports.",
        ),
        claim(
            empty >= 5 and none == 0 and floored.mean > unfloored.mean + 0.08 and abs(floored.mean) < 0.03,
            "Without a floor the smallest masks by saliency lose whole layers early in the run. An empty layer passes "
            "no gradient, so its weights get no score. `method.floor = 0.25` makes every tensor sure of a quarter of "
            "its share. On the one seed it lifts the mean by about nine points, near FIARSE's. The smallest submodel "
            "gains too. The preset `recommended` has this floor now. [In the LeNet](../nested.md) it "
            "changes nothing.",
        ),
        claim(
            plain.mean < -0.05 and abs(plain.mean - slices.mean) < 0.01 and plain.n == slices.n == 1,
            "On the seed that they share, FIARSE is ahead of channels with nested steps by about six points in the "
            "mean, and HeteroFL's slices are level with the chosen channels. In the small LeNet it was the other way "
            "round with two classes a client, and level under this split.",
        ),
        claim(
            plain.mean + 0.02 < lifted.mean < 0 and -0.03 < uniform.mean - one_seed("channels-nested-momentum") < 0,
            "With momentum at the server the channels come nearer to FIARSE. Uniform widths, filled with the channels "
            "of the highest scores, do not bring them nearer. So the widths that the scores choose are not the reason.",
        ),
        claim(
            alike.mean > floored.mean + 0.02,
            "FIARSE gains from nested steps and momentum at the server too. Saliency with the same training is behind "
            "it on that seed.",
        ),
        claim(
            plainly.mean > floored.mean + 0.02
            and momentum.mean > alike.mean + 0.01
            and momentum.mean == max(found.mean for name, found in behind.items() if found and LINES[name] != "whole")
            and 0.005 < momentum.mean - plainly.mean < 0.02,
            "Nested steps cost both of them here. The runs are short, and half of the steps go to smaller submodels. "
            "Without nested steps, with momentum at the server, FIARSE has the highest mean of all submodels on that "
            "seed, near FedAvg's whole model. Saliency with a floor and rare estimates is about a point behind it.",
        ),
        claim(
            often.mean < floored.mean - 0.03,
            "More estimates do not help the ranking: with estimates in every round instead of every tenth, the mean is "
            "five points lower on that seed.",
        ),
        claim(
            all(0.005 < share < 0.02 for share in last),
            "Magnitude leaves the last stage little at 1/16, but not nothing: one weight in a hundred. So the full "
            "lack of weights that it has in a fresh ResNet-18 of full width does not show here.",
        ),
        claim(
            nothing < 0.001 and told > 0.05 and small < -0.05,
            "Algorithm 1's smallest submodels hold next to nothing of the last convolution. On the one seed it has the "
            "best local accuracy and is behind FIARSE with the smallest, as in the LeNet.",
        ),
    ]


def early(study: Study, name: str) -> Mapping[str, float]:
    """What the smallest submodel holds of each tensor at the first evaluation, after a quarter of the rounds."""
    first = study.cells[DIRICHLET][name][0].points[0].evaluation
    shares: Mapping[str, float] = first["kept_shares"]["0.0625"]
    return shares
