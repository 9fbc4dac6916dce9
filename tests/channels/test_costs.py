"""Parameters of a slice, and the width that a budget allows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedfibos.channels.axes import Axes, Part, axes_table
from fedfibos.channels.costs import parameter_cost, width_within
from fedfibos.models import build
from fedfibos.params import layout_of


@pytest.mark.parametrize(
    ("num_classes", "ratio", "expected"),
    [
        (10, 1.0, 11_173_962),
        (10, 0.5, 2_797_610),
        (10, 0.25, 701_466),
        (10, 0.125, 176_402),
        (10, 0.0625, 44_622),
        (100, 1.0, 11_220_132),
        (100, 0.5, 2_820_740),
        (100, 0.25, 713_076),
        (100, 0.125, 182_252),
        (100, 0.0625, 47_592),
    ],
)
def test_resnet18_sizes_by_width(resnet18, num_classes, ratio, expected):
    """HeteroFL's widths: exact parameter counts, worked out outside this project."""
    axes = resnet18.axes
    layout = layout_of(build("resnet18", num_classes, (3, 32, 32), norm="batch"))
    head = Axes(axes.sizes, {**axes.dims, "classifier.bias": ((Part(None, after=num_classes),),)})
    head.dims["classifier.weight"] = ((Part(None, after=num_classes),), axes.dims["classifier.weight"][1])
    assert head.small_layout(layout, head.widths(ratio)).size == expected


@pytest.mark.parametrize(("capacity", "expected"), [(0.5, 0.705), (0.25, 0.498), (0.125, 0.352), (0.0625, 0.248)])
def test_width_for_a_parameter_budget_of_resnet18(resnet18, capacity, expected):
    """About the square root of the capacity; the share comes within 2 % of the budget and never above."""
    width = width_within(resnet18.axes, {"parameters": resnet18.parameters}, capacity)
    assert width == pytest.approx(expected, abs=5e-4)
    small = resnet18.axes.small_layout(resnet18.layout, resnet18.axes.widths(width))
    assert 0.98 * capacity < small.num_maskable / resnet18.layout.num_maskable <= capacity


@given(capacity=st.floats(0.2, 1.0))
@settings(max_examples=40, deadline=None)
def test_width_within_is_the_largest_that_fits(capacity):
    module = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))
    layout = layout_of(module)
    axes = axes_table(
        module,
        {"a": 7, "b": 5},
        {"0.weight": ("a", None), "0.bias": ("a",), "2.weight": ("b", "a"), "2.bias": ("b",), "4.weight": (None, "b")},
    )

    def share(width: float) -> float:
        return axes.small_layout(layout, axes.widths(width)).num_maskable / layout.num_maskable

    width = width_within(axes, {"parameters": parameter_cost(axes, layout)}, capacity)
    assert share(width) <= capacity + 1 / layout.num_maskable  # the budget is a ceiling
    wider = [k / 1000 for k in range(1, 1001) if k / 1000 > width + 1e-9]
    assert all(share(w) > capacity for w in wider)


def test_width_within_refuses_less_than_one_channel_an_axis(resnet18):
    message = r"capacity 1e-06 allows 11 of 11164362 parameters, the narrowest slice of the model has \d+"
    message += r": take a capacity of at least 0\.001$"
    with pytest.raises(ValueError, match=message):
        width_within(resnet18.axes, {"parameters": resnet18.parameters}, 1e-6)
