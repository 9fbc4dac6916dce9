"""MNIST and Fashion-MNIST: 70,000 grey images of 28x28 pixels in 10 classes, in IDX files of the same names.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-based learning applied to document recognition, Proceedings of the
IEEE 86, 1998. H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, arXiv:1708.07747.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedfibos.data.idx import plain_or_gz, read_idx
from fedfibos.data.images import ImageData
from fedfibos.data.split import Split, checked_images

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True)
class Mnist:
    """What distinguishes MNIST from Fashion-MNIST.

    Attributes:
        name: As given to ``load``.
        folders: Names of its folder inside a data folder. The files have the same names, so each needs its own.
        installed: Where Debian's package of the data set puts the files; None: there is no such package.
        mean: Mean of the training images, white being 1.
        std: Standard deviation of the training images.
        classes: Names of the classes.
        rows: Training and test images there must be.
    """

    name: str
    folders: tuple[str, ...]
    installed: Path | None
    mean: float
    std: float
    classes: tuple[str, ...]
    rows: tuple[int, int] = (60_000, 10_000)

    @property
    def wanted(self) -> str:
        """Which file to put where."""
        put = f"put {', '.join(f'{name}.gz' for name in FILES)} into {self.folders[0]}/ of the data folder"
        return put if self.installed is None else f"{put}, or install Debian's package dataset-{self.installed.name}"

    def find(self, data_dir: Path | None) -> Path | None:
        """The first folder with any of the four files, in the data folder or where Debian puts them."""
        folders = [data_dir / name for name in self.folders] if data_dir is not None else []
        for folder in (*folders, *([self.installed] if self.installed is not None else [])):
            if any(path.is_file() for name in FILES for path in (folder / name, folder / f"{name}.gz")):
                return folder
        return None

    def read(self, folder: Path) -> Split:
        """Read the four files.

        Raises:
            FileNotFoundError: One of the four is missing.
            ValueError: A file that is damaged, truncated or of another shape, or labels out of range.
        """
        halves = []
        for n, images_name, labels_name in zip(self.rows, FILES[::2], FILES[1::2], strict=True):
            images_file, labels_file = plain_or_gz(folder, images_name), plain_or_gz(folder, labels_name)
            images, labels = read_idx(images_file, (n, 28, 28)), read_idx(labels_file, (n,))
            pixels, classes = checked_images(images[:, None], labels, (n, 1, 28, 28), len(self.classes), labels_file)
            halves.append(ImageData(pixels, classes, mean=(self.mean,), std=(self.std,)))
        return Split(halves[0], halves[1], self.classes, self.name)


MNIST = Mnist("mnist", ("mnist", "MNIST/raw"), None, 0.1307, 0.3081, tuple("0123456789"))

FASHION_MNIST = Mnist(
    "fashion_mnist",
    ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw"),
    Path("/usr/share/datasets/fashion-mnist"),
    0.2860,
    0.3530,
    (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
)
