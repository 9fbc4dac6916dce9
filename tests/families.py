"""Small models in the published pattern of what people train, none of which the package knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo import NUM_CLASSES, VOCABULARY, Example, images, tokens


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class PackedBlock(nn.Module):
    """A vision transformer's block: queries, keys and values packed, heads and widths as the constructor had them."""

    def __init__(self, dim: int, heads: int, scale: float | None) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.scale = nn.Parameter(scale * torch.ones(dim)) if scale else None

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attention = (q * self.head_dim**-0.5 @ k.transpose(-2, -1)).softmax(dim=-1)
        mixed = self.proj((attention @ v).transpose(1, 2).reshape(batch, length, width))
        x = x + (mixed if self.scale is None else self.scale * mixed)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """ViT, and DeiT with its second token and second head; with or without layer scale."""

    def __init__(self, distilled: bool = False, scale: float | None = None) -> None:
        super().__init__()
        dim = 24
        self.patch = nn.Conv2d(3, dim, 4, 4)
        self.first = nn.Parameter(0.02 * torch.randn(1, 2 if distilled else 1, dim))
        self.position = nn.Parameter(0.02 * torch.randn(1, 16 + self.first.shape[1], dim))
        self.blocks = nn.ModuleList(PackedBlock(dim, 4, scale) for _ in range(2))
        self.norm, self.classifier = nn.LayerNorm(dim), nn.Linear(dim, NUM_CLASSES)
        self.teacher = nn.Linear(dim, NUM_CLASSES) if distilled else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        logits = self.classifier(x[:, 0])
        return logits if self.teacher is None else (logits + self.teacher(x[:, 1])) / 2


class SqueezeExcite(nn.Module):
    """Channels scaled by what all positions say together."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class InvertedResidual(nn.Module):
    """Expand, depthwise, squeeze and excite, project."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 3 * inputs
        self.expand, self.excite = nn.Conv2d(inputs, wide, 1, bias=False), SqueezeExcite(wide)
        self.depthwise = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)
        self.project = nn.Conv2d(wide, outputs, 1, bias=False)
        self.norm1, self.norm2, self.norm3 = (nn.BatchNorm2d(n) for n in (wide, wide, outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.norm1(self.expand(x)))
        y = self.excite(F.hardswish(self.norm2(self.depthwise(y))))
        y = self.norm3(self.project(y))
        return x + y if self.residual else y


def mobilenet() -> nn.Module:
    """MobileNetV3 and EfficientNet."""
    blocks = [InvertedResidual(8, 8, 1), InvertedResidual(8, 12, 2), InvertedResidual(12, 12, 1)]
    head = [conv(12, 24, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, NUM_CLASSES)]
    return nn.Sequential(conv(3, 8, 3, 2), *blocks, *head)


class Dense(nn.Module):
    """DenseNet: every layer reads the concatenation of all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(8 + 4 * i),
                nn.ReLU(),
                nn.Conv2d(8 + 4 * i, 8, 1, bias=False),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.Conv2d(8, 4, 3, padding=1, bias=False),
            )
            for i in range(3)
        )
        self.norm, self.down = nn.BatchNorm2d(20), nn.Conv2d(20, 10, 1, bias=False)
        self.last, self.classifier = nn.BatchNorm2d(10), nn.Linear(10, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        x = F.avg_pool2d(self.down(F.relu(self.norm(torch.cat(features, 1)))), 2)
        return self.classifier(F.relu(self.last(x)).mean((2, 3)))


def shuffled(x: Tensor, groups: int) -> Tensor:
    """Channels of groups interleaved."""
    batch, channels, height, width = x.shape
    x = x.view(batch, groups, channels // groups, height, width).transpose(1, 2).contiguous()
    return x.view(batch, channels, height, width)


class ShuffleUnit(nn.Module):
    """ShuffleNet V2: one half passes, the other is convolved, the halves are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        depthwise = nn.Sequential(nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half))
        self.branch = nn.Sequential(conv(half, half, 1), depthwise, conv(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        return shuffled(torch.cat((left, self.branch(right)), dim=1), 2)


def shufflenet() -> nn.Module:
    """ShuffleNet V2."""
    tail = [conv(32, 24, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, NUM_CLASSES)]
    return nn.Sequential(conv(3, 32, 3, 2), ShuffleUnit(32), ShuffleUnit(32), *tail)


class GroupedShuffle(nn.Module):
    """ShuffleNet V1: grouped pointwise convolutions with a shuffle between."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.compress = conv(3, 24), conv(24, 24, 1, groups=2)
        self.depthwise, self.expand = conv(24, 24, 3, 1, 24), conv(24, 24, 1, groups=2)
        self.classifier = nn.Linear(24, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.expand(self.depthwise(shuffled(self.compress(x), 2)))
        return self.classifier(F.relu(x + y).mean((2, 3)))


class UNet(nn.Module):
    """U-Net, with scores of pixels pooled to scores of the image; upsampled by transposed convolution or shuffle."""

    def __init__(self, shuffle: bool = False) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = conv(3, 8), conv(8, 12), conv(12, 16)
        up = nn.Sequential(nn.Conv2d(16, 48, 1), nn.PixelShuffle(2))
        self.up2 = up if shuffle else nn.ConvTranspose2d(16, 12, 2, 2)
        self.up1 = nn.ConvTranspose2d(12, 8, 2, 2)
        self.join2, self.join1 = conv(24, 12), conv(16, 8)
        self.classifier = nn.Conv2d(8, NUM_CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        y = self.up2(self.bottom(F.max_pool2d(second, 2)))
        y = self.join2(torch.cat((second, y), 1))
        y = self.join1(torch.cat((first, self.up1(y)), 1))
        return self.classifier(y).mean((2, 3))


class RecurrentClassifier(nn.Module):
    """Embedding, two recurrent layers, perhaps in both directions, mean over tokens."""

    def __init__(self, kind: type[nn.RNNBase], bidirectional: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.layer = kind(8, 12, num_layers=2, batch_first=True, bidirectional=bidirectional)
        self.classifier = nn.Linear(24 if bidirectional else 12, NUM_CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classifier(self.layer(self.embed(ids))[0].mean(1))


class Tabular(nn.Module):
    """FT-Transformer: every feature is a token; gated feed-forward; heads split by a view."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 4
        self.weight, self.bias = nn.Parameter(torch.randn(9, 16)), nn.Parameter(torch.zeros(9, 16))
        self.first = nn.Parameter(torch.randn(1, 16))
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(16) for _ in range(3))
        self.up, self.down = nn.Linear(16, 2 * 20), nn.Linear(20, 16)
        self.classifier = nn.Linear(16, NUM_CLASSES)

    def split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(-1) * self.weight + self.bias
        x = torch.cat([self.first.expand(len(x), 1, -1), x], 1)
        y = self.norm1(x)
        q, k, v = self.split(self.query(y)), self.split(self.key(y)), self.split(self.value(y))
        y = torch.softmax(q @ k.transpose(2, 3) / k.shape[-1] ** 0.5, dim=-1) @ v
        batch, heads, length, width = y.shape
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, heads * width))
        value, gate = self.up(self.norm2(x)).chunk(2, dim=-1)
        x = x + self.down(value * F.relu(gate))
        return self.classifier(F.relu(self.norm3(x[:, 0])))


