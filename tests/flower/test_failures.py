"""What a message that came back with an error says; ``test_flower_faults.py`` has such messages on their way."""

from __future__ import annotations

import pytest
from flwr.app import Error
from flwr.common.constant import ErrorCode

from fedfibos.flower.failures import failure_of


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.MESSAGE_UNAVAILABLE, "its question expired, or the node left, before it answered"),
        (ErrorCode.REPLY_MESSAGE_UNAVAILABLE, "its answer expired before it was collected"),
        (ErrorCode.NODE_UNAVAILABLE, "it is out of reach: no sign of life came from its node"),
        (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "it failed: a b"),
    ],
)
def test_what_was_lost_on_its_way_is_no_failure_of_the_clients_code(code, said):
    assert failure_of(Error(code, "a\nb")) == said


def test_an_error_without_a_reason_has_its_number():
    assert failure_of(Error(ErrorCode.CLIENT_APP_CRASHED)) == "it failed: error 8"
