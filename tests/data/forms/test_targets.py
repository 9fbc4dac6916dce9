"""What a task wants as targets of data in files: the same column a class or a number, several of them, or a refusal."""

from __future__ import annotations

import json

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from fedfibos.config.task import TaskChoice
from fedfibos.data import load
from fedfibos.data.forms.targets import Wanted

CLASSES, NUMBERS, MARKS, MAPS, TOKENS = (
    TaskChoice(name).wanted()
    for name in ("classification", "regression", "multilabel", "segmentation", "language-modelling")
)
OWN = Wanted("any", "my_code:task")
ROWS = "x,price,area,new,kind,who\n" + "".join(
    f"{n},{n / 4},{10 * n},{n % 2},{'cat' if n % 2 else 'dog'},{'ann' if n < 4 else 'bob'}\n" for n in range(8)
)
ALL = {"standardise": False, "test_share": 0.25}


@pytest.fixture
def csv(tmp_path):
    file = tmp_path / "my.csv"
    file.write_text(ROWS)
    return file


def by_input(split) -> dict[int, object]:
    """The target of every example, training and test, by its first input."""
    return {
        int(row.flatten()[0]): label
        for data in (split.train, split.test)
        for row, label in zip(data.inputs, data.labels.tolist(), strict=True)
    }


def refused(name, wanted, **options) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        load(name, options=options, wanted=wanted)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_task_decides_what_a_column_is(csv):
    numbers = load(f"csv:{csv}", options={**ALL, "inputs": ["x"], "label": "area"}, wanted=NUMBERS)
    assert (numbers.classes, numbers.train.labels.dtype, numbers.train.labels.shape) == ((), torch.float32, (6,))
    assert by_input(numbers) == {n: 10.0 * n for n in range(8)}
    classes = load(f"csv:{csv}", options={**ALL, "inputs": ["x"], "label": "new"}, wanted=CLASSES)
    assert (classes.classes, by_input(classes)[3]) == (("0", "1"), 1)


def test_several_columns_are_several_numbers_or_several_labels(csv):
    both = load(f"csv:{csv}", options={**ALL, "inputs": ["x"], "label": ["price", "area"]}, wanted=NUMBERS)
    assert by_input(both)[6] == [1.5, 60.0]
    table = pa.table({"x": list(range(8)), "a": [n % 2 for n in range(8)], "b": [n > 3 for n in range(8)]})
    parquet.write_table(table, csv.parent / "m.parquet")
    marks = load(f"parquet:{csv.parent / 'm.parquet'}", options={**ALL, "label": ["a", "b"]}, wanted=MARKS)
    assert (marks.classes, marks.train.inputs.shape[1]) == (("a", "b"), 1)
    assert by_input(marks)[5] == [1.0, 1.0]
    assert by_input(marks)[6] == [0.0, 1.0]


def test_owners_of_numbers(csv, caplog):
    with caplog.at_level("INFO", "fedfibos"):
        split = load(f"csv:{csv}", options={**ALL, "inputs": ["x"], "label": "price", "owner": "who"}, wanted=NUMBERS)
    assert split.owners.tolist() == [0, 0, 0, 1, 1, 1]
    assert split.test_owners.tolist() == [0, 1]
    with caplog.at_level("INFO", "fedfibos"):
        load(f"csv:{csv}", options={**ALL, "inputs": ["x"], "label": "price"}, wanted=NUMBERS)
    assert [line.rpartition("(")[2] for line in caplog.messages] == [
        "drawn: 25 % of every owner's, split_seed 0)",
        "drawn: 25 % of all, split_seed 0)",
    ]


def test_a_test_file_may_have_numbers_that_no_training_row_has(csv):
    (csv.parent / "test.csv").write_text("x,price\n100,99.5\n")
    split = load(
        f"csv:{csv}",
        options={"inputs": ["x"], "label": "price", "test": "test.csv", "standardise": False},
        wanted=NUMBERS,
    )
    assert (split.test.inputs.tolist(), split.test.labels.tolist()) == ([[100.0]], [99.5])


