"""What people train is sliced without a word from the user, and every method trains it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from families import NAMES, family
from fedfibos.channels.check import mixed_widths
from fedfibos.channels.resize import resize_module
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.training import LocalTraining
from fedfibos.types import Client
from zoo import Batch

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "slicing.md"
WIDTHS = {
    "ConvNeXt": [8, 32, 16, 64],
    "EfficientNet, MobileNetV3": [8, 24, 4, 24, 4, 12, 36, 4, 24],
    "ViT": [24, 4, 20, 4, 20],
    "ViT, packed qkv": [24, 4, 48, 4, 48],
    "ViT, layer scale": [24, 4, 48, 4, 48],
    "DeiT": [24, 4, 20, 4, 20],
    "DeiT, packed qkv": [24, 4, 48, 4, 48],
    "Swin": [12, 2, 48, 2, 48, 24, 4, 96, 4, 96],
    "ResNet-50": [16, 8, 8, 8, 8],
    "ResNet, frozen batch norm": [16, 8, 8, 8, 8],
    "ResNet, padded shortcuts": [8, 16, 4, 4],
    "DenseNet": [8, 8, 4, 8, 4, 8, 4, 10],
    "ShuffleNet V1": [12, 6],
    "ShuffleNet V2": [8, 8, 16, 16, 16, 24],
    "U-Net": [8, 12, 16, 12, 12, 8, 8],
    "U-Net, PixelShuffle": [8, 12, 16, 12, 12, 8, 8],
    "BERT": [24, 4, 20, 4, 20, 24],
    "DistilBERT": [24, 4, 20, 4, 20, 24],
    "ALBERT": [10, 24, 4, 20, 24],
    "ELECTRA": [10, 24, 4, 20, 4, 20, 24],
    "DeBERTa": [24, 4, 24, 20, 4, 20, 24],
    "DeBERTa V2": [24, 6, 6, 20, 6, 6, 20, 24],
    "GPT-2": [24, 4, 96, 4, 96],
    "Llama": [24, 2, 20, 2, 20],
    "Qwen": [24, 2, 20, 2, 20],
    "LSTM": [8, 12],
    "LSTM, both directions": [8, 12],
    "GRU": [8, 12],
    "Whisper's encoder": [24, 24, 4, 20],
    "FT-Transformer": [16, 4, 20],
    "TCN": [12, 12],
    "TCN, weight norm": [12, 12],
}
"""Channels of every axis; of attention they are heads, or, where queries and values are apart, positions in each."""


def trains(name: str, method_name: str, rounds: int = 1) -> str:
    """What goes wrong in rounds of mixed capacities; empty where nothing does."""
    example = family(name)
    try:
        model = model_of(example.module, example=example.example_inputs)
        method = METHODS[method_name]()
        params = model.initial_params()
        state, data = method.init(params), Batch(example.example_inputs, torch.arange(6) % example.num_classes)
        for t in range(rounds):
            local = LocalTraining(steps=1, batch_size=6, lr=0.02)
            cohort = [Client(n, capacity, t, 0, local, data) for n, capacity in enumerate((1.0, 0.5, 0.3))]
            before = params
            state, params, report = federated_round(method, model, state, params, cohort)
            if report.rejected or not bool(params.flat.isfinite().all()) or torch.equal(params.flat, before.flat):
                return f"{report.rejected}"
    except ValueError as error:
        return str(error)
    return ""


QUICK = [pytest.param(name, marks=[pytest.mark.slow] if name == "MobileNetV2" else []) for name in NAMES]


@pytest.mark.slow_where("ELECTRA", "DeBERTa", "Swin")
@pytest.mark.parametrize("name", QUICK)
def test_families_are_sliced_without_a_word(name):
    """The table, a slice on other batches than the example, and one round of slices."""
    example = family(name)
    model = model_of(example.module, example=example.example_inputs)
    axes = model.axes
    assert name == "MobileNetV2" or list(axes.sizes.values()) == WIDTHS[name]
    if axes.sizes:
        small = resize_module(model.module, axes, axes.widths(0.5)).eval()
        inputs = example.example_inputs
        torch.testing.assert_close(small(inputs)[:2], small(inputs[:2]), rtol=1e-4, atol=1e-4)
        assert resize_module(model.module, axes, mixed_widths(axes)).eval()(inputs).shape == (6, example.num_classes)
        assert axes.small_layout(model.layout, axes.widths(1e-9)).size < 0.12 * model.layout.size
        assert trains(name, "heterofl") == ""
    else:
        assert "has none" in trains(name, "heterofl")


@pytest.mark.parametrize("name", ["BERT", "DeBERTa", "GPT-2", "Llama", "LSTM"])
def test_slices_of_text_models_take_texts_of_other_lengths(name):
    example = family(name)
    axes = model_of(example.module, example=example.example_inputs).axes
    small = resize_module(example.module, axes, axes.widths(0.5))
    assert small(example.example_inputs[:3, :5]).shape == (3, example.num_classes)


def rows() -> dict[str, int]:
    """Family -> how many methods the page says train it."""
    found = re.findall(r"^\| (.+?) \| (\d) of 7 \|", PAGE.read_text(), flags=re.M)
    return {name: int(count) for name, count in found}


def test_the_page_has_a_row_for_every_family_and_nine_in_ten_have_all_methods():
    assert list(rows()) == list(NAMES)
    assert sum(count == len(METHODS) for count in rows().values()) >= 0.9 * len(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_as_many_methods_train_a_family_as_the_page_says(name):
    failed = {method: problem for method in METHODS if (problem := trains(name, method, rounds=2))}
    assert len(METHODS) - len(failed) == rows()[name], failed
