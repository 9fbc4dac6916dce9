"""Losses and metrics of every task on literal small cases, and as torchmetrics has them."""

from __future__ import annotations

import math
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from fedfibos import LocalTraining
from fedfibos.data import TensorData
from fedfibos.methods._fisher import FisherObserver
from fedfibos.model import model_of
from fedfibos.steps.loss import loss_of
from fedfibos.submodel import full
from fedfibos.tasks import TASKS, Metric, Task
from fedfibos.tasks.classification import Classification
from fedfibos.tasks.language_modelling import LanguageModelling
from fedfibos.tasks.multilabel import MultiLabel
from fedfibos.tasks.regression import Regression
from fedfibos.tasks.segmentation import Segmentation
from fedfibos.tasks.trial import try_task
from fedfibos.types import Client

CLASSES = ("cat", "dog", "e/f")


def measured(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float | None]:
    """Every metric, of rows that came in two batches."""
    cut = len(targets) // 2
    rows = torch.cat([task.rows(outputs[:cut], targets[:cut]), task.rows(outputs[cut:], targets[cut:])])
    return {metric.name: metric.of(rows) for metric in task.metrics}


def test_classification_weighs_classes_example_by_example():
    """Equal scores of three classes cost ln 3; weights 1 and 4 then give (1 + 4)/2 of it, and one alone its own."""
    task = Classification(class_weights=(1.0, 4.0, 1.0)).task(torch.tensor([0, 1]), CLASSES)
    logits, labels = torch.zeros(2, 3), torch.tensor([0, 1])
    assert float(task.loss(logits, labels)) == pytest.approx(2.5 * math.log(3))
    assert float(task.loss(logits[1:], labels[1:])) == pytest.approx(4 * math.log(3))


def test_label_smoothing_spreads_the_target():
    """Of scores (ln 2, 0, 0): p = 1/2, 1/4, 1/4; smoothed by 0.3 the target is 0.8, 0.1, 0.1."""
    task = Classification(label_smoothing=0.3).task(torch.tensor([0]), CLASSES)
    logits = torch.tensor([[math.log(2.0), 0.0, 0.0]])
    expected = 0.8 * math.log(2) + 0.2 * math.log(4)
    assert float(task.loss(logits, torch.tensor([0]))) == pytest.approx(expected)


def test_classification_measures_classes_one_by_one_and_areas():
    task = Classification(auc=True, per_class=True).task(torch.tensor([0, 1, 2]), CLASSES)
    labels = torch.tensor([0, 0, 1, 1])
    logits = torch.tensor([[2.0, 1, 0], [0, 1, 0], [0, 3, 0], [0, 2, 0]])
    found = measured(task, logits, labels)
    assert found["accuracy"] == 0.75
    assert (found["accuracy cat"], found["accuracy dog"], found["accuracy e f"]) == (0.5, 1.0, None)
    assert found["balanced_accuracy"] == 0.75
    metrics = pytest.importorskip("sklearn.metrics")
    likely = logits.softmax(1)
    areas = [metrics.roc_auc_score(labels == n, likely[:, n]) for n in (0, 1)]
    assert found["auc"] == pytest.approx(sum(areas) / 2)


def test_multilabel_by_hand():
    """Two labels; predicted 10, 11, 00 and true 10, 01, 00: F1 2/3 and 1, pooled 4/5, two of three all right."""
    task = MultiLabel(per_class=True).task(torch.zeros(3, 2), ("a", "b"))
    logits = torch.tensor([[1.0, -1], [1, 1], [-1, -1]])
    labels = torch.tensor([[1, 0], [0, 1], [0, 0]])
    found = measured(task, logits, labels)
    assert (found["f1 a"], found["f1 b"]) == (pytest.approx(2 / 3), 1.0)
    assert found["macro_f1"] == pytest.approx(5 / 6)
    assert found["micro_f1"] == pytest.approx(4 / 5)
    assert found["exact_match"] == pytest.approx(2 / 3)
    weighted = MultiLabel(positive_weights=(3.0, 1.0)).task(labels, ("a", "b"))
    assert float(weighted.loss(torch.zeros(1, 2), labels[:1])) == pytest.approx(2 * math.log(2))


@pytest.mark.parametrize(("kind", "expected"), [("mse", 5.0), ("mae", 2.0), ("huber", 1.5)])
def test_regression_by_hand(kind, expected):
    """Errors 1 and 3: squares 1 and 9, absolute 1 and 3, Huber (delta 1) 1/2 and 5/2."""
    targets = torch.tensor([1.0, 5.0])
    task = Regression(loss=kind).task(targets, ())
    values = torch.tensor([[2.0], [2.0]])
    assert float(task.loss(values, targets)) == pytest.approx(expected)
    found = measured(task, values, targets)
    assert found == {"mse": 5.0, "mae": 2.0, "r2": pytest.approx(1 - 10 / 8)}
    assert task.metrics[2].of(task.rows(values[:1], targets[:1])) is None  # nothing varies


