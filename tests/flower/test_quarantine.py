"""Who fails alike again and again is left out, each time for longer; the record tells it again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fedfibos.flower.quarantine import Quarantine

REASON = "its update has 5 values that are not finite (training loss nan)"


def rounds_without(quarantine, fails, rounds):
    """Rounds (from 0) that client 7 is left out of, where it takes part in all others and fails as it is told."""
    missed = []
    for t in range(rounds):
        if 7 in quarantine.out(t):
            missed.append(t)
        else:
            reason = fails(t)
            quarantine.note(t, [7, 8], {} if reason is None else {7: reason})
    return missed


def test_a_client_that_fails_alike_is_left_out_of_1_2_4_8_rounds():
    missed = rounds_without(Quarantine(), lambda t: REASON, 25)
    assert missed == [3, 5, 6, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24]


def test_never_longer_than_64_rounds():
    missed = rounds_without(Quarantine(), lambda t: REASON, 1000)
    took_part = sorted(set(range(1000)) - set(missed))
    gaps = [later - earlier - 1 for earlier, later in pairwise(took_part)]
    assert gaps == [0, 0, 1, 2, 4, 8, 16, 32, *[64] * 14]


@pytest.mark.parametrize(
    "reasons",
    [
        [REASON, REASON, None, REASON, REASON, None, REASON, REASON],  # uploads in between
        [REASON, "no answer within 5 s"] * 4,  # another failure each time
    ],
)
def test_other_clients_are_not_left_out(reasons):
    assert rounds_without(Quarantine(), reasons.__getitem__, 8) == []


def test_numbers_make_no_other_failure():
    others = [REASON, REASON.replace("5", "12").replace("nan", "1.5e-07"), REASON.replace("5", "1")]
    assert rounds_without(Quarantine(), lambda t: others[t % 3], 4) == [3]


def test_it_is_said_with_round_and_reason():
    quarantine = Quarantine()
    said = [quarantine.note(t, [7], {7: "no answer within 5 s"}) for t in range(3)]
    why = "until round 4: it failed 3 times in the same way: no answer within 5 s"
    assert said == [[], [], [f"client 7 is left out {why}"]]
    assert quarantine.out(3) == {7: why}
    assert quarantine.out(4) == {}


def test_the_record_tells_it_again():
    quarantine, lines = Quarantine(), []
    for t in range(9):
        if 7 in quarantine.out(t):
            lines.append({"round": t + 1, "participants": [8], "rejected": {}})
            continue
        tried = {"participants": [7], "rejected": {"7": REASON}}
        quarantine.note(t, [7], {7: REASON})
        quarantine.note(t, [7, 8], {7: REASON})
        lines.append({"round": t + 1, "participants": [7, 8], "rejected": {"7": REASON}, "skipped": [tried]})
    assert [Quarantine(lines).out(t) for t in range(20)] == [quarantine.out(t) for t in range(20)]
    assert quarantine.out(9) != {}
