"""The part of docs/explanation/nested.md on devices with limits of their own."""

from __future__ import annotations

from evidence.records import FULL, SUBMODELS, Study
from evidence.tables import TITLES, table
from evidence.words import claim, percent

DEVICES = ("high", "devices")
EVERYONE = "channels-nested-momentum-everyone"


def section(study: Study) -> list[str]:
    """Who can train at all, and how good the full model becomes."""
    rows = [["method", "seeds", "clients that can train", "in each round", "full model", "mean of the submodels"]]
    for name, records in study.cells[DEVICES].items():
        of = records[0].final["devices"]
        able = sum(device["clients"] for device in of.values() if "left_out" not in device)
        reached = (percent(study.spread(DEVICES, name, *keys)) for keys in (FULL, SUBMODELS))
        clients = f"{able} of {sum(device['clients'] for device in of.values())}"
        a_round = str(min(able, records[0].experiment.federation.cohort))
        rows.append([TITLES[name], str(len(records)), clients, a_round, *reached])
    fiarse, channels, momentum = (
        _mean(study, name) for name in ("fiarse", "channels-nested", "channels-nested-momentum")
    )
    lifted = study.difference(DEVICES, EVERYONE, "channels-nested-momentum", *FULL)
    against = study.difference(DEVICES, EVERYONE, "fiarse", *FULL)
    assert lifted is not None
    assert against is not None
    return [
        "## At equal devices",
        "Here a device has a limit of arithmetic in a round (`experiments/small/cifar10-devices.toml`). A mask needs "
        "the arithmetic of the whole model. One client in ten can afford it. The others can train only slices.",
        table(rows),
        claim(
            fiarse > channels + 0.05,
            "With ten clients in each round, FIARSE has the better full model, by several points. Its ten able clients "
            "take part in every round, and each trains the whole model. But nine devices in ten take no part, and get "
            "no model that they can train. Channels serve every device.",
        ),
        claim(abs(momentum - channels) < 0.02, "Momentum at the server does not change this."),
        claim(
            lifted.mean > 0.05 and abs(against.mean) < 0.03,
            "But this is not equal work: with channels a device takes part in one round of ten, and FIARSE's able "
            "ones take part in all. So in one line every device takes part in every round. Then the full model of "
            "channels gains many points and comes near FIARSE's. The server merges ten times as many updates.",
        ),
    ]


def _mean(study: Study, name: str) -> float:
    found = study.spread(DEVICES, name, *FULL)
    assert found is not None
    return found.mean
