"""``csv:PATH`` and ``parquet:PATH``: columns by name, owners, test files, and what is refused."""

from __future__ import annotations

import io
import logging

import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from fedfibos.data import load

ROWS = """height,weight,kind,who
1,10,cat,bob
2,10,dog,bob
3,10,cat,ann
4,10,dog,ann
5,10,cat,bob
6,10,dog,ann
"""
MINE = {"label": "kind", "owner": "who"}


def csv(folder, text: str = ROWS, name: str = "my.csv"):
    (folder / name).write_text(text)
    return folder / name


def refused(name: str, **options) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        load(name, options=options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_text_labels_numbers_and_owners(tmp_path, caplog):
    file = csv(tmp_path)
    with caplog.at_level(logging.INFO, "fedfibos"):
        split = load(f"csv:{file}", options={**MINE, "test_share": 0.3, "standardise": False})
    assert split.classes == ("cat", "dog")
    inputs = torch.cat([split.train.inputs, split.test.inputs])
    assert sorted(inputs[:, 0].tolist()) == [1, 2, 3, 4, 5, 6]
    assert set(inputs[:, 1].tolist()) == {10}
    labels = torch.cat([split.train.labels, split.test.labels])
    assert torch.equal(labels, (inputs[:, 0].long() + 1) % 2)
    owners = torch.cat([split.owners, split.test_owners]).tolist()
    assert owners == [0 if height in (3, 4, 6) else 1 for height in inputs[:, 0].tolist()]  # ann is 0, bob 1
    assert split.test_owners.tolist() == [1, 0] or sorted(split.test_owners.tolist()) == [0, 1]
    assert caplog.messages == [
        f"{file}: the inputs are all other columns: 'height', 'weight' (data.options.inputs chooses some)",
        f"{file}: 4 training and 2 test examples (drawn: 30 % of every owner's, split_seed 0)",
    ]


def test_columns_that_are_named_are_not_told_and_many_are_cut_short(tmp_path, caplog):
    file = csv(
        tmp_path,
        "label," + ",".join(f"c{n}" for n in range(9)) + "\n" + "a,1,2,3,4,5,6,7,8,9\nb,1,2,3,4,5,6,7,8,9\n" * 4,
    )
    with caplog.at_level(logging.INFO, "fedfibos"):
        load(f"csv:{file}", options={"inputs": ["c0"]})
        assert len(caplog.messages) == 1
        load(f"csv:{file}")
    assert (
        f"{file}: the inputs are all other columns: 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', ... ("
        in (caplog.messages[1])
    )


def test_columns_are_standardised_by_the_training_rows(tmp_path):
    split = load(f"csv:{csv(tmp_path)}", options={"label": "kind", "inputs": ["height", "weight"]})
    assert split.train.inputs[:, 0].mean().item() == pytest.approx(0, abs=1e-6)
    assert split.train.inputs[:, 0].std(correction=0).item() == pytest.approx(1)
    assert split.train.inputs[:, 1].tolist() == [0.0] * len(split.train)  # a constant column
    assert split.owners is None


def test_whole_numbers_as_labels_are_in_their_order(tmp_path):
    file = csv(tmp_path, "x,label\n" + "".join(f"{n},{10 if n % 2 else 9}\n" for n in range(10)))
    assert load(f"csv:{file}").classes == ("9", "10")


def test_a_test_file_is_the_test_set(tmp_path, caplog):
    file = csv(tmp_path)
    csv(tmp_path, "kind,height,weight,who\ndog,7,10,eve\ncat,8,10,ann\n", "test.csv")
    with caplog.at_level(logging.INFO, "fedfibos"):
        split = load(f"csv:{file}", options={**MINE, "test": "test.csv", "standardise": False})
    assert split.train.inputs[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert (split.test.inputs[:, 0].tolist(), split.test.labels.tolist()) == ([7, 8], [1, 0])
    assert (split.owners.tolist(), split.test_owners.tolist()) == ([1, 1, 0, 0, 1, 0], [2, 0])
    assert f"{file}: 6 training and 2 test examples (as the files have it)" in caplog.messages


def test_a_column_of_texts(tmp_path):
    file = csv(tmp_path, 'label;said\na;"one  two"\nb;"three\nfour"\na;five\nb;six\n')
    split = load(f"csv:{file}", options={"text": "said", "delimiter": ";", "test_share": 0.5})
    assert sorted(split.train.texts + split.test.texts) == ["five", "one two", "six", "three four"]


def test_a_column_of_names_of_images(tmp_path, picture):
    for n in range(6):
        picture(tmp_path / "scans" / f"{n}.png", n, mode="L")
    file = csv(tmp_path, "image,label\n" + "".join(f"scans/{n}.png,{'ab'[n % 2]}\n" for n in range(6)))
    split = load(f"csv:{file}", options={"image": "image", "test_share": 0.34})
    assert split.train.batch(torch.arange(1)).shape == (1, 1, 4, 4)
    (tmp_path / "scans" / "3.png").unlink()
    assert refused(f"csv:{file}", image="image") == (
        f"{file}: image in row 3, {tmp_path / 'scans' / '3.png'}: cannot be read: No such file or directory"
    )


def png(value: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 4), (value, value, value)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("as_struct", [False, True])
def test_encoded_images_in_a_parquet_file(tmp_path, as_struct):
    images = [{"bytes": png(n), "path": None} if as_struct else png(n) for n in range(6)]
    table = pa.table({"image": images, "label": ["a", "b"] * 3, "who": [7, 7, 7, 5, 5, 5]})
    parquet.write_table(table, tmp_path / "my.parquet")
    split = load(f"parquet:{tmp_path / 'my.parquet'}", options={"owner": "who", "test_share": 0.34})
    assert split.train.batch(torch.arange(1)).shape == (1, 3, 4, 4)
    assert split.owners.tolist() == [1, 1, 0, 0]
    assert split.test_owners.tolist() == [1, 0]


def test_lists_of_numbers_in_a_parquet_file(tmp_path):
    def written(values):
        parquet.write_table(pa.table({"x": values, "label": pa.array([0, 1] * 3, pa.int8())}), tmp_path / "l.parquet")
        return f"parquet:{tmp_path / 'l.parquet'}"

    split = load(written([[[n, 1.0], [2.0, 3.0]] for n in range(6)]), options={"standardise": False})
    assert split.train.inputs.shape[1:] == (2, 2)
    assert refused(written([[1.0], [float("nan")], [1.0], [1.0], [1.0], [1.0]])) == (
        f"{tmp_path / 'l.parquet'}: column 'x' must hold finite numbers of 32 bits, got nan in row 1: fill it in, or "
        "leave the row out"
    )
    assert refused(written([[1.0], [2.0, 3.0], [1.0], [1.0], [1.0], [1.0]])) == (
        f"{tmp_path / 'l.parquet'}: column 'x' must hold lists of numbers of one length each"
    )


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (ROWS, {"label": "kin"}, "data.options.label must be one of 'height', 'weight', 'kind', 'who', got 'kin'; did you mean 'kind'?"),  # noqa: E501
        (ROWS, {**MINE, "inputs": ["size"]}, "data.options.inputs must be one of 'height', 'weight', 'kind', 'who', got 'size'"),  # noqa: E501
        (ROWS, {"label": "kind"}, "column 'who' must hold numbers to be an input, got string, 'bob' in row 0: name the inputs in data.options.inputs, or a column of texts in text, of images in image"),  # noqa: E501
        (ROWS.replace("3,10,cat", ",10,cat"), MINE, "column 'height' must have no gaps, got 1, the first in row 2"),
        (ROWS.replace("3,10,cat", "?,10,cat"), MINE, "column 'height' must hold numbers to be an input, got string, '?' in row 2: name the inputs in data.options.inputs, or a column of texts in text, of images in image"),  # noqa: E501
        (ROWS.replace("3,10,cat", "inf,10,cat"), MINE, "column 'height' must hold finite numbers of 32 bits, got inf in row 2: fill it in, or leave the row out"),  # noqa: E501
        (ROWS.replace("3,10,cat", "1e300,10,cat"), MINE, "column 'height' must hold finite numbers of 32 bits, got 1e+300 in row 2: fill it in, or leave the row out"),  # noqa: E501
        (ROWS.replace(",", ";"), MINE, "must have columns separated by ',', got the one column 'height;weight;kind;who': set data.options.delimiter to ';'"),  # noqa: E501
        (ROWS.replace("4,10,dog", "4,10,"), MINE, "column 'kind' must have no gaps, got '' in row 3"),
        (ROWS, {"label": "kind", "inputs": ["weight"], "crop_and_flip": True}, "data.options.crop_and_flip is for 8-bit images, these are none"),  # noqa: E501
        (ROWS, {**MINE, "size": [2, 2]}, "data.options.size and colour are for images, name their column with image"),
        (ROWS.replace("weight", "height"), MINE, "columns must have different names, got 'height' twice"),
        ("height,label\n1,0.5\n2,1\n", {}, "column 'label' must hold text or whole numbers, one label a row, got double; numbers are predicted by task.name = 'regression'"),  # noqa: E501
        ("height,label\n", {}, "it must have examples, got none"),
        ("height,label\n1,a\n2,a\n", {}, "it must have at least 2 classes, got 'a' alone"),
        ("label\na\nb\n", {}, "it must have a column of inputs beside the label, got none"),
        ("x,label\n1,a\n2,b\n3,a\n4,b\n", {"test_share": 0.1}, "data.options.test_share = 0.1 must leave a test example, got none of 4"),  # noqa: E501
    ],
)  # fmt: skip
def test_tables_that_cannot_be_used_are_refused(tmp_path, text, options, said):
    file = csv(tmp_path, text)
    assert refused(f"csv:{file}", **options) == f"{file}: {said}"


