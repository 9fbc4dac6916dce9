"""Data and a model that do not fit each other, from Python: a line that names what was got and what was wanted."""

import pytest
import torch
from torch import nn

from fedfibos.data.images import TensorData
from fedfibos.methods import METHODS
from fedfibos.model import model_of
from fedfibos.round import federated_round
from fedfibos.training import LocalTraining
from fedfibos.types import Client

X = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 4


class Ends(nn.Module):
    def __init__(self, end) -> None:
        super().__init__()
        self.layer, self.end = nn.Linear(5, 4), end

    def forward(self, x):
        return self.end(self.layer(x))


def train(data, module: nn.Module | None = None, example: torch.Tensor | None = X[:2]) -> None:
    """A round of one client."""
    model = model_of(nn.Linear(5, 4) if module is None else module, example=example)
    method, params = METHODS["fedfibos"](), model.initial_params()
    client = Client(7, 1.0, 0, 0, LocalTraining(steps=1, batch_size=12), data)
    federated_round(method, model, method.init(params), params, [client])


def said(*what, **more) -> str:
    """What such a round says, in a line."""
    with pytest.raises(ValueError, match=r"\A[^\n]*\Z") as error:
        train(*what, **more)
    return str(error.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y + 1, "labels must be in 0..3, as the model makes 4 scores, got 4"),
        (Y - 1, "client 7: labels must be classes, from 0 on, got -1"),
        (torch.where(Y == 3, -100, Y), "client 7: labels must be classes, from 0 on, got -100"),
        (Y.float(), "client 7: labels must be int64 of shape (n,), got torch.float32 of shape (12,)"),
        (Y[:, None], "client 7: labels must be int64 of shape (n,), got torch.int64 of shape (12, 1)"),
    ],
)
def test_labels_that_are_no_classes_of_the_model(labels, message):
    assert said(TensorData(X, labels)) == message


def test_what_is_no_data_set():
    wanted = "client 7: data must have labels, batch, subset and a length, got"
    assert said(torch.utils.data.TensorDataset(X, Y)) == (
        f"{wanted} TensorDataset without labels: TensorData(inputs, labels) makes one of tensors, dataset_of(dataset) "
        "one of a PyTorch Dataset"
    )
    assert said([(X[0], 1)]).startswith(f"{wanted} list without labels: ")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda y: (y, 1), "the model must return one tensor of outputs, got tuple: return the logits alone"),
        (lambda y: None, "the model must return one tensor of outputs, got NoneType"),
        (
            lambda y: y.detach(),
            "the model's outputs must have a gradient, got detached ones, or ones made under no_grad",
        ),
        (
            lambda y: y[:, 0],
            "the model must make one score a class, shape (12, classes), got torch.float32 of shape (12,)",
        ),
        (lambda y: y.sum(), "the model must make logits of every example of a batch, got them of a single number"),
    ],
)
@pytest.mark.parametrize("example", [None, X[:2]])
def test_outputs_that_no_loss_can_be_taken_of(end, message, example):
    assert said(TensorData(X, Y), Ends(end), example) == message


def test_inputs_of_another_shape_than_the_models():
    failed = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    assert said(TensorData(X[:, :3], Y)) == (
        f"client 7: the model fails on the data ({failed} (12x3 and 5x4)); an example is float32 of shape (3,), one of "
        "the batch that the model was made with float32 of shape (5,)"
    )
    assert said(TensorData(X, Y), example=X[:2, :3]) == (
        f"the model fails on its example batch ({failed} (2x3 and 5x4)); an example is float32 of shape (3,)"
    )
    assert said(TensorData(X, Y), example=X[:2].double()).endswith(
        "; an example is float64 of shape (5,), parameters are float32"
    )


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda x: x, "the model must be an nn.Module with its initial values, got function"),
        (nn.Linear, "the model must be an nn.Module with its initial values, got the class Linear: make one"),
        (nn.LazyLinear(4), "parameter 'weight' has no size before its first batch: run the module on a batch once"),
    ],
)
def test_what_is_no_module_that_can_be_trained(made, message):
    assert said(TensorData(X, Y), made) == message


def test_what_a_model_raises_on_inputs_of_its_own_kind_is_let_be():
    """And where its example is several inputs by position, which no data set gives."""
    other = TensorData(X[:, :3], Y)
    for data, example in ((TensorData(X[:, :3], Y), (X[:2],)), (other, None)):
        with pytest.raises(RuntimeError, match=r"^mat1 and mat2 shapes cannot be multiplied \(12x3 and 5x4\)$"):
            train(data, example=example)