def test_segmentation_by_hand():
    """Four pixels, one ignored: true 0 1 1, predicted 0 0 1: IoU 1/2 and 1/2, two of three right."""
    task = Segmentation(ignore=9, per_class=True).task(torch.zeros(1, 2, 2), ("sky", "sea"))
    targets = torch.tensor([[[0, 1], [1, 9]], [[0, 0], [0, 0]]])
    scores = torch.tensor([[[[1.0, 1], [0, 5]], [[0, 0], [1, 0]]], [[[1, 1], [1, 1]], [[0, 0], [0, 0]]]])
    one = task.rows(scores[:1], targets[:1])
    assert one.tolist() == [[1, 0, 1, 1]]
    assert task.primary.of(one) == pytest.approx(0.5)
    found = measured(task, scores, targets)  # with four more of class 0, all right: 5/6 and 1/2
    assert found["miou"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    assert found["pixel_accuracy"] == pytest.approx(6 / 7)
    assert (found["iou sky"], found["iou sea"]) == (pytest.approx(5 / 6), 0.5)
    equal = torch.zeros(1, 2, 2, 2)
    assert float(task.loss(equal, targets[:1])) == pytest.approx(math.log(2))
    dice = Segmentation(loss="dice", ignore=9).task(targets, ("sky", "sea"))
    # p = 1/2 at three pixels: class 0 (2·½ + 1) / (1.5 + 1 + 1), class 1 (2·1 + 1) / (1.5 + 2 + 1)
    assert float(dice.loss(equal, targets[:1])) == pytest.approx(1 - (2 / 3.5 + 3 / 4.5) / 2)


def test_segmentation_as_torchmetrics_has_it():
    metrics = pytest.importorskip("torchmetrics.functional.classification")
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(3, (6, 5, 5), generator=generator)
    scores = torch.randn(6, 3, 5, 5, generator=generator)
    found = measured(Segmentation().task(targets, CLASSES), scores, targets)
    assert found["miou"] == pytest.approx(float(metrics.multiclass_jaccard_index(scores, targets, num_classes=3)))


def test_regression_and_multilabel_as_torchmetrics_has_them():
    regression = pytest.importorskip("torchmetrics.functional.regression")
    classification = pytest.importorskip("torchmetrics.functional.classification")
    generator = torch.Generator().manual_seed(2)
    values, targets = torch.randn(2, 20, 3, generator=generator)
    found = measured(Regression().task(targets, ()), values, targets)
    assert found["r2"] == pytest.approx(float(regression.r2_score(values, targets)), rel=1e-5)
    labels = (targets > 0).long()
    found = measured(MultiLabel(auc=True).task(labels, CLASSES), values, labels)
    macro = classification.multilabel_f1_score(values.sigmoid(), labels, num_labels=3)
    assert found["macro_f1"] == pytest.approx(float(macro))
    assert found["auc"] == pytest.approx(float(classification.multilabel_auroc(values.sigmoid(), labels, num_labels=3)))


def test_language_modelling_by_hand():
    """Equal scores of four tokens: perplexity 4, whatever the text; the first place is of no token before it."""
    task = LanguageModelling().task(torch.tensor([[0, 1, 2, 3]]), ())
    tokens = torch.tensor([[0, 1, 2, -100], [3, 3, -100, -100]])
    scores = torch.zeros(2, 4, 4)
    assert float(task.loss(scores, tokens)) == pytest.approx(math.log(4))
    assert measured(task, scores, tokens)["perplexity"] == pytest.approx(4)
    scores[0, 0, 1] = scores[0, 1, 2] = scores[1, 0, 3] = 50.0  # each place tells the token after it
    assert measured(task, scores, tokens) == {"perplexity": pytest.approx(1), "token_accuracy": 1.0}
    assert float(task.loss(scores, torch.full((2, 4), -100))) == 0.0


@pytest.mark.parametrize("name", TASKS)
def test_a_task_can_be_sent_to_another_process(name):
    """Workers are forked on Linux, and elsewhere sent what they need."""
    targets = torch.zeros(2, 3, dtype=torch.int64) if name != "classification" else torch.tensor([0, 1])
    task = TASKS[name]().task(targets, CLASSES)
    assert pickle.loads(pickle.dumps(task)).described == task.described


@pytest.mark.parametrize(
    ("settings", "targets", "message"),
    [
        (Classification(), torch.zeros(2), r"^labels must be int64 of shape \(n,\), got torch.float32"),
        (Classification(), torch.tensor([0, 3]), r"^labels must be in 0\.\.2, got 3$"),
        (MultiLabel(), torch.zeros(2), r"^labels must be of shape \(n, 3\)"),
        (MultiLabel(), torch.tensor([[0, 1, 2]]), "^labels must be 0 or 1, got 2$"),
        (Regression(), torch.tensor([1.0, math.nan]), "^targets must be finite, got 1 of 2 examples"),
        (Regression(), torch.zeros(2, 2, 2), r"^targets must be numbers of shape \(n,\) or \(n, k\)"),
        (Segmentation(), torch.zeros(2, 4, 4), r"^targets must be int64 of shape \(n, height, width\)"),
        (Segmentation(), torch.full((1, 2, 2), 255), r"^targets must be in 0\.\.2, or -100 \(task.ignore\), got 255$"),
        (
            Segmentation(),
            torch.full((1, 2, 2), -100),
            r"^targets must have a pixel that is not -100 \(task.ignore\), got none$",
        ),
        (
            LanguageModelling(),
            torch.tensor([[1, -100]]),
            r"^targets must have a token after the first that is not -100 ",
        ),
        (LanguageModelling(), torch.tensor([1, 2]), "^targets must be token ids"),
        (LanguageModelling(), torch.tensor([[1, 3]]), r"^targets must be in 0\.\.2"),
    ],
)
def test_targets_that_are_none_of_the_task_s_are_one_line(settings, targets, message):
    good = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        settings.task(good, CLASSES).check_targets(targets)


@pytest.mark.parametrize(
    ("settings", "outputs", "targets", "message"),
    [
        (Classification(), (2, 2), (2,), r"2 examples to logits of shape \(2, 3\), one a class, got \(2, 2\)"),
        (MultiLabel(), (2, 4), (2, 3), r"scores of shape \(2, 3\), one a label, got \(2, 4\)"),
        (Regression(), (2, 3), (2, 2), r"values of shape \(2, 2\), as its target has, got \(2, 3\)"),
        (
            Segmentation(),
            (2, 3),
            (2, 4, 4),
            r"maps of scores of shape \(2, 3, 4, 4\), one a class of targets of shape \(4, 4\), got \(2, 3\)",
        ),
        (LanguageModelling(), (2, 3), (2, 7), r"scores of shape \(2, 7, 3\), one a token at every place, got \(2, 3\)"),
    ],
)
def test_outputs_of_another_shape_are_one_line(settings, outputs, targets, message):
    targets = torch.zeros(targets, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        settings.task(targets, CLASSES).check(torch.zeros(outputs), targets)


def test_weights_are_one_a_class():
    with pytest.raises(ValueError, match=r"^task.class_weights must be 3 numbers, one a class, got 2$"):
        Classification(class_weights=(1.0, 2.0)).task(torch.tensor([0]), CLASSES)
    with pytest.raises(ValueError, match=r"^task.class_weights must be numbers above 0, got 0$"):
        Segmentation(class_weights=(1.0, 0.0, 1.0)).task(torch.zeros(1, 2, 2), CLASSES)


def shape(kind: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    if kind == "segmentation":
        images = torch.rand(6, 1, 3, 3, generator=generator)
        return nn.Conv2d(1, 3, 1), images, (images[:, 0] * 2.9).long()
    if kind == "language-modelling":
        tokens = torch.randint(3, (6, 4), generator=generator)
        tokens[0, 2:] = -100  # a shorter text
        return nn.Embedding(3, 3), tokens, tokens
    inputs = torch.randn(6, 4, generator=generator)
    targets = {"regression": inputs[:, :3], "multilabel": (inputs[:, :3] > 0).long()}
    return nn.Linear(4, 3), inputs, targets.get(kind, inputs[:, :3].argmax(1))


@pytest.mark.parametrize("name", TASKS)
def test_fisher_estimates_per_example_are_of_each_example_s_own_loss(name):
    """Six batches of one give, squared and summed, what one batch of six gives example by example."""
    module, inputs, targets = shape(name)
    inputs = inputs.clamp_min(0) if name == "language-modelling" else inputs
    task = TASKS[name]().task(targets, CLASSES)
    model = model_of(module, task=task)
    found = []
    for source, size in (("minibatch", 1), ("per_example", 6)):
        observer = FisherObserver(model, source)
        local = LocalTraining(epochs=1, batch_size=size, lr=1e-12)
        client = Client(0, 1.0, 0, 0, local, TensorData(inputs, targets))
        from fedfibos.local import local_training

        local_training(model, model.initial_params(), full(model.layout), client, observe=observer)
        found.append(observer.estimate())
    assert float(found[0].sum()) > 0
    assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in TASKS if name != "classification"])
def test_settings_about_classes_are_refused_without_them(name):
    _, _, targets = shape(name)
    task = TASKS[name]().task(targets, CLASSES)
    for kind in ("mask", "adjust"):
        with pytest.raises(ValueError, match=rf"absent_labels = '{kind}' is about classes .* task '{name}' are no"):
            loss_of(task, LocalTraining(absent_labels=kind), targets, torch.device("cpu"))


@pytest.mark.parametrize("name", TASKS)
def test_outputs_are_at_no_distance_from_themselves(name):
    module, inputs, targets = shape(name)
    outputs = module(inputs.clamp_min(0) if name == "language-modelling" else inputs).detach()
    distance = TASKS[name]().task(targets, CLASSES).distance
    assert distance is not None
    assert float(distance(outputs, outputs, 2.0)) == pytest.approx(0.0, abs=1e-6)
    other = outputs + torch.arange(3.0).view(-1, *[1] * (2 if name == "segmentation" else 0))
    assert float(distance(other, outputs, 2.0)) > 0.01


def mean_absolute(outputs, targets):
    return (outputs.squeeze(1) - targets).abs()


OWN = Task(lambda o, t: mean_absolute(o, t).mean(), mean_absolute, (Metric("error", "lower", torch.mean),))


def test_a_task_of_one_s_own_is_tried_on_two_examples():
    outputs, targets = torch.ones(2, 1), torch.zeros(2)
    try_task(OWN, outputs, targets)
    assert OWN.primary.of(OWN.rows(outputs, targets)) == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": lambda o, t: mean_absolute(o, t)}, r"loss must give one number, .* of shape \(2,\)$"),
        ({"loss": lambda o, t: 1.0}, "loss must give one number, .*, got float$"),
        ({"loss": lambda o, t: mean_absolute(o, t).mean().detach()}, "^loss must pass a gradient"),
        ({"loss": lambda o, t: -o.mean()}, r"^loss must be at least 0, or the task say signed = True, got -1$"),
        ({"observe": lambda o, t: o.mean()}, "^observe of a task must give a row an example, 2 in all"),
        ({"metrics": (Metric("m", "lower", lambda s: s),)}, r"^metric 'm' must be one number, got shape \(2, 1\)$"),
        ({"metrics": (Metric("m", "lower", lambda s: "x"),)}, "^metric 'm' must be one number, got str$"),
    ],
)
def test_what_is_wrong_with_a_task_of_one_s_own_is_one_line(changes, message):
    import dataclasses

    with pytest.raises(ValueError, match=message):
        try_task(dataclasses.replace(OWN, **changes), torch.ones(2, 1), torch.zeros(2))


