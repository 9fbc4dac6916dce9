"""Median and trimmed mean over holders, by hand; the mean where there are few; what a wrong client can do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedfibos.aggregate import Sums
from fedfibos.model import model_of
from fedfibos.params import Layout
from fedfibos.server import robust
from fedfibos.server.settings import Server
from fedfibos.submodel import Mask, Slice
from fedfibos.types import Upload

LAYOUT = model_of(nn.Linear(4, 1, bias=False)).layout
MEDIAN = Server(merge="median")


def upload(delta: list[float], held: list[bool] | None = None) -> Upload:
    mask = Mask(None, 4) if held is None else Mask(torch.tensor(held), sum(held))
    return Upload(mask, torch.tensor(delta), 0.0, 1)


def merged(server: Server, uploads: list[Upload], average: str = "holders", weights: list[float] | None = None):
    sums = Sums(LAYOUT, server=server)
    for one, weight in zip(uploads, weights or [1.0] * len(uploads), strict=True):
        sums.add(one, weight)
    return sums.mean_delta(average).tolist()


def all_of(*values: float) -> list[Upload]:
    return [upload([value] * 4) for value in values]


def test_the_median_is_the_middle_of_an_odd_number_and_the_mean_of_two_of_an_even_one():
    assert merged(MEDIAN, all_of(1.0, 100.0, 3.0)) == [3.0] * 4
    assert merged(MEDIAN, all_of(1.0, 100.0, 3.0, 5.0)) == [4.0] * 4


def test_the_trimmed_mean_leaves_out_a_share_at_each_end():
    """Of 10 at 0.2: the two least and the two largest; the mean of the six others."""
    values = [float(n) for n in range(10)]
    values[9], values[0] = 1e6, -1e6
    assert merged(Server(merge="trimmed-mean", trim=0.2), all_of(*values)) == [4.5] * 4
    assert merged(Server(merge="trimmed-mean", trim=0.1), all_of(*values)) == [4.5] * 4


def test_a_share_is_rounded_up_and_one_is_left():
    """Of 3 at 0.1 one goes at each end; at 0.49 of 4, which would be 2 of each, one."""
    assert merged(Server(merge="trimmed-mean", trim=0.1), all_of(1.0, 100.0, 3.0)) == [3.0] * 4
    assert merged(Server(merge="trimmed-mean", trim=0.49), all_of(1.0, 3.0, 5.0, 100.0)) == [4.0] * 4


@pytest.mark.parametrize("server", [MEDIAN, Server(merge="trimmed-mean")])
def test_each_coordinate_has_its_own_holders_and_with_fewer_than_three_it_is_the_mean(server):
    uploads = [
        upload([1.0, 2.0, 7.0, 0.0], [True, True, True, False]),
        upload([3.0, 4.0, 0.0, 0.0], [True, True, False, False]),
        upload([100.0, 0.0, 0.0, 0.0], [True, False, False, False]),
    ]
    assert merged(server, uploads) == [3.0, 3.0, 7.0, 0.0]


def test_the_participants_average_is_the_middle_times_the_holders_share():
    uploads = [upload([4.0, 4.0, 4.0, 0.0], [True, True, True, False]) for _ in range(3)] + [upload([8.0] * 4)]
    assert merged(MEDIAN, uploads, "participants") == [4.0, 4.0, 4.0, 2.0]


def test_a_weight_counts_only_where_there_are_too_few_for_a_middle():
    uploads = [
        upload([1.0, 1.0, 1.0, 1.0]),
        upload([3.0, 3.0, 3.0, 3.0]),
        upload([5.0, 0.0, 0.0, 0.0], [True] + [False] * 3),
    ]
    assert merged(MEDIAN, uploads, weights=[3.0, 1.0, 90.0]) == [3.0, 1.5, 1.5, 1.5]


def test_slices_and_what_is_not_counted():
    small = Layout(("weight",), ((1, 2),), 1)
    slices = [Upload(Slice(torch.tensor([3, 1]), small, ()), torch.tensor([v, v + 1]), 0.0, 1) for v in (1.0, 2.0, 9.0)]
    assert merged(MEDIAN, slices) == [0.0, 3.0, 0.0, 2.0]
    counted = torch.tensor([True, False, True, True])
    less = replace(upload([9.0, 0.0, 9.0, 9.0]), counted=counted)
    assert merged(MEDIAN, [*all_of(1.0, 2.0, 3.0), less]) == [2.5, 2.0, 2.5, 2.5]


def test_one_wrong_client_moves_the_mean_and_not_the_middle():
    values = (1.0, 1.1, 0.9, 1.0, -1e9)
    assert abs(merged(Server(), all_of(*values))[0]) > 1e8
    for server in (MEDIAN, Server(merge="trimmed-mean", trim=0.2)):
        assert merged(server, all_of(*values))[0] == pytest.approx(1.0, abs=0.1)


def test_blocks_do_not_matter(monkeypatch):
    uploads = [upload([1.0 * n, 2.0 - n, n * n, -n]) for n in range(5)]
    whole = merged(MEDIAN, uploads)
    monkeypatch.setattr(robust, "BLOCK", 3)
    assert merged(MEDIAN, uploads) == whole == [2.0, 0.0, 4.0, -2.0]


def estimates(server: Server, *rows: tuple[list[float], list[bool] | None], observed: str = "held"):
    sums = Sums(LAYOUT, server=server)
    for statistic, held in rows:
        sums.add(replace(upload([0.0] * 4, held), statistic=torch.tensor(statistic), observed=observed))
    mean, seen = sums.mean_statistic()
    return mean.tolist(), seen.tolist()


@pytest.mark.parametrize("server", [MEDIAN, Server(merge="trimmed-mean")])
def test_estimates_have_the_middle_of_those_that_observed_a_coordinate(server):
    """Coordinate 0: three observers, one of them wrong. 1: two, their mean. 2: one. 3: nobody."""
    rows = [
        ([1.0, 2.0, 0.0, 0.0], [True, True, False, False]),
        ([1e9, 4.0, 0.0, 0.0], [True, True, False, False]),
        ([3.0, 0.0, 5.0, 0.0], [True, False, True, False]),
    ]
    assert estimates(server, *rows) == ([3.0, 3.0, 5.0, 0.0], [True, True, True, False])


def test_estimates_of_all_coordinates_and_of_channels():
    full_rows = [([value] * 4, None) for value in (1.0, 1e9, 2.0)]
    assert estimates(MEDIAN, *full_rows, observed="all")[0] == [2.0] * 4
    units = [([1.0, 7.0], None), ([5.0, -1.0], None), ([1e9, 9.0], None)]  # of channel 1 the second has none
    assert estimates(MEDIAN, *units, observed="units") == ([5.0, 8.0], [True, True])
    assert estimates(Server(), *units, observed="units")[0][1] == 8.0


def test_a_client_that_counts_as_a_holder_of_less_has_observed_less():
    counted = torch.tensor([True, False, True, True])
    sums = Sums(LAYOUT, server=MEDIAN)
    for value in (1.0, 2.0, 3.0):
        one = replace(upload([0.0] * 4), statistic=torch.full((4,), value), observed="held")
        sums.add(one if value > 1.0 else replace(one, counted=counted, statistic=torch.tensor([1.0, 0.0, 1.0, 1.0])))
    assert sums.mean_statistic()[0].tolist() == [2.0, 2.5, 2.0, 2.0]
