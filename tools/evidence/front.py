"""docs/explanation/findings.md: the answer in five claims, what to use when, and what is not shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evidence.compared import PLACES, Comparison, comparisons
from evidence.records import ADJUSTED, DIRICHLET, DIRICHLET_UNIFORM, LOCAL, MAIN, SUBMODELS, Cell, Study
from evidence.tables import TITLES, table
from evidence.words import claim, interval, percent, verdict
from fedfibos.common.statistics import Spread

TEXT = ("dirichlet", "uniform")


@dataclass(frozen=True)
class Studies:
    """All that the pages are written from.

    Attributes:
        images: CIFAR-10.
        dense: CIFAR-10 on new seeds.
        nested: Nested steps, saliency and channels, beside the same cells of the others.
        norm: CIFAR-10 with group normalisation.
        hundred: CIFAR-100.
        text: AG News.
        tuned: AG News, each method at a rate of its own.
        digits: Digits, by how unlike the clients are.
    """

    images: Study
    dense: Study
    nested: Study
    norm: Study
    hundred: Study
    text: Study
    tuned: Study
    digits: Study


def page(studies: Studies) -> str:
    """The page."""
    return (
        "\n\n".join(
            [
                INTRODUCTION,
                *one(studies),
                *two(studies.nested),
                *three(studies.nested, studies.hundred, studies.digits),
                *four(studies.images),
                *five(studies),
                *WHAT_TO_USE,
                NOT_SHOWN,
            ]
        )
        + "\n"
    )


def groups(studies: Studies) -> list[tuple[str, list[Comparison]]]:
    """What the figure draws."""
    images, nested = studies.images, studies.nested
    shared = "shared Fisher score"
    beyond = {
        "saliency-nested": "saliency, nested steps",
        "saliency-nested-rare-momentum": "saliency, nested, server momentum",
        "channels-nested": "channels, nested steps",
        "channels-nested-momentum": "channels, nested, server momentum",
        "fiarse-nested": "FIARSE, nested steps",
        "fiarse-nested-momentum": "FIARSE, nested, server momentum",
    }

    def lines(cell: Cell, study: Study = nested) -> list[Comparison]:
        known = study.cells.get(cell, {})
        return [Comparison(said, study, name, "fiarse", cell) for name, said in beyond.items() if name in known]

    return [
        ("CIFAR-10, two classes a client", [
            Comparison(shared, images, "fedfibos", "fiarse", MAIN),
            Comparison("Algorithm 1", images, "algorithm1", "fiarse", MAIN),
            *lines(MAIN),
        ]),
        ("CIFAR-10, Dirichlet 0.3", [
            Comparison(shared, images, "fedfibos", "fiarse", DIRICHLET),
            *lines(DIRICHLET),
        ]),
        ("The same with uniform capacities", [
            Comparison(shared, images, "fedfibos", "fiarse", DIRICHLET_UNIFORM),
            *lines(DIRICHLET_UNIFORM),
        ]),
        ("Both with group normalisation", [
            Comparison(f"{shared}, two classes", studies.norm, "fedfibos", "fiarse", MAIN),
            Comparison(f"{shared}, Dirichlet 0.3", studies.norm, "fedfibos", "fiarse", DIRICHLET),
        ]),
        ("CIFAR-100, twenty classes a client", [
            Comparison(shared, studies.hundred, "fedfibos", "fiarse", MAIN),
            *lines(MAIN, studies.hundred),
        ]),
        ("CIFAR-100, Dirichlet 0.3", [
            Comparison(shared, studies.hundred, "fedfibos", "fiarse", DIRICHLET),
            *lines(DIRICHLET, studies.hundred),
        ]),
        ("AG News, each at a rate of its own", [
            Comparison("default, FIARSE by layer", studies.tuned, "fedfibos-none", "fiarse-layer", TEXT),
            Comparison("default, FIARSE with its head", studies.tuned, "fedfibos-none", "fiarse-head", TEXT),
        ]),
    ]  # fmt: skip


def one(studies: Studies) -> list[str]:
    """The paper's claim, on images."""
    images, norm, hundred = studies.images, studies.norm, studies.hundred
    full, submodels, smallest = (images.pooled("fedfibos", "fiarse", *keys) for keys in PLACES.values())
    assert full is not None
    assert submodels is not None
    rows = [
        Comparison("CIFAR-10, mean over six cells", images, "fedfibos", "fiarse"),
        *(Comparison(f"CIFAR-10, {images.where(cell)}", images, "fedfibos", "fiarse", cell)
          for cell in images.in_order()),
        *(Comparison(f"with group normalisation, {norm.where(cell)}", norm, "fedfibos", "fiarse", cell)
          for cell in norm.in_order()),
        *(Comparison(f"CIFAR-100, {hundred.where(cell)}", hundred, "fedfibos", "fiarse", cell)
          for cell in hundred.in_order()),
    ]  # fmt: skip
    return [
        "## 1. On images, plain Fisher masks are no better than magnitude",
        claim(
            verdict(full) == "ahead" and verdict(smallest) == "behind" and abs(submodels.mean) < 0.02,
            "Here FedFIbOS keeps one Fisher score that all clients share. It is ahead of FIARSE in the full model, and "
            "behind it with the smallest submodels. Over the submodels together there is no clear difference. The "
            "paper reports a lead of many points.",
        ),
        comparisons("shared Fisher score minus FIARSE", rows, judged="mean of the submodels"),
        "*Limits.* The networks are small and train for fewer steps than the paper's. FedFIbOS sends its estimates "
        "beside its updates, so it uploads twice the bytes. [CIFAR-10](evidence/cifar10.md) and "
        "[CIFAR-100](evidence/cifar100.md) have the evidence.",
    ]