def test_lines_of_several_lengths_are_refused(tmp_path):
    file = csv(tmp_path, "x,label\n1,a\n2,b,c\n")
    assert refused(f"csv:{file}").startswith(
        f"{file}: must be a CSV file with the columns' names in its first line (CSV parse error: Expected 2 columns, got 3"  # noqa: E501
    )


def test_another_encoding_is_refused_at_its_byte(tmp_path):
    file = tmp_path / "my.csv"
    file.write_bytes("x,label\n1,Bär\n2,Hund\n".encode("latin-1"))
    assert refused(f"csv:{file}") == f"{file}: must be text in UTF-8, byte 11 is 0xe4: save it as UTF-8"
    file.write_bytes(b"x,label\n" + b"1,a\n" * 300_000 + b"1,\xc3")  # cut within a character, behind the first block
    assert refused(f"csv:{file}") == f"{file}: must be text in UTF-8, byte 1200010 is 0xc3: save it as UTF-8"
    file.write_bytes("\ufeffx,label\n1,Bär\n2,Hund\n3,Bär\n4,Hund\n".encode())
    assert load(f"csv:{file}", options={"test_share": 0.5}).classes == ("Bär", "Hund")


def test_labels_of_the_test_file_alone_are_refused(tmp_path):
    file = csv(tmp_path)
    csv(tmp_path, "height,weight,kind,who\n7,10,cow,eve\n8,10,ant,ann\n", "test.csv")
    assert refused(f"csv:{file}", **MINE, test="test.csv") == (
        f"{file}: every class must have training examples, got 'ant' and 1 more in test examples only"
    )
    csv(tmp_path, "height,weight,kind,who\n7,10,1,eve\n8,10,0,ann\n", "test.csv")
    assert "the label column must have the type that it has in" in refused(f"csv:{file}", **MINE, test="test.csv")
    assert refused(f"csv:{file}", **MINE, test="tset.csv") == (
        f"{tmp_path / 'tset.csv'}: must be a file, got nothing there"
    )


def test_a_damaged_parquet_file_is_refused(tmp_path):
    (tmp_path / "my.parquet").write_bytes(b"PAR1 and no more")
    assert refused(f"parquet:{tmp_path / 'my.parquet'}").startswith(
        f"{tmp_path / 'my.parquet'}: must be a parquet file, damaged or truncated ("
    )