class Temporal(nn.Module):
    """TCN: dilated causal convolutions in residual blocks, weights as length and direction, or plain."""

    def __init__(self, wrap: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.first = wrap(nn.Conv1d(3, 12, 3, padding=2))
        self.second = wrap(nn.Conv1d(12, 12, 3, padding=4, dilation=2))
        self.shortcut = nn.Conv1d(3, 12, 1)
        self.classifier = nn.Linear(12, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(x)[..., :-2])
        y = F.relu(self.second(y)[..., :-4])
        return self.classifier(F.relu(y + self.shortcut(x))[..., -1])


class FrozenBatchNorm(nn.Module):
    """Batch norm whose four vectors are buffers."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", 0.5 + torch.rand(channels))
        self.register_buffer("bias", torch.randn(channels))
        self.register_buffer("running_mean", torch.randn(channels))
        self.register_buffer("running_var", 0.5 + torch.rand(channels))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.reshape(1, -1, 1, 1) * (self.running_var.reshape(1, -1, 1, 1) + 1e-5).rsqrt()
        return x * scale + self.bias.reshape(1, -1, 1, 1) - self.running_mean.reshape(1, -1, 1, 1) * scale


class Bottleneck(nn.Module):
    """ResNet-50's block."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(16, 8, 1, bias=False), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.conv3 = nn.Conv2d(8, 16, 1, bias=False)
        self.norm1, self.norm2, self.norm3 = norm(8), norm(8), norm(16)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(x + self.norm3(self.conv3(y)))


class Padded(nn.Module):
    """A residual network for CIFAR whose shortcuts pad new channels with zeros (He et al., option A)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 8)
        self.conv1, self.conv2 = nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norm1, self.norm2, self.classifier = nn.BatchNorm2d(16), nn.BatchNorm2d(16), nn.Linear(16, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return self.classifier(F.relu(y + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 4, 4))).mean((2, 3)))


def bottlenecks(norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    """ResNet-50."""
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, NUM_CLASSES)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), norm(16), Bottleneck(norm), Bottleneck(norm), *tail)


class Whisper(nn.Module):
    """Whisper's encoder, mean over time."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = WhisperConfig(
            vocab_size=VOCABULARY,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            d_model=24,
            encoder_layers=1,
            encoder_attention_heads=4,
            encoder_ffn_dim=20,
            decoder_layers=1,
            decoder_attention_heads=4,
            decoder_ffn_dim=20,
            num_mel_bins=8,
            max_source_positions=10,
        )
        self.encoder, self.classifier = WhisperEncoder(config), nn.Linear(24, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.encoder(x).last_hidden_state.mean(1))