def two(study: Study) -> list[str]:
    """Channels with nested steps."""
    rows = [
        Comparison(f"{TITLES[name]} − {TITLES[other]}, {study.where(cell)}", study, name, other, cell)
        for cell in (MAIN, DIRICHLET)
        for name, other in (
            ("channels-nested", "fiarse"),
            ("channels-nested-tuned", "fiarse"),
            ("channels-nested-tuned", "fiarse-nested"),
            ("channels-nested-momentum", "fiarse"),
            ("channels-nested-momentum", "fiarse-nested-momentum"),
            ("channels-nested", "heterofl"),
        )
    ]
    ours, theirs = (study.difference(MAIN, "channels-nested", other, *SUBMODELS) for other in ("fiarse", "heterofl"))
    alone = study.difference(MAIN, "channels", "fiarse", *SUBMODELS)
    lifted = [study.difference(MAIN, "channels-nested-momentum", "fiarse", *keys) for keys in PLACES.values()]
    apart = [study.difference(DIRICHLET, "channels-nested-momentum", "fiarse", *keys) for keys in PLACES.values()]
    both = [
        study.difference(MAIN, "channels-nested-momentum", "fiarse-nested-momentum", *keys) for keys in PLACES.values()
    ]
    return [
        "## 2. Channels chosen by Fisher information, with nested steps, beat magnitude",
        claim(
            ours is not None and ours.n >= 5 and verdict(ours) == "ahead" and verdict(theirs) == "ahead",
            "A submodel of chosen channels is a smaller network. It saves memory and time as well as bytes. In a "
            "*nested step* a client trains a smaller submodel that lies inside its own.",
        ),
        _lead(study, "channels-nested-tuned", "With two classes a client and a rate tuned for nested steps, the method")
        + " It is far ahead of HeteroFL's slices.",
        claim(
            alone is not None and verdict(alone) == "behind",
            "Without nested steps the same channels are behind FIARSE over the submodels.",
        ),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.mean > 0.05 for found in lifted),
            "*Momentum at the server* adds up the updates of the rounds, at no cost for the clients. With it the lead "
            "over FIARSE is more than five points everywhere.",
        ),
        claim(
            [verdict(found) for found in apart] == ["ahead", "ahead", "not settled"],
            "Under Dirichlet splits the lead is smaller. It is clear for the full model and over the submodels.",
        ),
        claim(
            [verdict(found) for found in both] == ["ahead", "ahead", "not settled"],
            "Is it the training or the selection? FIARSE gains from the same training, and most with the smallest "
            "submodels. There the two are then alike. In the full model and over the submodels the channels stay "
            "ahead.",
        ),
        comparisons("", rows, judged="mean of the submodels"),
        "*Limits.* There is one small network. On [CIFAR-100](evidence/cifar100.md) one seed shows hardly a lead. "
        "[A pretrained encoder](pretrained.md) and [a deep "
        "network](evidence/cifar10.md#a-deep-network-with-batch-normalisation) give another order. The rate was "
        "tuned on one seed with two classes a client. Under Dirichlet splits it is too low without momentum at the "
        "server, and no lead over FIARSE is shown there. FIARSE had the better full model even where most devices "
        "could not afford the arithmetic of a mask ([At equal devices](nested.md#at-equal-devices)).",
        "[All methods of this study](nested.md) are on a page of their own. [Submodels that fit the "
        "device](devices.md) says what a device saves.",
    ]


