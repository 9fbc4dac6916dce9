"""``fedfibos data --show``: the table of a partition, its picture, and what is refused."""

from __future__ import annotations

import pytest

from fedfibos.cli import main

CHANGES = """
data.name = "csv:rows.csv"
data.options = { label = "kind", owner = "who" }
data.partition.scheme = "natural"
federation.clients = 3
"""


@pytest.fixture
def here(experiment_file, tmp_path, monkeypatch):
    rows = [f"{n},{'cat' if n % 5 else 'dog'},{('u', 'v', 'w')[n // 10]}" for n in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,kind,who", *rows]))
    experiment_file(CHANGES, name="my.toml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()[:1].isdigit()]


def test_a_table_of_sizes_and_classes(here, capsys):
    assert main(["data", "--show", "my.toml"]) == 0
    said = capsys.readouterr().out
    assert "csv:rows.csv, natural, 3 clients, seed 0" in said
    assert [word for word in ("client", "train", "test", "classes", "cat", "dog") if word not in said] == []
    shown = [[int(cell) for cell in row] for row in rows_of(said)]
    assert [row[:4] for row in shown] == [[0, 8, 2, 2], [1, 8, 2, 2], [2, 8, 2, 2]]
    assert all(cats + dogs == 8 for *_, cats, dogs in shown)
    assert "a client has (least, median, most): 8, 8, 8 examples" in said


def test_overrides_and_many_clients_and_classes(here, capsys):
    (here / "rows.csv").write_text("x,kind,who\n" + "".join(f"{n},{n % 12},{n // 12}\n" for n in range(12 * 25)))
    assert main(["data", "--show", "my.toml", "federation.clients=25", "data.options.test_share=0.4"]) == 0
    said = capsys.readouterr().out
    assert "most of" in said
    assert len(rows_of(said)) == 20
    assert "and 5 clients more: --picture FILE shows all" in said


@pytest.mark.parametrize(("name", "begins"), [("p.svg", b"<?xml"), ("p.png", b"\x89PNG"), ("p.pdf", b"%PDF")])
def test_a_picture(here, capsys, name, begins):
    assert main(["data", "--show", "my.toml", "--picture", name]) == 0
    assert f"picture: {name}" in capsys.readouterr().out
    assert (here / name).read_bytes().startswith(begins)


def test_targets_that_are_no_classes_have_sizes(here, capsys):
    """A regression's clients: a table of sizes, and a picture of them."""
    change = ["task.name=regression", "data.options.label=x", "data.options.inputs=['y']"]
    (here / "rows.csv").write_text("x,y,who\n" + "".join(f"{n}.5,{n},{n // 10}\n" for n in range(30)))
    assert main(["data", "--show", "my.toml", *change, "--picture", "p.svg"]) == 0
    said = capsys.readouterr().out
    assert rows_of(said) == [["0", "8", "2"], ["1", "8", "2"], ["2", "8", "2"]]
    assert "a client has (least, median, most): 8, 8, 8 examples" in said
    drawn = (here / "p.svg").read_text()
    assert ">client<" in drawn
    assert ">class<" not in drawn


def test_what_cannot_be_shown_or_drawn_is_refused(here, capsys):
    assert main(["data", "--show", "my.toml", "--picture", "p.txt"]) == 2
    assert "a picture must be one of .svg, .png, .pdf, got 'p.txt'" in capsys.readouterr().err
    assert main(["data", "--picture", "p.svg"]) == 2
    assert "--picture goes with --show EXPERIMENT" in capsys.readouterr().err
    assert main(["data", "seed=1"]) == 2
    assert "'seed=1' goes with --show EXPERIMENT" in capsys.readouterr().err
    assert main(["data", "--show", "none.toml"]) == 2
    assert "none.toml: cannot be read" in capsys.readouterr().err