@pytest.mark.parametrize(
    ("wanted", "label", "said"),
    [
        (NUMBERS, "kind", "column 'kind' must be one number an example, or several, as task.name = 'regression' wants, got string"),  # noqa: E501
        (MARKS, ["new", "area"], "columns 'new', 'area' must be 0 or 1 for every label, a column each, as task.name = 'multilabel' wants, got 10"),  # noqa: E501
        (MARKS, "new", "column 'new' must be 0 or 1 for every label, a column each, as task.name = 'multilabel' wants, got int64 of shape (8,)"),  # noqa: E501
        (CLASSES, ["new", "kind"], "columns 'new', 'kind' must be one class an example, text or a whole number, as task.name = 'classification' wants, got 2 columns; numbers are predicted by task.name = 'regression', many labels at once by 'multilabel'"),  # noqa: E501
        (MAPS, "new", "column 'new' must be a class for every pixel, whole numbers of shape (height, width), as task.name = 'segmentation' wants, got int64 of shape (8,)"),  # noqa: E501
        (TOKENS, "new", "data.options.inputs must be the one column of token ids, lists of whole numbers, as task.name = 'language-modelling' wants, got no column of lists"),  # noqa: E501
        (NUMBERS, "prize", "data.options.label must be one of 'x', 'price', 'area', 'new', 'kind', 'who', got 'prize'; did you mean 'price'?"),  # noqa: E501
    ],
)  # fmt: skip
def test_a_column_that_the_task_cannot_learn_is_refused(csv, wanted, label, said):
    assert refused(f"csv:{csv}", wanted, label=label) == f"{csv}: {said}"


def test_columns_are_named_once(csv):
    assert refused(f"csv:{csv}", NUMBERS, label=["price", "price"]) == (
        "data.options.label must be a column, or several different ones, got ['price', 'price']"
    )
    assert refused(f"csv:{csv}", NUMBERS, label="price", inputs=["x", "price"]).endswith(
        "inputs must not be what is to be learnt, got 'price', which is a label too"
    )


@pytest.mark.parametrize("gap", ["nan", "NULL", "#N/A"])
def test_text_for_no_label_is_a_gap(csv, gap):
    csv.write_text(ROWS.replace("3,0.75,30,1,cat", f"3,0.75,30,1,{gap}"))
    assert refused(f"csv:{csv}", CLASSES, inputs=["x"], label="kind") == (
        f"{csv}: column 'kind' must have no gaps, got {gap!r} in row 3"
    )


def test_lists_of_an_example_s_labels(tmp_path):
    def written(rows):
        parquet.write_table(pa.table({"x": list(range(len(rows))), "label": rows}), tmp_path / "l.parquet")
        return f"parquet:{tmp_path / 'l.parquet'}"

    tags = load(written([["b"], ["a", "b"], [], ["c"]]), options=ALL, wanted=MARKS)
    assert tags.classes == ("a", "b", "c")
    assert by_input(tags) == {0: [0, 1, 0], 1: [1, 1, 0], 2: [0, 0, 0], 3: [0, 0, 1]}
    marks = load(written([[0, 0, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]]), options=ALL, wanted=MARKS)
    assert (marks.classes, by_input(marks)[1]) == (("0", "1", "2"), [1, 0, 1])
    assert "lists of no labels" in refused(written([[], []] * 4), MARKS)
    assert "got 2" in refused(written([[0, 0, 2]] * 4), MARKS)


def test_token_ids_of_a_parquet_file(tmp_path):
    rows = [[n, n + 1, 2] for n in range(8)]
    parquet.write_table(pa.table({"input_ids": rows, "mask": [1] * 8}), tmp_path / "t.parquet")
    split = load(f"parquet:{tmp_path / 't.parquet'}", options={"test_share": 0.25}, wanted=TOKENS)
    assert (split.train.inputs.dtype, torch.equal(split.train.inputs, split.train.labels)) == (torch.int64, True)
    assert by_input(split)[5] == [5, 6, 2]


def npz(file, **arrays) -> str:
    zeros = np.zeros((4, 2, 2), np.uint8)
    np.savez(file, **{"train_images": zeros, "test_images": zeros, **arrays})
    return f"npz:{file}"


def test_arrays_of_numpy(tmp_path):
    chest = np.eye(4, 3, dtype=np.uint8)
    name = npz(tmp_path / "a.npz", train_labels=chest, test_labels=chest)
    split = load(name, wanted=MARKS)
    assert (split.classes, split.train.labels[1].tolist()) == (("0", "1", "2"), [0, 1, 0])
    assert load(name, wanted=NUMBERS).train.labels.shape == (4, 3)
    assert "many labels at once by 'multilabel'" in refused(name, CLASSES)
    ages = np.array([[1.5], [2], [3], [4]])
    name = npz(tmp_path / "b.npz", train_labels=ages, test_labels=ages)
    assert load(name, wanted=NUMBERS).train.labels.tolist() == [1.5, 2, 3, 4]
    assert "numbers are predicted by task.name = 'regression'" in refused(name, CLASSES)
    masks = np.array([[[0, 2], [255, 1]]] * 4, np.uint8)
    name = npz(tmp_path / "c.npz", train_labels=masks, test_labels=masks)
    split = load(name, wanted=TaskChoice("segmentation", {"ignore": 255}).wanted())
    assert (split.classes, split.train.labels.dtype) == (("0", "1", "2"), torch.int64)
    tokens = np.arange(12).reshape(4, 3)
    name = npz(tmp_path / "d.npz", train_images=tokens, test_images=tokens, train_labels=ages, test_labels=ages)
    assert load(name, wanted=TOKENS).train.labels[1].tolist() == [3, 4, 5]


