"""Large fleets: what a round looks at does not grow with the number of clients registered."""

from __future__ import annotations

import pytest
import torch

from fedfibos.common.streams import stream
from fedfibos.config.capacities import UNIFORM, Capacities, counts
from fedfibos.round import LARGE_FLEET, sample
from fedfibos.simulation.population import Parts


@pytest.mark.parametrize("assignment", ["fixed", "dynamic"])
def test_some_clients_capacities_are_those_of_the_whole_fleet(assignment):
    capacities = Capacities(UNIFORM, 57, assignment, seed=3)
    order = torch.randperm(57, generator=stream(3, *(("capacities",) if assignment == "fixed" else ("capacities", 4))))
    listed = [c for c, count in zip(UNIFORM, counts(UNIFORM, 57), strict=True) for _ in range(count)]
    dealt = [listed[position] for position in order.tolist()]
    assert capacities.of(range(57), 4) == dealt
    assert capacities.of([50, 3, 3], 4) == [dealt[50], dealt[3], dealt[3]]


def test_parts_are_the_list_they_were_made_from():
    parts = [torch.tensor([4, 2]), torch.tensor([], dtype=torch.int64), torch.tensor([7])]
    packed = Parts(parts)
    assert [p.tolist() for p in packed] == [[4, 2], [], [7]]
    assert len(packed) == 3
    with pytest.raises(IndexError, match=r"client must be in \[0, 3\), got 3"):
        packed[3]


def test_large_fleets_are_sampled_uniformly_without_replacement():
    size, cohort = 10 * LARGE_FLEET, 1000
    bins = torch.zeros(10)
    for t in range(200):
        drawn = sample(size, cohort, 0, t)
        assert len(set(drawn)) == cohort
        assert drawn == sorted(drawn)
        bins += torch.histc(torch.tensor(drawn, dtype=torch.float32), 10, 0, size)
    assert sample(size, cohort, 0, 0) == sample(size, cohort, 0, 0) != sample(size, cohort, 1, 0)
    expected = 200 * cohort / 10
    assert float(((bins - expected) ** 2 / expected).sum()) < 27.9  # chi-squared, 9 degrees of freedom, 0.1 %


def test_a_cohort_that_is_most_of_a_large_fleet():
    size = LARGE_FLEET + 1
    assert sample(size, size, 0, 0) == list(range(size))