def three(study: Study, hundred: Study, digits: Study) -> list[str]:
    """Saliency with nested steps, and what the training alone gives."""
    best = "saliency-nested-rare-momentum"
    steps, two_classes = TITLES["fiarse-nested"], ("two-classes", "non-uniform")
    rows = [
        *(
            Comparison(f"{TITLES[name]} − FIARSE, {study.where(cell)}", study, name, "fiarse", cell)
            for cell in (MAIN, DIRICHLET)
            for name in ("saliency-nested", "saliency-nested-rare", "saliency-nested-rare-momentum", "fiarse-nested")
        ),
        *(
            Comparison(f"{TITLES[name]} − {steps}, {study.where(cell)}", study, name, "fiarse-nested", cell)
            for name, cell in (("saliency-nested", MAIN), ("channels-nested", MAIN), ("saliency-nested", DIRICHLET))
        ),
        Comparison(
            f"{TITLES['saliency-nested-rare-momentum']} − {TITLES['fiarse-nested-momentum']}, {study.where(DIRICHLET)}",
            study,
            "saliency-nested-rare-momentum",
            "fiarse-nested-momentum",
            DIRICHLET,
        ),
        *(
            Comparison(f"{TITLES[best]} − {TITLES[base]}, CIFAR-100, {hundred.where(cell)}", hundred, best, base, cell)
            for cell in (MAIN, DIRICHLET)
            for base in ("fiarse", "fiarse-nested-momentum")
        ),
        *(
            Comparison(f"{TITLES['saliency-nested']} − {TITLES[base]}, digits, two classes a client", digits, *pair)
            for base in ("fiarse", "fiarse-nested")
            for pair in [("saliency-nested", base, two_classes)]
        ),
    ]
    lifted = [study.difference(DIRICHLET, best, "fiarse", *keys) for keys in PLACES.values()]
    alike = [
        study.difference(DIRICHLET, "saliency-nested-rare-momentum", "fiarse-nested-momentum", *keys)
        for keys in PLACES.values()
    ]
    classes = [
        hundred.difference(cell, best, "fiarse", *keys) for cell in (MAIN, DIRICHLET) for keys in PLACES.values()
    ]
    hundred_alike = [
        hundred.difference(cell, best, "fiarse-nested-momentum", *keys)
        for cell in (MAIN, DIRICHLET)
        for keys in PLACES.values()
    ]
    training = study.difference(MAIN, "fiarse-nested", "fiarse", *SUBMODELS)
    selection = study.difference(MAIN, "saliency-nested", "fiarse-nested", *SUBMODELS)
    return [
        "## 3. As masks, saliency with nested steps is the best that we have",
        "*Saliency* is Fisher information times the squared parameter. "
        + _lead(study, "saliency-nested", "With two classes a client, saliency with nested steps")
        + " "
        + _lead(study, "saliency-nested", "Under Dirichlet splits the method", DIRICHLET),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.mean > 0.02 for found in lifted),
            "With momentum at the server, and estimates in every tenth round only, the lead there is more than two "
            "points everywhere.",
        ),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.n >= 5 for found in alike),
            "This is not the training alone: FIARSE with the same nested steps and momentum stays behind, in the full "
            "model, over the submodels and with the smallest.",
        ),
        claim(
            all(found is not None and verdict(found) == "ahead" and found.mean > 0.03 for found in classes),
            "On CIFAR-100, at the rates of CIFAR-10, it is ahead of FIARSE under both splits that were run, by more "
            "than three points in the full model, over the submodels and with the smallest.",
        ),
        claim(
            all(found is not None and found.mean > 0.02 for found in hundred_alike)
            and not any(verdict(found) == "ahead" for found in hundred_alike[:3]),
            "FIARSE with the same training has lower means there too, on the few seeds that it was run with. With "
            "twenty classes a client these do not settle it.",
        ),
        "And with two classes a client? FIARSE with nested steps has the same training. Over the submodels, "
        f"the gain of nested steps for FIARSE is {_gain(training)}. The gain of saliency over FIARSE with nested steps "
        f"is {_gain(selection)}.",
        comparisons("", rows, judged="mean of the submodels"),
        "With *rare estimates* clients send their Fisher estimates only in every tenth round. The upload then falls "
        "from twice FIARSE's to little more than FIARSE's ([GB up](nested.md)). These runs show no loss of accuracy "
        "from it.",
        claim(
            all(_mean(digits, two_classes, keys) > _mean(study, MAIN, keys) for keys in PLACES.values()),
            "On the small [digits](evidence/digits.md) the lead is larger. It shrinks as clients become more alike.",
        ),
        "*Limits.* As in claim 2.",
    ]


