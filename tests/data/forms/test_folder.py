"""``folder:PATH``: images by class folder, drawn or given splits, sizes and colours, and what is refused."""

from __future__ import annotations

import logging
import os

import numpy as np
import pytest
import torch
from PIL import Image

from fedfibos.data import load


@pytest.fixture
def animals(tmp_path, picture):
    """10 cats and 5 dogs; the n-th picture of a class has the value n."""
    for name, number in (("dog", 5), ("cat", 10)):
        for n in range(number):
            picture(tmp_path / "animals" / name / f"{n:02}.png", n)
    return tmp_path / "animals"


def refused(path, **options) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        load(f"folder:{path}", options=options)
    assert "\n" not in str(error.value)
    return str(error.value)


def values(data) -> list[float]:
    """The grey values that the pictures were made of."""
    mean, std = torch.tensor(data.mean).view(-1, 1, 1), torch.tensor(data.std).view(-1, 1, 1)
    return ((data.batch(torch.arange(len(data))) * std + mean) * 255).mean((1, 2, 3)).round().tolist()


def test_a_fifth_of_every_class_is_drawn_for_testing(animals, caplog):
    with caplog.at_level(logging.INFO, "fedfibos"):
        split = load(f"folder:{animals}")
    assert split.classes == ("cat", "dog")
    assert split.name == f"folder:{animals}"
    assert (split.train.labels.bincount().tolist(), split.test.labels.bincount().tolist()) == ([8, 4], [2, 1])
    assert split.train.batch(torch.arange(2)).shape == (2, 3, 4, 4)
    cats = [
        v
        for v, label in zip(
            values(split.train) + values(split.test),
            split.train.labels.tolist() + split.test.labels.tolist(),
            strict=True,
        )
        if label == 0
    ]
    assert sorted(cats) == list(range(10))
    assert f"{animals}: 12 training and 3 test examples (drawn: 20 % of every class's, split_seed 0)" in caplog.messages
    assert f"decoding 15 images of {animals}" in caplog.messages


def test_the_draw_is_the_seeds(animals):
    def drawn(seed: int) -> list[float]:
        return values(load(f"folder:{animals}", options={"split_seed": seed}).test)

    assert drawn(0) == drawn(0)
    assert len({tuple(drawn(seed)) for seed in range(6)}) > 2


def test_images_are_normalised_by_the_training_images(animals):
    data = load(f"folder:{animals}", options={"test_share": 0.4}).train
    pixels = np.array(values(data)) / 255
    assert data.mean == pytest.approx([pixels.mean()] * 3)
    assert data.std == pytest.approx([pixels.std()] * 3)


def test_folders_train_and_test_are_the_split(tmp_path, picture, caplog):
    for half, name, value in (("train", "b", 1), ("train", "a", 2), ("test", "a", 3), ("train", "a/deeper", 4)):
        picture(tmp_path / half / name / "x.jpg", value, mode="L")
    with caplog.at_level(logging.INFO, "fedfibos"):
        split = load(f"folder:{tmp_path}")
    assert (split.classes, split.train.labels.tolist(), split.test.labels.tolist()) == (("a", "b"), [0, 0, 1], [0])
    assert values(split.test) == [3]
    assert split.train.batch(torch.arange(1)).shape == (1, 1, 4, 4)
    assert f"{tmp_path}: 3 training and 1 test examples (as the files have it)" in caplog.messages


def test_classes_called_train_and_test_are_classes(tmp_path, picture):
    for name in ("train", "test"):
        for n in range(5):
            picture(tmp_path / name / f"{n}.png", n)
    assert load(f"folder:{tmp_path}").classes == ("test", "train")


def test_what_is_no_image_is_passed_over(animals):
    (animals / "cat" / "notes.txt").write_text("x")
    (animals / "cat" / ".hidden.png").write_text("x")
    (animals / ".thumbs").mkdir()
    assert len(load(f"folder:{animals}").train) == 12


def test_images_are_decoded_once_and_again_when_one_changes(animals, picture, monkeypatch):
    first = values(load(f"folder:{animals}").train)
    with monkeypatch.context() as patch:
        patch.setattr("PIL.Image.open", None)  # nothing opens an image now
        assert values(load(f"folder:{animals}").train) == first
    for n in range(10):
        picture(animals / "cat" / f"{n:02}.png", 100 + n)
        os.utime(animals / "cat" / f"{n:02}.png", ns=(1, 1))
    changed = load(f"folder:{animals}")
    assert min(v for v, k in zip(values(changed.train), changed.train.labels.tolist(), strict=True) if k == 0) >= 100


def test_several_sizes_are_refused_and_scaled_where_asked(animals, picture):
    odd = picture(animals / "cat" / "odd.png", 9, (8, 2))
    assert refused(animals) == (
        f"{animals}: images must have one size, got 2: mostly 4x4, {odd} is 8x2 (height x width); "
        "data.options.size = [4, 4] scales them"
    )
    split = load(f"folder:{animals}", options={"size": [3, 5]})
    assert split.train.batch(torch.arange(1)).shape == (1, 3, 3, 5)
    assert len(split.train) + len(split.test) == 16


def test_colours_are_those_of_all_images_or_as_asked(tmp_path, picture):
    for n in range(5):
        picture(tmp_path / "a" / f"{n}.png", n, mode="L")
        picture(tmp_path / "b" / f"{n}.png", n, mode="RGBA")

    def channels(**options):
        return load(f"folder:{tmp_path}", options=options).train.batch(torch.arange(1)).shape[1]

    assert (channels(), channels(colour="grey"), channels(colour="rgb")) == (3, 1, 3)


def test_a_picture_is_turned_as_the_camera_was_held(tmp_path, picture):
    exif = Image.Exif()
    exif[274] = 6
    for n in range(5):
        picture(tmp_path / "a" / f"{n}.jpg", n, (4, 6))
        picture(tmp_path / "b" / f"{n}.jpg", n, (6, 4), exif=exif)
    assert load(f"folder:{tmp_path}").train.batch(torch.arange(1)).shape == (1, 3, 4, 6)


def test_what_is_no_folder_of_images_is_refused(tmp_path, picture, animals):
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty") == (
        f"{tmp_path / 'empty'}: must hold a folder of images for each class, got no folder in it"
    )
    (animals / "cow").mkdir()
    assert refused(animals).startswith(f"{animals / 'cow'}: must hold images (.png, .jpg, ")
    picture(tmp_path / "one" / "only" / "0.png", 1)
    picture(tmp_path / "one" / "only" / "1.png", 1)
    assert refused(tmp_path / "one") == f"{tmp_path / 'one'}: it must have at least 2 classes, got 'only' alone"


def test_a_class_of_test_images_alone_is_refused(tmp_path, picture):
    for place in ("train/a", "train/b", "test/a", "test/c"):
        picture(tmp_path / place / "0.png", 1)
    assert refused(tmp_path) == (f"{tmp_path}: every class must have training examples, got 'c' in test examples only")


def test_an_image_that_cannot_be_read_is_named(animals, tmp_path):
    broken = animals / "dog" / "04.png"
    broken.write_bytes(broken.read_bytes()[:40])
    assert refused(animals).startswith(f"{broken}: must be an image that can be read (")
    broken.write_bytes(b"no image")
    assert refused(animals).startswith(f"{broken}: must be an image that can be read (cannot identify image file")
    Image.fromarray(np.zeros((4, 4), dtype=np.uint16)).save(broken)
    assert refused(animals) == f"{broken}: must have 8 bits a channel, got more (mode I;16)"
