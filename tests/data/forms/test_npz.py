"""``npz:PATH``: MedMNIST's layout, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedfibos.data import load


def arrays(shape=(4, 4), numbers=(6, 2, 3), dtype=np.uint8) -> dict[str, np.ndarray]:
    found = {}
    for half, n, first in zip(("train", "val", "test"), numbers, (0, 100, 200), strict=True):
        values = np.arange(first, first + n).astype(dtype).reshape(n, *(1 for _ in shape))
        found[f"{half}_images"] = np.broadcast_to(values, (n, *shape)).copy()
        found[f"{half}_labels"] = (np.arange(n) % 3 % 2).astype(np.uint8)[:, None]
    return found


def written(folder, content) -> str:
    np.savez_compressed(folder / "my.npz", **content)
    return f"npz:{folder / 'my.npz'}"


def refused(name: str, **options) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        load(name, options=options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("shape", "wanted"), [((4, 5), (1, 4, 5)), ((4, 5, 3), (3, 4, 5)), ((4, 5, 1), (1, 4, 5))])
def test_images_have_their_channels_first(tmp_path, shape, wanted):
    split = load(written(tmp_path, arrays(shape)))
    assert split.classes == ("0", "1")
    assert (len(split.train), len(split.test)) == (6, 3)
    assert split.train.batch(torch.arange(1)).shape[1:] == wanted
    assert split.train.labels.tolist() == [0, 1, 0, 0, 1, 0]
    assert split.test.pixels[split.test.chosen][:, 0, 0, 0].tolist() == [200, 201, 202]


def test_volumes_have_one_channel(tmp_path):
    inputs = load(written(tmp_path, arrays((4, 4, 4)))).test.inputs
    assert inputs.shape == (3, 1, 4, 4, 4)
    assert inputs[1].unique().tolist() == pytest.approx([201 / 255])


def test_numbers_are_given_as_they_are(tmp_path):
    inputs = load(written(tmp_path, arrays((7,), dtype=np.float64))).test.inputs
    assert (inputs.shape, inputs.dtype, inputs[:, 0].tolist()) == ((3, 7), torch.float32, [200, 201, 202])


def test_the_validation_images_in_place_of_the_test_set(tmp_path):
    split = load(written(tmp_path, arrays()), options={"test": "val"})
    assert split.test.pixels[split.test.chosen][:, 0, 0, 0].tolist() == [100, 101]


def test_what_is_no_such_file_is_refused(tmp_path):
    file = tmp_path / "my.npz"
    content = arrays()
    name = written(tmp_path, {key: value for key, value in content.items() if key != "test_labels"})
    assert refused(name).startswith(
        f"{file}: must have the arrays train_images, train_labels, test_images, test_labels, got no test_labels among "
    )
    assert refused(name).endswith("; did you mean 'test_images'?")
    name = written(tmp_path, content | {"train_labels": np.zeros((6, 14), dtype=np.uint8)})
    assert refused(name) == (
        f"{file}: train_labels must be one class an example, text or a whole number, as task.name = 'classification' "
        "wants, got uint8 of shape (6, 14); numbers are predicted by task.name = 'regression', many labels at once by "
        "'multilabel'"
    )
    name = written(tmp_path, content | {"train_labels": np.zeros((5, 1), dtype=np.uint8)})
    assert refused(name) == f"{file}: train_labels must have 6 rows, one an image, got 5"
    name = written(tmp_path, content | {"test_images": np.zeros((3, 8, 8), dtype=np.uint8)})
    assert refused(name) == f"{file}: training and test images must have one shape, got (4, 4) and (8, 8)"
    name = written(tmp_path, content | {"test_images": np.zeros((3, 4, 4), dtype=np.float32)})
    assert refused(name) == f"{file}: training and test images must have one dtype, got uint8 and float32"
    name = written(tmp_path, content | {"test_labels": np.array([[0], [1], [7]])})
    assert refused(name) == f"{file}: every class must have training examples, got '7' in test examples only"
    name = written(tmp_path, content | {"train_images": np.array([object()] * 6)})
    assert refused(name).startswith(f"{file}: train_images cannot be read (")
    name = written(tmp_path, content | {"train_images": np.zeros((0, 4, 4), dtype=np.uint8)})
    assert refused(name) == f"{file}: train_images must have examples, got none"


def test_a_damaged_file_is_refused(tmp_path):
    name = written(tmp_path, arrays())
    file = tmp_path / "my.npz"
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"text"):
        file.write_bytes(content)
        assert refused(name) == (
            f"{file}: must be an .npz file of numpy, an archive of arrays, got another file, or a part of one"
        )
    at = whole.index(b"train_images.npy") + 60
    file.write_bytes(whole[:at] + bytes(20) + whole[at + 20 :])
    assert refused(name).startswith(f"{file}: must be an .npz file of numpy, damaged (")
    np.save(tmp_path / "one.npy", np.zeros(3))
    assert "must be an .npz file of numpy" in refused(f"npz:{tmp_path / 'one.npy'}")
