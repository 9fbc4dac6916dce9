"""Images as 8-bit pixels; batches normalised, and augmented in training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

PADDING = 4
"""Pixels of black border on each side from which the random crop is taken (He et al., CVPR 2016, 4.2)."""


@dataclass(frozen=True, eq=False)
class ImageData:
    """Labelled images, kept as 8-bit pixels; a subset shares them and holds positions only.

    A batch is ``(pixels / white - mean) / std``, channel by channel, in float32.

    Attributes:
        pixels: uint8, shape ``(m, channels, height, width)``: all the images there are.
        classes: int64, shape ``(m,)``: the class of each; or other targets, shape ``(m, ...)``.
        mean: Mean of each channel, white being 1.
        std: Standard deviation of each channel, white being 1.
        white: The pixel value that means 1.
        crop_and_flip: Whether training batches are cropped at random from a border of four black
            pixels and mirrored with probability one half.
        chosen: int64, shape ``(n,)``: positions among the m images of those in this data set;
            None for all of them.

    Raises:
        ValueError: Tensors of another dtype or shape, not one label an image, or a mean or deviation that makes pixels
            no finite number.
    """

    pixels: Tensor
    classes: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]
    white: float = 255.0
    crop_and_flip: bool = False
    chosen: Tensor | None = None

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.dim() != 4:
            raise ValueError(
                f"pixels must be uint8 of shape (n, channels, height, width), got {self.pixels.dtype} "
                f"of shape {tuple(self.pixels.shape)}"
            )
        check_targets(self.classes, len(self.pixels))
        if not len(self.mean) == len(self.std) == self.pixels.shape[1]:
            raise ValueError(
                f"mean and std must have one value for each of {self.pixels.shape[1]} channels, "
                f"got {len(self.mean)} and {len(self.std)}"
            )
        for name, values in (("mean", self.mean), ("std", self.std), ("white", (self.white,))):
            if not all(math.isfinite(value) and (value > 0 or name == "mean") for value in values):
                wanted = "finite" if name == "mean" else "above 0"
                raise ValueError(f"{name} must be {wanted}, got {', '.join(f'{value:g}' for value in values)}")

    @cached_property
    def labels(self) -> Tensor:
        """Class of every example; int64, shape ``(n,)``."""
        return self.classes if self.chosen is None else self.classes[self.chosen]

    def __len__(self) -> int:
        return len(self.pixels) if self.chosen is None else len(self.chosen)

    def batch(self, indices: Tensor, augment: torch.Generator | None = None) -> Tensor:
        """Normalised images; float32, shape ``(b, channels, height, width)``.

        Args:
            indices: int64, shape ``(b,)``, positions in this data set.
            augment: Random stream of the crops and flips, one draw an image; None for none. A data
                set without augmentation draws nothing from it.
        """
        positions = indices if self.chosen is None else self.chosen[indices]
        images = self.pixels[positions.to(self.pixels.device)]
        if augment is not None and self.crop_and_flip:
            images = random_crop_and_flip(images, augment)
        shape = (-1, 1, 1)
        mean = torch.tensor(self.mean, device=images.device).mul_(self.white).view(shape)
        std = torch.tensor(self.std, device=images.device).mul_(self.white).view(shape)
        return images.float().sub_(mean).div_(std)

    def to(self, device: torch.device) -> ImageData:
        """The same with its pixels on a device, where batches are then made; positions and labels stay."""
        return replace(self, pixels=self.pixels.to(device))

    def subset(self, indices: Tensor) -> ImageData:
        """The images at those positions of this data set, in that order; no pixel is copied."""
        return replace(self, chosen=indices if self.chosen is None else self.chosen[indices])


@dataclass(frozen=True, eq=False)
class TensorData:
    """A user's own labelled tensors, given to the model as they are.

    Attributes:
        inputs: Any dtype, shape ``(n, ...)``.
        labels: The targets: classes, int64 of shape ``(n,)``, or whatever the task learns, shape ``(n, ...)``.

    Raises:
        ValueError: Inputs that are no dense tensor of examples, or not one target an example.
    """

    inputs: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        wanted = "inputs must be a dense torch tensor, one row an example"
        if not isinstance(self.inputs, Tensor):
            raise ValueError(f"{wanted}, got {type(self.inputs).__name__}: torch.as_tensor makes one of numbers")
        if self.inputs.layout != torch.strided or self.inputs.dim() == 0:
            raise ValueError(f"{wanted}, got {self.inputs.layout} of shape {tuple(self.inputs.shape)}")
        check_targets(self.labels, len(self.inputs))
        for name in ("inputs", "labels"):  # what is computed with gradients on would drag their graph into training
            object.__setattr__(self, name, getattr(self, name).detach())

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Tensor, augment: torch.Generator | None = None) -> Tensor:
        """The inputs at those positions; ``augment`` is not used."""
        return self.inputs[indices.to(self.inputs.device)]

    def to(self, device: torch.device) -> TensorData:
        """The same with its inputs on a device; labels stay."""
        return TensorData(self.inputs.to(device), self.labels)

    def subset(self, indices: Tensor) -> TensorData:
        """The examples at those positions, in that order (copied)."""
        return TensorData(self.inputs[indices.to(self.inputs.device)], self.labels[indices])


def random_crop_and_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by up to four pixels each way, black moving in, and mirrored half of the time.

    Args:
        images: Shape ``(b, channels, height, width)``.
        generator: CPU stream; one integer is drawn for each image.

    Returns:
        Same shape and dtype as ``images``.
    """
    b, c, h, w = images.shape
    moves = 2 * PADDING + 1
    draw = torch.randint(moves * moves * 2, (b, 1), generator=generator).to(images.device)
    mirrored, down, right = draw % 2 == 1, draw // 2 // moves, draw // 2 % moves
    column = torch.arange(w, device=images.device)
    rows = down + torch.arange(h, device=images.device)
    columns = right + torch.where(mirrored, w - 1 - column, column)
    padded = functional.pad(images, (PADDING,) * 4)
    source = rows[:, :, None] * (w + 2 * PADDING) + columns[:, None, :]
    return padded.flatten(2).gather(2, source.view(b, 1, h * w).expand(b, c, h * w)).view(b, c, h, w)


def check_targets(labels: Tensor, num_examples: int) -> None:
    """Raise ValueError unless ``labels`` is a dense tensor of one row an example."""
    if not isinstance(labels, Tensor) or labels.dim() == 0 or len(labels) != num_examples:
        check_labels(labels, num_examples)  # says what classes are: what most data sets have
    if labels.layout != torch.strided:
        raise ValueError(f"labels must be a dense tensor, got {labels.layout}")


def check_labels(labels: Tensor, num_examples: int) -> None:
    """Raise ValueError unless ``labels`` is int64 with one label an example."""
    if not isinstance(labels, Tensor):
        raise ValueError(
            f"labels must be a torch tensor, int64, one an example, got {type(labels).__name__}: torch.as_tensor makes "
            "one of whole numbers; a text becomes its position in Split.classes"
        )
    if labels.dtype != torch.int64 or labels.shape != (num_examples,):
        raise ValueError(
            f"labels must be int64 of shape ({num_examples},), one an example, got {labels.dtype} "
            f"of shape {tuple(labels.shape)}" + (": labels.long() are" if labels.shape == (num_examples,) else "")
        )
