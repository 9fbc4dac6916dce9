"""``hf:PATH``: folders that ``datasets`` saved, and what is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from PIL import Image

from fedfibos.common.extras import MissingExtraError
from fedfibos.data import load


@pytest.fixture(scope="module")
def datasets():
    return pytest.importorskip("datasets", reason="the extra hf")


def images(number: int) -> list[Image.Image]:
    return [Image.fromarray(np.full((4, 4, 3), n, dtype=np.uint8)) for n in range(number)]


@pytest.fixture
def saved(tmp_path, datasets):
    """CIFAR-100's columns: an image, two labels with names, and a writer."""
    features = datasets.Features(
        img=datasets.Image(),
        fine_label=datasets.ClassLabel(names=["rose", "tulip", "oak"]),
        coarse_label=datasets.ClassLabel(names=["flower", "tree"]),
        writer=datasets.Value("string"),
    )

    def half(number: int):
        columns = {
            "img": images(number),
            "fine_label": [n % 3 for n in range(number)],
            "coarse_label": [int(n % 3 == 2) for n in range(number)],
            "writer": ["zoe" if n < 2 else "al" for n in range(number)],
        }
        return datasets.Dataset.from_dict(columns, features=features)

    datasets.DatasetDict(train=half(9), test=half(4)).save_to_disk(str(tmp_path / "both"))
    half(9).save_to_disk(str(tmp_path / "one"))
    return tmp_path


def refused(path, **options) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        load(f"hf:{path}", options=options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_labels_and_owners_by_the_names_of_their_columns(saved):
    split = load(f"hf:{saved / 'both'}", options={"label": "fine_label", "owner": "writer"})
    assert split.classes == ("rose", "tulip", "oak")
    assert split.train.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert split.owners.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert (split.test.labels.tolist(), split.test_owners.tolist()) == ([0, 1, 2, 0], [1, 1, 0, 0])
    assert split.train.batch(torch.arange(2)).shape == (2, 3, 4, 4)
    assert split.train.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3]
    assert load(f"hf:{saved / 'both'}", options={"label": "coarse_label"}).classes == ("flower", "tree")


def test_one_data_set_is_split_here(saved):
    split = load(f"hf:{saved / 'one'}", options={"label": "fine_label", "test_share": 0.34})
    assert (split.train.labels.bincount().tolist(), split.test.labels.bincount().tolist()) == ([2, 2, 2], [1, 1, 1])


def test_texts_and_numbers(tmp_path, datasets):
    data = datasets.Dataset.from_dict({"sentence": ["a b", "c", "d", "e"], "label": ["x", "y"] * 2, "n": [1, 2, 3, 4]})
    data.save_to_disk(str(tmp_path / "t"))
    split = load(f"hf:{tmp_path / 't'}", options={"text": "sentence", "test_share": 0.5})
    assert sorted(split.train.texts + split.test.texts) == ["a b", "c", "d", "e"]
    split = load(f"hf:{tmp_path / 't'}", options={"inputs": ["n"], "test_share": 0.5, "standardise": False})
    assert sorted(torch.cat([split.train.inputs, split.test.inputs]).flatten().tolist()) == [1, 2, 3, 4]


def test_what_is_no_such_folder_or_column_is_refused(saved):
    assert refused(saved).startswith(f"{saved}: must be a folder that save_to_disk of the library datasets wrote (")
    assert refused(saved / "both", label="fine_lable").endswith("got 'fine_lable'; did you mean 'fine_label'?")
    assert refused(saved / "both", label="fine_label", test="tset") == (
        "data.options.test must be one of 'train', 'test', got 'tset'; did you mean 'test'?"
    )
    assert refused(saved / "one", label="fine_label", test="test") == (
        f"{saved / 'one'}: data.options.test names a split, this folder holds one data set without splits"
    )


def test_a_class_without_a_label_is_refused(tmp_path, datasets):
    features = datasets.Features(x=datasets.Value("float32"), label=datasets.ClassLabel(names=["a", "b"]))
    data = datasets.Dataset.from_dict({"x": [1.0, 2.0], "label": [0, -1]}, features=features)
    data.save_to_disk(str(tmp_path / "d"))
    assert refused(tmp_path / "d") == f"{tmp_path / 'd'}: labels must be in 0..1, got -1 in row 1"


def test_without_the_library_the_command_that_installs_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"^datasets is not installed: pip install 'fedfibos\[hf\]'$"):
        load(f"hf:{tmp_path}")
