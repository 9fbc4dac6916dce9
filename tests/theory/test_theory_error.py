"""The true masking error and the Fisher of a data set, against autograd by hand; Assumption 5; what ε says of e_t."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_federation import gaussian_data, random_params, tiny_model
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fedfibos.analysis.theory import (
    MaskingError,
    dataset_fisher,
    dataset_gradient,
    gradient_discrepancy,
    masking_coefficient,
    masking_error,
    order_agreement,
    surrogate,
)
from fedfibos.backend.topk import top_k
from fedfibos.common.streams import stream
from fedfibos.data.images import TensorData
from fedfibos.model import Model, model_of
from fedfibos.params import Params
from fedfibos.submodel import Mask, full, mask_from_scores

fixed = settings(derandomize=True, deadline=None, max_examples=100)


def mean_loss(model: Model, flat: Tensor, data: TensorData) -> Tensor:
    named = dict(zip(model.layout.names, model.layout.views(flat), strict=True))
    return cross_entropy(functional_call(model.module, named, (data.inputs,)), data.labels)


def by_hand(model: Model, params: Params, mask: Mask, data: TensorData) -> float:
    """‖∇F(x̃)⊙M − ∇_x̃ F(x̃⊙M)‖² with autograd through the mask, on all examples at once."""
    assert mask.held is not None
    x = params.flat.clone().requires_grad_()
    (plain,) = torch.autograd.grad(mean_loss(model, x, data), x)
    (through,) = torch.autograd.grad(mean_loss(model, x * mask.held, data), x)
    return float((plain * mask.held - through).square().sum())


@pytest.mark.parametrize("capacity", [0.1, 0.5, 0.9])
def test_masking_error_is_the_definition_by_autograd(capacity: float) -> None:
    model, data = tiny_model(), gaussian_data(2, num_examples=17)
    params = random_params(model, 2)
    mask = mask_from_scores(params.flat.abs(), capacity, model.layout)
    error = masking_error(model, params, mask, data, batch_size=5)
    assert error.held == pytest.approx(by_hand(model, params, mask, data), rel=1e-4)
    assert error.dense > error.held > 0.0


def test_masking_error_of_one_weight_by_hand() -> None:
    """Two classes, scores (0, w·x + b), one example x = 2 of class 1, w = 1, b = −1: F = log(1 + e^−(2w+b)).

    ∇F = −σ(−(2w+b))·(2, 1). Hold b alone: at (1, −1) σ(−1) = .26894, at (0, −1) σ(1) = .73106.
    held: (.73106 − .26894)² = .21356; dense adds (2·.73106)² = 2.13779.
    """

    class OneWeight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            score = self.line(x)
            return torch.cat([torch.zeros_like(score), score], 1)

    model = model_of(OneWeight())
    params = Params(model.layout, torch.tensor([1.0, -1.0]))
    data = TensorData(torch.tensor([[2.0]]), torch.tensor([1]))
    error = masking_error(model, params, Mask(torch.tensor([False, True]), 1), data)
    assert error.held == pytest.approx(0.21356, abs=1e-5)
    assert error.dense == pytest.approx(0.21356 + 2.13779, abs=1e-4)
    assert masking_coefficient(error.held, params.flat) == pytest.approx(0.21356 / 2, abs=1e-5)
    assert masking_error(model, params, full(model.layout), data) == MaskingError(0.0, 0.0)


def test_streaming_in_batches_changes_nothing_and_reuses_a_known_gradient() -> None:
    model, data = tiny_model(), gaussian_data(3, num_examples=23)
    params = random_params(model, 3)
    mask = mask_from_scores(params.flat.abs(), 0.4, model.layout)
    whole = dataset_gradient(model, params, data)
    assert whole.dtype == torch.float64
    for size in (1, 2, 7, 22, 1000):
        torch.testing.assert_close(dataset_gradient(model, params, data, batch_size=size), whole, rtol=1e-5, atol=1e-7)
    again = masking_error(model, params, mask, data, gradient=whole)
    assert again == masking_error(model, params, mask, data)
    held = gradient_discrepancy(whole, dataset_gradient(model, params, data, mask), mask.held)  # type: ignore[arg-type]
    assert again == held


def test_batch_normalised_models_are_measured_in_training_mode_and_leave_no_trace() -> None:
    model = model_of(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 3)))
    params, data = random_params(model, 6), gaussian_data(6, num_examples=21)
    gradient = dataset_gradient(model, params, data, batch_size=10)
    assert torch.equal(gradient, dataset_gradient(model, params, data, batch_size=10))  # dropout is off
    shift = model.layout.views(gradient)[model.layout.names.index("0.bias")]
    assert float(shift.abs().max()) < 1e-6  # a batch normalised by itself does not see a shift before it
    with pytest.raises(ValueError, match="without batch normalisation"):
        dataset_fisher(model, params, data)
    assert bool((dataset_fisher(model, params, data, "minibatch") >= 0).all())


def test_fisher_of_a_data_set_is_the_mean_of_squared_example_gradients() -> None:
    model, data = tiny_model(), gaussian_data(5, num_examples=11)
    params = random_params(model, 5)
    squares = torch.zeros(model.layout.size)
    for i in range(len(data)):
        x = params.flat.clone().requires_grad_()
        (g,) = torch.autograd.grad(mean_loss(model, x, data.subset(torch.tensor([i]))), x)
        squares += g.square() / len(data)
    for size in (1, 4, 100):
        fisher = dataset_fisher(model, params, data, batch_size=size)
        torch.testing.assert_close(fisher, squares[: model.layout.num_maskable], rtol=1e-4, atol=1e-9)


def test_minibatch_fisher_is_another_statistic() -> None:
    """One batch of all n examples: g²/n with g the mean gradient (line 14), which is not equation 9."""
    model, data = tiny_model(), gaussian_data(5, num_examples=11)
    params = random_params(model, 5)
    g = dataset_gradient(model, params, data)[: model.layout.num_maskable].float()
    fisher = dataset_fisher(model, params, data, "minibatch", batch_size=11)
    torch.testing.assert_close(fisher, g.square() / 11, rtol=1e-4, atol=1e-10)
    assert not torch.allclose(fisher, dataset_fisher(model, params, data), rtol=0.1)


def test_an_empty_data_set_is_an_error() -> None:
    model = tiny_model()
    empty = gaussian_data(0).subset(torch.empty(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="at least one example, got none"):
        dataset_gradient(model, random_params(model, 0), empty)


# --- what the surrogate says of the error ----------------------------------------------------------------------


@fixed
@given(st.integers(2, 12), st.integers(0, 2**31), st.data())
def test_a_diagonal_quadratic_ties_the_surrogate_to_the_dense_reading_only(
    d: int, seed: int, data: st.DataObject
) -> None:
    """F(x) = ½ Σ h_j (x_j − c_j)², the derivation's own case (diagonal Hessian h).

    By the definition's letter the error is 0 for *every* selection: masking moves only coordinates off the mask, and a
    diagonal Hessian hands none of it to those on the mask. With the gradient at the effective weights it is
    Σ_{j∉S} (h_j c_j)², which is ε with F = h at the stationary point x = c.
    """
    generator = stream(seed, "quadratic")
    h, c = torch.rand(d, generator=generator).double(), torch.randn(d, generator=generator).double()
    mask = top_k(torch.rand(d, generator=generator), data.draw(st.integers(0, d)))
    x = c + torch.randn(d, generator=generator).double()
    for point in (x, c):
        error = gradient_discrepancy(h * (point - c), h * (torch.where(mask, point, 0.0) - c), mask)
        assert error.held == 0.0
    assert error.dense == pytest.approx(surrogate(h, c, mask), rel=1e-9, abs=1e-15)


def test_the_letter_of_the_error_needs_a_hessian_off_the_diagonal() -> None:
    """F(x) = ½ (x·a)²: ∇F = (x·a) a. Leaving S out changes x·a, and with it the gradient of what is held.

    a = (1, 2), x = (3, 1), hold 0: x·a = 5 and 3; held: (5 − 3)²·1² = 4; dense adds (3·2)² = 36.
    """
    a, x, mask = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0]), torch.tensor([True, False])
    assert gradient_discrepancy((x @ a) * a, (torch.where(mask, x, 0.0) @ a) * a, mask) == MaskingError(4.0, 40.0)


@pytest.mark.parametrize(
    ("surrogates", "errors", "wanted"),
    [
        ([1.0, 2.0, 3.0], [10.0, 20.0, 30.0], 1.0),
        ([1.0, 2.0, 3.0], [30.0, 20.0, 10.0], 0.0),
        ([1.0, 2.0, 3.0], [20.0, 10.0, 30.0], 2 / 3),
        ([1.0, 2.0], [5.0, 5.0], 1.0),  # a strict order of ε allows equal errors
        ([1.0, 1.0], [5.0, 6.0], 0.0),  # equal ε demand equal errors
        ([1.0, 1.0], [5.0, 5.0], 1.0),
    ],
)
def test_order_agreement_cases(surrogates: list[float], errors: list[float], wanted: float) -> None:
    assert order_agreement(surrogates, errors) == pytest.approx(wanted)


def test_order_agreement_of_chance_is_a_half() -> None:
    generator = torch.Generator().manual_seed(1)
    errors = torch.rand(400, generator=generator).tolist()
    assert order_agreement(list(range(400)), errors) == pytest.approx(0.5, abs=0.06)
    with pytest.raises(ValueError, match="at least two selections each, got 1 surrogates, 1 errors"):
        order_agreement([1.0], [1.0])


def test_masking_coefficient_of_zero_parameters_is_an_error() -> None:
    with pytest.raises(ValueError, match="not all zero"):
        masking_coefficient(1.0, torch.zeros(3))
    assert masking_coefficient(6.0, torch.tensor([1.0, math.sqrt(2.0)])) == pytest.approx(2.0)