def _mean(study: Study, cell: Cell, keys: Sequence[str]) -> float:
    """Saliency with nested steps minus FIARSE."""
    found = study.difference(cell, "saliency-nested", "fiarse", *keys)
    assert found is not None
    return found.mean


def _gain(difference: Spread | None) -> str:
    """A verdict on a gain, in a sentence."""
    words = {"ahead": "clear", "behind": "a loss", "equal within 1": "within one point"}
    return words.get(verdict(difference), "not settled")


def _lead(study: Study, name: str, title: str, cell: Cell = MAIN) -> str:
    """What the records allow to say of a method's lead over FIARSE in a cell."""
    found = {place: study.difference(cell, name, "fiarse", *keys) for place, keys in PLACES.items()}
    judged = {place: verdict(value) for place, value in found.items()}
    if all(said == "ahead" for said in judged.values()):
        return f"{title} is ahead of FIARSE in the full model, over the submodels and with the smallest."
    clear = [place for place, said in judged.items() if said == "ahead"]
    higher = all(value is not None and value.mean > 0 for value in found.values())
    start = f"{title} has {'the higher mean everywhere' if higher else 'not the higher mean everywhere'}"
    listed = " and ".join(f"the {place}" for place in clear)
    return f"{start}. Its interval excludes 0 for {listed}." if clear else f"{start}. No interval excludes 0 yet."


def four(study: Study) -> list[str]:
    """Per-client scores."""
    names = {"fiarse": "FIARSE", "fedfibos": "shared score", "algorithm1": "Algorithm 1"}
    rows = [["", *(f"{said}, {what}" for said in names.values() for what in ("local", "adjusted"))]]
    raised = []
    for cell in study.in_order():
        found = [study.spread(cell, name, *keys) for name in names for keys in (LOCAL, ADJUSTED)]
        rows.append([study.where(cell), *map(percent, found)])
        raised.append(found)
    return [
        "## 4. Algorithm 1's local accuracy comes from knowing the client's classes",
        claim(
            all(told.mean > plain.mean for found in raised for plain, told in zip(found[::2], found[1::2], strict=True)
                if plain is not None and told is not None)
            and all(found[3].mean > found[4].mean for found in raised if found[3] and found[4]),
            "The paper's Algorithm 1 keeps a score for each client. Its submodels know their own client's classes and "
            "forget the others. But a client knows its class frequencies anyway. Adding their logarithms to the logits "
            "of the shared model gives more local accuracy than scores for each client.",
        ),
        "The table has local accuracy in %, as mean ± standard deviation over seeds: plain, and *adjusted*, with the "
        "log frequencies added. [Notation](notation.md#accuracies) defines both.",
        table(rows),
        "*Limits.* The adjustment needs the client's class frequencies at prediction.",
    ]  # fmt: skip


def five(studies: Studies) -> list[str]:
    """Text."""
    text, tuned = studies.text, studies.tuned
    at_one = [(name, text.difference(TEXT, "fedfibos-none", name, *SUBMODELS)) for name in FIARSES]
    at_own = [(name, tuned.difference(TEXT, "fedfibos-none", name, *SUBMODELS)) for name in FIARSES]
    rows = [["default minus", "at one rate for all", "verdict", "each at its own rate", "verdict"]]
    for (name, one_rate), (_, own) in zip(at_one, at_own, strict=True):
        rows.append([TITLES[name], interval(one_rate), verdict(one_rate), interval(own), verdict(own)])
    return [
        "## 5. On text, the learning rate decides",
        claim(
            all(verdict(value) == "ahead" for _, value in at_one)
            and all(verdict(value) == "not settled" for _, value in at_own),
            "The *default* is FedFIbOS with a shared score and no magnitude prior. At one learning rate for all "
            "methods, it is well ahead of every variant of FIARSE. Once each method's learning rate is tuned, no "
            "difference from any variant is settled.",
        ),
        table(rows),
        "*Limits.* The runs use two thirds of AG News's training texts, and two blocks of a small pretrained encoder. "
        "Rates were tuned on one seed. [AG News](evidence/ag_news.md) has the evidence.",
    ]


FIARSES = ("fiarse", "fiarse-layer", "fiarse-head")