class ScoresOf(nn.Module):
    """The class scores of a ``transformers`` model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits


def of_library(kind: str, **settings: Any) -> nn.Module:
    """A small classifier of ``transformers`` with random weights."""
    import transformers

    text = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": VOCABULARY}
    images_too = ("ViT", "DeiT", "Swin", "ConvNext", "ResNet", "MobileNetV2")
    shared: dict[str, Any] = {} if kind in images_too else text
    config = getattr(transformers, f"{kind}Config")(num_labels=NUM_CLASSES, **shared, **settings)
    task = "ImageClassification" if kind in images_too else "SequenceClassification"
    return ScoresOf(getattr(transformers, f"{kind}For{task}")(config))


ENCODER = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}
PATCHES = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
}


def _image(name: str, module: nn.Module) -> Example:
    return Example(name, module, images(channels=3, side=16))


def _text(name: str, module: nn.Module) -> Example:
    return Example(name, module, tokens(length=9).clamp(min=3))


def _series(name: str, module: nn.Module, *shape: int) -> Example:
    return Example(name, module, torch.randn(6, *shape, generator=torch.Generator().manual_seed(1)))


IMAGES: dict[str, Callable[[], nn.Module]] = {
    "ConvNeXt": lambda: of_library("ConvNext", num_stages=2, hidden_sizes=[8, 16], depths=[1, 1]),
    "EfficientNet, MobileNetV3": mobilenet,
    "MobileNetV2": lambda: of_library(
        "MobileNetV2", image_size=16, depth_multiplier=0.25, depth_divisible_by=4, min_depth=4
    ),
    "ViT": lambda: of_library("ViT", **PATCHES),
    "ViT, packed qkv": VisionTransformer,
    "ViT, layer scale": lambda: VisionTransformer(scale=0.1),
    "DeiT": lambda: of_library("DeiT", **PATCHES),
    "DeiT, packed qkv": lambda: VisionTransformer(distilled=True),
    "Swin": lambda: of_library(
        "Swin", image_size=16, patch_size=2, embed_dim=12, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "ResNet-50": bottlenecks,
    "ResNet, frozen batch norm": lambda: bottlenecks(FrozenBatchNorm),
    "ResNet, padded shortcuts": Padded,
    "DenseNet": Dense,
    "ShuffleNet V1": GroupedShuffle,
    "ShuffleNet V2": shufflenet,
    "U-Net": UNet,
    "U-Net, PixelShuffle": lambda: UNet(shuffle=True),
}
TEXTS: dict[str, Callable[[], nn.Module]] = {
    "BERT": lambda: of_library("Bert", **ENCODER),
    "DistilBERT": lambda: of_library(
        "DistilBert", dim=24, n_layers=2, n_heads=4, hidden_dim=20, max_position_embeddings=16
    ),
    "ALBERT": lambda: of_library("Albert", embedding_size=10, **ENCODER),
    "ELECTRA": lambda: of_library("Electra", embedding_size=10, **ENCODER),
    "DeBERTa": lambda: of_library("Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"], **ENCODER),
    "DeBERTa V2": lambda: of_library(
        "DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"], share_att_key=True, **ENCODER
    ),
    "GPT-2": lambda: of_library("GPT2", n_positions=16, n_embd=24, n_layer=2, n_head=4),
    "Llama": lambda: of_library("Llama", num_key_value_heads=2, **ENCODER),
    "Qwen": lambda: of_library("Qwen2", num_key_value_heads=2, **ENCODER),
    "LSTM": lambda: RecurrentClassifier(nn.LSTM),
    "LSTM, both directions": lambda: RecurrentClassifier(nn.LSTM, bidirectional=True),
    "GRU": lambda: RecurrentClassifier(nn.GRU),
}
OTHERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Whisper's encoder": (Whisper, (8, 20)),
    "FT-Transformer": (Tabular, (9,)),
    "TCN": (lambda: Temporal(lambda layer: layer), (3, 20)),
    "TCN, weight norm": (lambda: Temporal(nn.utils.parametrizations.weight_norm), (3, 20)),
}
NAMES = (*IMAGES, *TEXTS, *OTHERS)


def family(name: str) -> Example:
    """Build one model, always with the same initial values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if name in OTHERS:
            build, shape = OTHERS[name]
            return _series(name, build(), *shape)
        return _image(name, IMAGES[name]()) if name in IMAGES else _text(name, TEXTS[name]())