def test_test_targets_are_as_many_numbers_as_training_targets():
    task = Regression().task(torch.zeros(5, 2), ())
    task.check_targets(torch.zeros(3, 2))
    for targets in (torch.zeros(3, 1), torch.zeros(3)):
        with pytest.raises(ValueError, match=r"^targets must be 2 numbers an example, as the training examples have"):
            task.check_targets(targets)
    one = Regression().task(torch.zeros(5), ())
    one.check_targets(torch.zeros(3, 1))
    with pytest.raises(ValueError, match=r"numbers of shape \(n,\) or \(n, k\), got torch\.complex64 of shape"):
        one.check_targets(torch.zeros(3, dtype=torch.complex64))


@pytest.mark.parametrize("gives", [3, "", "a b"])
def test_outputs_have_a_name(gives):
    with pytest.raises(ValueError, match="gives must be a name for the outputs"):
        replace(Regression().task(torch.zeros(5), ()), gives=gives)


def test_the_page_on_tasks_shows_one_that_trains():
    """Of 90 % quantiles 0 and targets 2 and −2: 0.9·2 and 0.1·2, one of two covered."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "your_own_task.md"
    named: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, named)
    task = named["quantiles"]()
    outputs, targets = torch.zeros(2, 1), torch.tensor([2.0, -2.0])
    try_task(task, outputs, targets)
    assert float(task.loss(outputs, targets)) == pytest.approx(1.0)
    assert measured(task, outputs, targets) == {"pinball_loss": pytest.approx(1.0), "coverage": 0.5}
    assert named["rank"].of(torch.tensor([[1.0, 1.0], [2.0, 3.0]])) == pytest.approx(1.0, rel=1e-4)


def test_metrics_have_names_of_their_own():
    with pytest.raises(ValueError, match=r"^a metric's name must be letters, digits and underscores, got 'local'$"):
        Metric("local", "higher", torch.mean)
    with pytest.raises(ValueError, match=r"^better of metric 'm' must be 'higher' or 'lower', got 'up'$"):
        Metric("m", "up", torch.mean)  # type: ignore[arg-type]
    twice = Metric("m", "higher", torch.mean)
    with pytest.raises(ValueError, match=r"^metrics of a task must have different names, got m, m$"):
        Task(OWN.loss, OWN.observe, (twice, twice))