def test_classes_of_an_archive_may_be_text(tmp_path):
    labels = np.array(["dog", "cat", "dog", "cat"])
    split = load(npz(tmp_path / "a.npz", train_labels=labels, test_labels=labels))
    assert (split.classes, split.train.labels.tolist()) == (("cat", "dog"), [1, 0, 1, 0])


def test_users_of_leaf(tmp_path):
    def written(labels):
        users = {"u": {"x": [[n, 1] for n in range(len(labels))], "y": labels}}
        (tmp_path / "all.json").write_text(json.dumps({"users": ["u"], "user_data": users}))
        return f"leaf:{tmp_path}"

    share = {"test_share": 0.25}
    assert by_input(load(written([0.5, 1, 2.5, 3]), options=share, wanted=NUMBERS)) == {0: 0.5, 1: 1, 2: 2.5, 3: 3}
    assert by_input(load(written([[0, 1]] * 4), options=share, wanted=MARKS))[3] == [0, 1]
    assert "got 0.5 of user 'u'" in refused(written([0.5, 1]), CLASSES)
    assert "lists of several lengths" in refused(written([[0, 1], [0]]), MARKS)
    assert "got NoneType, float" in refused(written([None, 1.5]), NUMBERS)
    assert load(written([1.0] * 4), options=share, wanted=TOKENS).train.inputs.shape == (3, 2)


def test_a_saved_folder_with_lists_of_named_labels(tmp_path):
    features = datasets.Features(
        {
            "x": datasets.Value("float32"),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["joy", "fear", "awe"])),
            "grade": datasets.ClassLabel(names=["low", "high"]),
        }
    )
    rows = {"x": [0.0, 1, 2, 3], "tags": [[2], [0, 1], [], [0]], "grade": [0, 1, 0, 1]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    name = f"hf:{tmp_path / 'saved'}"
    tags = load(name, options={**ALL, "label": "tags", "inputs": ["x"]}, wanted=MARKS)
    assert (tags.classes, by_input(tags)[0], by_input(tags)[1]) == (("joy", "fear", "awe"), [0, 0, 1], [1, 1, 0])
    grades = load(name, options={**ALL, "label": "grade", "inputs": ["x"]}, wanted=NUMBERS)
    assert (grades.classes, by_input(grades)[3]) == ((), 1.0)


def test_folders_are_classes(tmp_path):
    assert refused(f"folder:{tmp_path}", NUMBERS) == (
        f"{tmp_path}: targets must be one number an example, or several, as task.name = 'regression' wants, got the "
        "folder that an image lies in, its class"
    )


def test_a_task_of_the_user_s_own_gets_a_column_as_it_lies(csv):
    def loaded(label):
        return load(f"csv:{csv}", options={**ALL, "inputs": ["x"], "label": label}, wanted=OWN)

    assert (by_input(loaded("kind"))[1], loaded("kind").classes) == (0, ("cat", "dog"))
    assert (by_input(loaded("new"))[1], loaded("new").classes) == (1, ("0", "1"))
    assert (by_input(loaded("area"))[3], loaded("area").classes) == (30, ())  # counts, not the fourth class
    assert (by_input(loaded("price"))[3], loaded("price").train.labels.dtype) == (0.75, torch.float32)


def test_what_a_task_of_the_user_s_own_wants(tmp_path, monkeypatch):
    (tmp_path / "wants_code.py").write_text(
        "from fedfibos import Metric, Task\n"
        "def made(classes=True):\n"
        "    metrics = (Metric('m', 'lower', lambda seen: seen.mean()),)\n"
        "    return Task(lambda o, t: o.mean(), lambda o, t: o, metrics, classes=classes)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert TaskChoice("wants_code:made").wanted() == Wanted("classes", "classification")
    assert TaskChoice("wants_code:made", {"classes": False}).wanted() == Wanted("any", "wants_code:made")
