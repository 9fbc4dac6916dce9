"""Work handed out in a window: how much is out, in which order answers come, what a slow first job does. No Ray."""

from __future__ import annotations

import pytest

from fedfibos.simulation.ray_window import in_window


class Cluster:
    """Hands out numbers; their answers are tens. Writes down all that happens."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.said, self.out, self.fails_at = [], [], fails_at

    def submit(self, job):
        self.said.append(f"out {job}")
        self.out.append(job)
        return f"ticket {job}"

    def collect(self, job, tickets):
        assert tickets == [f"ticket {n}" for n in self.out]
        if job == self.fails_at:
            raise RuntimeError(f"client {job}")
        self.said.append(f"in {job}")
        self.out.remove(job)
        return 10 * job

    def drop(self, ticket):
        self.said.append(f"drop {ticket}")


def answers(cluster, jobs, size):
    return in_window(jobs, cluster.submit, cluster.collect, cluster.drop, size)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_answers_are_in_the_order_of_the_jobs_and_at_most_a_window_is_out(size):
    cluster, out = Cluster(), []
    submit = cluster.submit

    def counted(job):
        ticket = submit(job)
        out.append(len(cluster.out))
        return ticket

    cluster.submit = counted
    assert list(answers(cluster, range(10), size)) == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert max(out) == min(size, 10)
    assert cluster.out == []


def test_the_next_job_is_made_only_when_there_is_room_for_it():
    """While a consumer looks at an answer, one place of the window is free and nothing fills it."""
    cluster = Cluster()
    for answer in answers(cluster, range(4), 2):
        cluster.said.append(f"merged {answer}")
    assert cluster.said == [
        "out 0",
        "out 1",
        "in 0",
        "merged 0",
        "out 2",
        "in 1",
        "merged 10",
        "out 3",
        "in 2",
        "merged 20",
        "in 3",
        "merged 30",
    ]


def test_no_jobs_no_answers():
    assert list(answers(Cluster(), [], 3)) == []


def test_what_nobody_waits_for_is_dropped():
    cluster = Cluster()
    running = answers(cluster, range(9), 3)
    assert next(running) == 0
    running.close()
    assert cluster.said[-2:] == ["drop ticket 1", "drop ticket 2"]


def test_an_error_drops_the_rest_and_comes_out():
    cluster = Cluster(fails_at=1)
    with pytest.raises(RuntimeError, match="client 1"):
        list(answers(cluster, range(9), 3))
    assert cluster.said[-3:] == ["drop ticket 1", "drop ticket 2", "drop ticket 3"]
