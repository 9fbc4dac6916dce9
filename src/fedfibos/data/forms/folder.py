"""``folder:PATH``: images in a folder for each class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedfibos.data.forms.pictures import Colour, Size, decode_pictures
from fedfibos.data.forms.rows import Rows, Share, SplitSeed, split_of
from fedfibos.data.forms.targets import Targets, Wanted
from fedfibos.data.split import Split

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""Names of files that are images; others are passed over."""


@dataclass(frozen=True)
class FolderOptions:
    """How images become pixels, and which of them are for testing.

    Attributes:
        size: Height and width that every image is scaled to; without it they must have one size.
        colour: ``grey`` or ``rgb``; without it, grey where all images are.
        crop_and_flip: Whether training images are cropped and mirrored at random.
        test_share: Where there is no folder ``test``: share of every class that is drawn for testing.
        split_seed: Seed of that draw.
    """

    size: Size | None = None
    colour: Colour | None = None
    crop_and_flip: bool = False
    test_share: Share = 0.2
    split_seed: SplitSeed = 0


def read_folder(path: Path, options: FolderOptions, wanted: Wanted) -> Split:
    """Read ``PATH/class/image``, or ``PATH/train/class/image`` and ``PATH/test/class/image``.

    The classes are the folders' names, in order. What begins with a dot is passed over.

    Raises:
        ValueError: No folders of images, an empty one, an image that cannot be read, images of several sizes, or a task
            that wants no classes; one line.
    """
    if wanted.kind not in ("classes", "any"):
        raise wanted.refusal(f"{path}: targets", "the folder that an image lies in, its class")
    halves = [path / "train", path / "test"]
    if all(half.is_dir() and _folders(half) for half in halves):
        train, test = _images(halves[0]), _images(halves[1])
    else:
        train, test, halves = _images(path), [], []
    files = [*train, *test]
    names = [str(file) for _, file in files]
    pixels = decode_pictures([file for _, file in files], names, str(path), options.size, options.colour)
    rows = Rows(pixels, Targets([label for label, _ in files]), num_train=len(train) if halves else None)
    return split_of(rows, str(path), options.test_share, options.split_seed, crop_and_flip=options.crop_and_flip)


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(inner for inner in path.iterdir() if inner.is_dir() and not inner.name.startswith("."))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None


def _images(path: Path) -> list[tuple[str, Path]]:
    """(Class, file) of every image, in order of their names."""
    folders = _folders(path)
    if not folders:
        raise ValueError(f"{path}: must hold a folder of images for each class, got no folder in it")
    found = []
    for folder in folders:
        files = sorted(file for file in folder.rglob("*") if _is_image(file))
        if not files:
            raise ValueError(f"{folder}: must hold images ({', '.join(SUFFIXES)}) of its class, got none")
        found += [(folder.name, file) for file in files]
    return found


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
