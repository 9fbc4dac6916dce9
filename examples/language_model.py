"""Language modelling on the texts of AG News: the commonest words, and a small transformer that looks back only."""

from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fedfibos import Split, TensorData, TextData, load

NO_TOKEN = -100


def news(folder: Path | None, train: int = 6000, test: int = 1000, words: int = 2000, length: int = 32) -> Split:
    """The first texts, cut to ``length`` words; every client has texts of one topic, as owners say."""
    split = load("ag_news", folder)
    assert isinstance(split.train, TextData)
    assert isinstance(split.test, TextData)
    texts = [text.lower().split() for text in (*split.train.texts[:train], *split.test.texts[:test])]
    known = [word for word, _ in Counter(word for text in texts[:train] for word in text).most_common(words - 1)]
    numbers = {word: number for number, word in enumerate(known, 1)}  # 0 is any other word
    tokens = torch.full((len(texts), length), NO_TOKEN)
    for row, text in enumerate(texts):
        found = [numbers.get(word, 0) for word in text[:length]]
        tokens[row, : len(found)] = torch.tensor(found)
    inputs = tokens.clamp_min(0)
    clients = 5 * split.train.labels[:train] + torch.arange(train) % 5  # twenty, five of each topic
    readers = 5 * split.test.labels[:test] + torch.arange(test) % 5
    return Split(
        TensorData(inputs[:train], tokens[:train]),
        TensorData(inputs[train:], tokens[train:]),
        classes=("<other>", *known),
        owners=clients,
        test_owners=readers,
    )


class Block(nn.Module):
    """Attention to what came before, then a layer for each place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries, self.keys, self.values = (nn.Linear(width, width) for _ in range(3))
        self.out, self.wide, self.narrow = (
            nn.Linear(width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Shape ``(batch, length, width)``, as it came."""
        normed = self.before(x)
        parts = (part(normed) for part in (self.queries, self.keys, self.values))
        q, k, v = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y: Tensor = x + self.narrow(self.wide(self.between(x)).relu())
        return y


class LanguageModel(nn.Module):
    """Called with the number of tokens as ``num_classes``."""

    def __init__(
        self, num_classes: int, input_shape: tuple[int, ...], width: int = 64, layers: int = 2, heads: int = 4
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(num_classes, width)
        self.places = nn.Embedding(input_shape[0], width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at every place, shape ``(batch, length, tokens)``."""
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        scores: Tensor = self.head(self.norm(self.blocks(x)))
        return scores

    def channel_units(self) -> dict[str, int]:
        """Attention is cut in whole heads: layer -> channels of one."""
        return {f"blocks.{n}.queries": block.size for n, block in enumerate(self.blocks) if isinstance(block, Block)}
