"""The next token of a text: cross-entropy at every place but the last, and perplexity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedfibos.tasks.task import Kind, Metric, Task, check_shape


@dataclass(frozen=True)
class LanguageModelling:
    """The next token of a text: mean cross-entropy over the tokens, of scores of shape ``(n, length, tokens)``.

    Targets are the token ids of the inputs themselves, shape ``(n, length)``: the scores at a place are of the token
    after it, so the model must not look ahead.

    Attributes:
        ignore: The target of places that are no token (padding) and count nowhere.
    """

    ignore: int = -100

    needs_classes: ClassVar[bool] = False
    targets: ClassVar[Kind] = "tokens"

    def task(self, targets: Tensor, classes: tuple[str, ...]) -> Task:
        """The task on a data set, whose classes, where it names any, are its tokens."""
        number = len(classes) or (int(targets.max()) + 1 if targets.numel() else 0)
        return Task(
            partial(next_token_loss, ignore=self.ignore),
            partial(costs, ignore=self.ignore),
            (Metric("perplexity", "lower", perplexity), Metric("token_accuracy", "higher", right_tokens, share=True)),
            check=partial(check_scores, number),
            check_targets=partial(check_tokens, number, self.ignore),
            outputs=number,
            distance=softened_tokens,
            name="language-modelling",
            gives="logits",
        )


def _shifted(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and the tokens that they are of: classes behind examples, as torch's losses take them."""
    return logits[:, :-1].float().transpose(1, 2), tokens[:, 1:]


def next_token_loss(logits: Tensor, tokens: Tensor, *, ignore: int) -> Tensor:
    """Mean cross-entropy over the tokens of a batch; 0 of a batch without any."""
    scores, wanted = _shifted(logits, tokens)
    losses = cross_entropy(scores, wanted, ignore_index=ignore, reduction="none")
    return losses.sum() / (wanted != ignore).sum().clamp_min(1)


def costs(logits: Tensor, tokens: Tensor, *, ignore: int) -> Tensor:
    """Of every text: the sum of its tokens' cross-entropies, how many are right, how many there are."""
    scores, wanted = _shifted(logits, tokens)
    losses = cross_entropy(scores, wanted, ignore_index=ignore, reduction="none")
    known = wanted != ignore
    return torch.stack([losses.sum(1), ((scores.argmax(1) == wanted) & known).sum(1), known.sum(1)], 1)


def perplexity(seen: Tensor) -> Tensor:
    """exp of the mean cross-entropy of a token."""
    return (seen[:, 0].sum() / seen[:, 2].sum()).exp()


def right_tokens(seen: Tensor) -> Tensor:
    """Share of the tokens of which the largest score is."""
    return seen[:, 1].sum() / seen[:, 2].sum()


def softened_tokens(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T²·KL of the softened scores, mean over all places."""
    student, wanted = ((of.float() / temperature).log_softmax(-1) for of in (logits, teacher))
    return temperature**2 * (wanted.exp() * (wanted - student)).sum(-1).mean()


def check_scores(number: int, logits: object, tokens: Tensor) -> None:
    """Raise ValueError unless outputs are a score a token at every place."""
    check_shape("scores", logits, (len(tokens), tokens.shape[1], number), "one a token at every place")


def check_tokens(number: int, ignore: int, tokens: Tensor) -> None:
    """Raise ValueError unless targets are token ids."""
    if tokens.dtype != torch.int64 or tokens.dim() != 2 or tokens.shape[1] < 2:
        got = f"{tokens.dtype} of shape {tuple(tokens.shape)}"
        raise ValueError(f"targets must be token ids, int64 of shape (n, length), of length 2 at least, got {got}")
    wrong = tokens[((tokens < 0) | (tokens >= number)) & (tokens != ignore)]
    if len(wrong):
        raise ValueError(f"targets must be in 0..{number - 1}, or {ignore} (task.ignore), got {int(wrong[0])}")
    if bool((tokens[:, 1:] == ignore).all()):
        raise ValueError(f"targets must have a token after the first that is not {ignore} (task.ignore), got none")