INTRODUCTION = """# Findings: does Fisher selection beat magnitude?

This page says what our runs show, and what they do not. FedFIbOS gives a client the parameters of the highest Fisher
information. FIARSE gives it those of the largest magnitude, and is the method to beat. Methods are compared at an
equal number of parameters.

The main measure is the accuracy of the submodels, as the mean over the five capacities. Then come the full model, the
smallest submodels, and the accuracy on each client's own test examples. [Notation](notation.md) explains the words. The
page is generated by `python tools/findings.py` from the records in `results/small`.

**The answer.** Single parameters chosen by Fisher information do not beat those chosen by magnitude. Whole *channels*
chosen by Fisher information do, if clients also train in *nested steps*: steps on a smaller submodel inside their own.
With two classes a client this method is ahead of FIARSE in the full model and over the submodels. With momentum at the
server it is ahead by more than five points, with the smallest submodels too. It sends the same bytes, and its submodels
are smaller networks. Under Dirichlet splits masks chosen by *saliency*, Fisher information times the squared parameter,
are ahead of FIARSE, with nested steps too. With momentum at the server they are also ahead of FIARSE trained alike, and
come within about two points of FedAvg that trains the whole model everywhere. On CIFAR-100 they are ahead of FIARSE
under both splits that were run.

![Accuracy minus FIARSE's in points, with 95 % intervals: a row for each method and data set](../findings.svg)

A point is the mean difference to FIARSE in points of accuracy, paired by seed. The line is its 95 % interval. Blue is
ahead, orange is behind. A hollow point is a single pair of runs. The tables use the same words:

| word | 95 % interval of the difference |
| --- | --- |
| **ahead**, **behind** (bold) | excludes 0 |
| equal within 1 | lies within one point on both sides |
| not settled | anything else |

With two or three pairs an interval is wide. No correction is made for the number of comparisons. Capacities are
*uniform* if each of the five has as many clients, and *non-uniform* if most clients have small ones. Both are the
paper's. A *shared* score is one for all clients."""

WHAT_TO_USE = (
    "## What to use when",
    table(
        [
            ["you are short of, or want", "use", "why"],
            [
                "memory or time on the device",
                "`fedfibos-channels` with `local.nested = 0.5`, a momentum of 0.5 at the server and a lower rate",
                "claim 2",
            ],
            [
                "bytes, while the whole model fits in memory",
                '`fedfibos` with `preset = "recommended"`, `local.nested = 0.5`, a momentum of 0.5 at the server and a '
                "lower rate",
                "claim 3",
            ],
            [
                "accuracy on each client's own classes",
                "either, with log class frequencies added to the logits",
                "claim 4",
            ],
            ["a pretrained encoder", "`fedfibos` without the magnitude prior, or FIARSE with its head held", "claim 5"],
            ["the paper's method to the letter", '`fedfibos` with `preset = "algorithm1"`', "claim 4"],
        ]
    ).replace(" ---: |", " --- |"),
)

NOT_SHOWN = """## What is not shown

- Nothing here is at the paper's scale (ResNet-18, RoBERTa). The order of methods and the reasons for it can be
  compared with the paper, but not the numbers.
- One published number was reproduced in its own setting, [HeteroFL on
  MNIST](protocols.md#a-published-number-run-again). The cheapest on CIFAR-10 is HeteroFL's smallest model alone. It
  takes 800 rounds of 10 clients with 250 steps each: two million steps of a small ResNet.
- No run was made on a GPU.
- Learning rates, and the momentum at the server, were tuned on one seed and one split of CIFAR-10. CIFAR-100 has the
  same rates.
- Nested steps, saliency and channels were run on CIFAR-10, with few seeds on CIFAR-100, on the digits, and with one
  seed on [a pretrained encoder](pretrained.md), where they do not help.
- AG News has two thirds of its training texts, and the images went through JPEG
  ([the data](evidence/cifar10.md#the-data)).

## The evidence

- [CIFAR-10](evidence/cifar10.md): the study, every cell, one setting at a time, what the submodels hold.
- [CIFAR-100](evidence/cifar100.md) and [AG News](evidence/ag_news.md).
- [Digits](evidence/digits.md): by how unlike the clients are, and one setting at a time.
- [Nested steps, saliency and channels](nested.md); [channels of a pretrained encoder](pretrained.md).
- [The theory, measured](evidence/theory.md): the surrogate, the true masking error, the paper's diagnostics.
- [Protocols of evaluation](protocols.md): one checkpoint, many numbers, and what the paper prints.

## Run it again

    fedfibos sweep experiments/small/STUDY.toml --out results/small/STUDY   # finished runs are skipped
    fedfibos report results/small/cifar10 results/small/cifar10-ceiling results/small/cifar10-readings
    python tools/findings.py

STUDY is the name of an archive in `results/small`."""
