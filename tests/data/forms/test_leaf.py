"""``leaf:PATH``: users with training and test examples of their own, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch

from fedfibos.data import load


def written(file, by_user: dict[str, tuple[list, list]], **others) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(by_user),
        "num_samples": [len(y) for _, y in by_user.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in by_user.items()},
    }
    file.write_text(json.dumps(content | others))


def refused(path, **options) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        load(f"leaf:{path}", options=options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def femnist(tmp_path):
    pixels = [[n / 10, 0.5, 0.5, 0.5] for n in range(6)]
    written(tmp_path / "train" / "a.json", {"f2": (pixels[:2], [3, 1]), "f1": (pixels[2:3], [1])})
    written(tmp_path / "train" / "b.json", {"f3": (pixels[3:4], [3])})
    written(tmp_path / "test" / "a.json", {"f3": (pixels[4:5], [1]), "f2": (pixels[5:], [3])})
    return tmp_path


def test_users_have_their_own_training_and_test_examples(femnist):
    split = load(f"leaf:{femnist}")
    assert split.classes == ("1", "3")
    assert split.train.labels.tolist() == [1, 0, 0, 1]
    assert split.owners.tolist() == [1, 1, 0, 2]
    assert (split.test.labels.tolist(), split.test_owners.tolist()) == ([0, 1], [2, 1])
    assert split.train.inputs[:, 0].tolist() == pytest.approx([0, 0.1, 0.2, 0.3])
    shaped = load(f"leaf:{femnist}", options={"shape": [1, 2, 2]})
    assert shaped.train.batch(torch.arange(1)).shape == (1, 1, 2, 2)


def test_one_file_is_split_by_user(tmp_path):
    users = {user: ([[float(n)] for n in range(10)], [0, 1] * 5) for user in ("u", "v")}
    written(tmp_path / "all.json", users)
    split = load(f"leaf:{tmp_path / 'all.json'}")
    assert (split.owners.bincount().tolist(), split.test_owners.bincount().tolist()) == ([8, 8], [2, 2])
    assert load(f"leaf:{tmp_path}").owners.tolist() == split.owners.tolist()  # the folder with that file


def test_texts_and_texts_within_lists(tmp_path):
    texts = [f"to be {n}" for n in range(10)]
    written(
        tmp_path / "a.json", {"u": (texts[:5], ["a", "b", "a", "b", "a"]), "v": (texts[5:], ["b", "a", "b", "a", "b"])}
    )
    split = load(f"leaf:{tmp_path}")
    assert (split.classes, sorted(split.train.texts + split.test.texts)) == (("a", "b"), texts)
    tweets = [["1", "date", "query", "u", f"tweet {n}", "0"] for n in range(10)]
    written(tmp_path / "a.json", {"u": (tweets, [0, 4] * 5)})
    split = load(f"leaf:{tmp_path}", options={"field": 4})
    assert sorted(split.train.texts + split.test.texts) == [f"tweet {n}" for n in range(10)]
    assert refused(tmp_path, field=6).endswith(
        "data.options.field = 6 must be a place in every input, user 'u' has one without it"
    )


def test_what_is_not_of_that_layout_is_refused(tmp_path):
    file = tmp_path / "a.json"
    assert refused(tmp_path) == f"{tmp_path}: must hold .json files of LEAF's layout, got none"
    file.write_text("{")
    assert refused(tmp_path).startswith(f"{file}: must be JSON in UTF-8 (Expecting property name")
    file.write_bytes(b'{"users": ["\xe4"]}')
    assert refused(tmp_path).startswith(f"{file}: must be JSON in UTF-8 ('utf-8' codec can't decode byte 0xe4")
    file.write_text('{"data": 1}')
    assert refused(tmp_path) == f"{file}: must have users and user_data, as LEAF's files have, got data"
    written(file, {"u": ([[1.0]], [0])}, users=["u", "w"])
    assert refused(tmp_path) == f"{file}: user 'w' must have the lists x and y in user_data, got NoneType"
    written(file, {"u": ([[1.0]], [0, 1])})
    assert refused(tmp_path) == f"{file}: user 'u' must have a label an input, got 2 for 1"
    written(file, {"u": ([[1.0]], [0.5])})
    assert refused(tmp_path) == f"{file}: labels must be text or whole numbers, got 0.5 of user 'u'"
    written(file, {"u": ([[1.0], [1.0]], [1, "1"])})
    assert refused(tmp_path) == f"{tmp_path}: labels must be all text or all whole numbers, got both"
    written(file, {"u": ([[1.0], [1.0, 2.0]], [0, 1])})
    assert refused(tmp_path).startswith(f"{tmp_path}: inputs must be texts, or numbers of one shape")
    written(file, {"u": ([[1.0], [2.0]], [0, 1])})
    assert refused(tmp_path, shape=[3]) == (
        f"{tmp_path}: data.options.shape = [3] must have 1 numbers, as an input has, got 3"
    )
    written(file, {"u": ([], [])})
    assert refused(tmp_path) == f"{tmp_path}: it must have examples, got none"


def test_labels_of_test_examples_alone_are_refused(femnist):
    written(femnist / "test" / "a.json", {"f3": ([[0.0] * 4], [62])})
    assert refused(femnist) == (f"{femnist}: every class must have training examples, got '62' in test examples only")
