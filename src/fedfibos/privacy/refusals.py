"""What cannot be private: said in one line, before anything is trained."""

from __future__ import annotations

from fedfibos.common.norms import keeps_statistics
from fedfibos.method import Method, Observes
from fedfibos.model import Model
from fedfibos.privacy.settings import Privacy
from fedfibos.server.settings import Server
from fedfibos.training import LocalTraining


def check_private(settings: Privacy, method: Method, model: Model, local: LocalTraining, server: Server) -> None:
    """Raise ValueError where something of a run would show clients' data beside the noisy sums.

    Args:
        settings: Of privacy.
        method: The method.
        model: Architecture and layout.
        local: How clients train.
        server: How uploads are merged.
    """
    if method.personal:
        raise ValueError(
            "privacy needs a method whose submodels are the same for all clients of a capacity, got one that selects "
            "them by a client's own data, which would show: sharing = 'shared' does not"
        )
    if getattr(method, "holders", None) == "moved":
        raise ValueError(
            "privacy divides by who was given a coordinate, got method.holders = 'moved', which counts by the clients' "
            "updates: set method.holders = 'mask'"
        )
    if local.scaffold:
        raise ValueError(
            "privacy covers no control variates, which are the clients' own gradients, got local.scaffold = true: "
            "local.proximal needs none"
        )
    if server.merge != "mean":
        raise ValueError(
            f"privacy bounds what a client moves in a sum, and not in a {server.merge}: set server.merge = 'mean'"
        )
    if keeps_statistics(model.module):
        raise ValueError(
            "privacy covers no statistics of normalisation, which are recalibrated on clients' examples, got a model "
            "with batch normalisation: set model.norm = 'group' or 'none'"
        )
    if isinstance(method, Observes) and settings.statistic_clip is None and _observes(method, model):
        raise ValueError(
            "this method's clients send a statistic of their data beside the update: set privacy.statistic_clip and "
            "privacy.statistic_noise"
        )


def unused(settings: Privacy, method: Method, model: Model) -> list[str]:
    """What to say of settings that change nothing."""
    if settings.statistic_clip is None or (isinstance(method, Observes) and _observes(method, model)):
        return []
    return [
        "privacy.statistic_clip and privacy.statistic_noise have no effect: this method's clients send no statistic"
    ]


def _observes(method: Observes, model: Model) -> bool:
    """Whether any round's uploads have a statistic: the first one's have, where any have."""
    return method.observes(model, 0) is not None
