"""What privacy cannot cover is refused in one line, before anything is trained."""

import pytest

from fedfibos.methods.channels import FedFIbOSChannels
from fedfibos.methods.fedavg import FedAvg
from fedfibos.methods.fedfibos import FedFIbOS
from fedfibos.methods.fiarse import FIARSE
from fedfibos.privacy.refusals import check_private, unused
from fedfibos.privacy.settings import Privacy
from fedfibos.server.settings import PLAIN, Server
from fedfibos.training import LocalTraining
from small_models import small_model

LOCAL = LocalTraining(steps=1)
BOTH, UPDATES = Privacy(1.0, 1.0, 1.0, 1.0), Privacy(1.0, 1.0)


@pytest.mark.parametrize(
    ("method", "settings", "local", "server", "message"),
    [
        (FedFIbOS(sharing="client"), BOTH, LOCAL, PLAIN, "a client's own data, which would show: sharing = 'shared'"),
        (FedFIbOS(sharing="blend"), BOTH, LOCAL, PLAIN, "sharing = 'shared' does not"),
        (FedFIbOSChannels(sharing="client"), BOTH, LOCAL, PLAIN, "sharing = 'shared' does not"),
        (FIARSE(holders="moved"), UPDATES, LOCAL, PLAIN, "set method.holders = 'mask'"),
        (FedAvg(), UPDATES, LocalTraining(steps=1, scaffold=True), PLAIN, "local.proximal needs none"),
        (FedAvg(), UPDATES, LOCAL, Server(merge="median"), "and not in a median: set server.merge = 'mean'"),
        (FedFIbOS(), UPDATES, LOCAL, PLAIN, "set privacy.statistic_clip and privacy.statistic_noise"),
        (FedFIbOSChannels(), UPDATES, LOCAL, PLAIN, "set privacy.statistic_clip and privacy.statistic_noise"),
    ],
)
def test_refused(method, settings, local, server, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")) as error:
        check_private(settings, method, small_model(), local, server)
    assert "\n" not in str(error.value)


def test_batch_normalisation_is_refused():
    with pytest.raises(ValueError, match=r"set model\.norm = 'group' or 'none'"):
        check_private(UPDATES, FedAvg(), small_model("cnn-batch"), LOCAL, PLAIN)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (FedAvg(), UPDATES),
        (FedFIbOS(), BOTH),
        (FedFIbOS(criterion="magnitude"), UPDATES),
        (FedFIbOSChannels(), BOTH),
        (FIARSE(), UPDATES),
    ],
)
def test_taken(method, settings):
    check_private(settings, method, small_model(), LOCAL, Server(optimizer="adam"))
    assert unused(settings, method, small_model()) == []


def test_bounds_of_a_statistic_that_no_client_sends_are_said_to_have_no_effect():
    (line,) = unused(BOTH, FedAvg(), small_model())
    assert line.startswith("privacy.statistic_clip and privacy.statistic_noise have no effect")
