"""Digits: 1,797 handwritten digits of 8x8 pixels, bundled with scikit-learn.

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998
(its test part). Grey values are 0 to 16 and are divided by 16.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedfibos.common.extras import extra
from fedfibos.common.streams import stream
from fedfibos.data.images import ImageData
from fedfibos.data.split import Split, checked_images

NUM_TRAIN = 1437
NUM_TEST = 360
WANTED = "scikit-learn brings them: pip install 'fedfibos[data]'"


def find(data_dir: Path | None) -> Path | None:
    """Where scikit-learn keeps them; None where it is not installed."""
    sklearn = find_spec("sklearn")
    return None if sklearn is None or sklearn.origin is None else Path(sklearn.origin).parent / "datasets" / "data"


def read(source: Path) -> Split:
    """Read the digits.

    The set has no official split: one permutation with a fixed seed (the same for every experiment)
    gives 1,437 training and 360 test images, 80 % and 20 %.
    """
    pixels, labels = _published(source)
    images = ImageData(pixels, labels, mean=(0.0,), std=(1.0,), white=16.0)
    order = torch.randperm(len(images), generator=stream(0, "digits", "split"))
    train, test = images.subset(order[:NUM_TRAIN]), images.subset(order[NUM_TRAIN:])
    return Split(train, test, tuple("0123456789"), "digits")


@lru_cache(maxsize=1)  # scikit-learn parses a text file
def _published(source: Path) -> tuple[Tensor, Tensor]:
    """Pixels and labels as scikit-learn has them, checked."""
    with extra("data"):
        from sklearn.datasets import load_digits

    bunch = load_digits()
    return checked_images(
        bunch.images[:, None].astype(np.uint8), bunch.target, (NUM_TRAIN + NUM_TEST, 1, 8, 8), 10, source
    )
