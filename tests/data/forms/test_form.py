"""Forms in experiments: where paths are looked for, options and their record, and a whole run."""

from __future__ import annotations

import pytest

from fedfibos.cli import main
from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment, to_toml
from fedfibos.data import load
from fedfibos.data.forms.form import form_of

CHANGES = """
data.name = "csv:rows.csv"
data.options = { label = "kind", owner = "who" }
data.partition.scheme = "natural"
federation.clients = 3
"""


@pytest.fixture
def here(experiment_file, tmp_path, monkeypatch):
    rows = [f"{n},{n * n},{'ab'[n % 2]},{('u', 'v', 'w')[n // 10]}" for n in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y,kind,who", *rows]))
    experiment_file(CHANGES, name="my.toml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_forms_are_told_from_names_of_code():
    assert [form_of(name) for name in ("csv:a", "folder:/a:b", "mine:data", "csv", "CSV:a", "hf:", None)] == [
        "csv", "folder", None, None, None, "hf", None,
    ]  # fmt: skip


def test_relative_paths_are_looked_for_here_then_in_the_data_folder(here, monkeypatch):
    options = {"label": "kind", "owner": "who"}
    assert load("csv:rows.csv", options=options).name == "csv:rows.csv"
    assert len(load(f"csv:{here}/rows.csv", options=options).train) == 24
    (here / "else").mkdir()
    monkeypatch.chdir(here / "else")
    assert len(load("csv:../rows.csv", options=options).train) == 24
    assert len(load("csv:rows.csv", here, options).train) == 24
    monkeypatch.setenv("FEDFIBOS_DATA", str(here))
    assert len(load("csv:rows.csv", options=options).train) == 24
    monkeypatch.setenv("HOME", str(here))
    assert len(load("csv:~/rows.csv", options=options).train) == 24
    with pytest.raises(FileNotFoundError) as error:
        load("csv:rows.cvs")
    assert str(error.value) == (
        f"data.name = 'csv:rows.cvs': there is no rows.cvs in the current folder {here / 'else'} or the data folder "
        f"{here}"
    )
    with pytest.raises(FileNotFoundError, match=r"^data.name = 'csv:/no/such.csv': there is no /no/such.csv$"):
        load("csv:/no/such.csv")


def test_a_file_for_a_folder_and_the_other_way_round_are_refused(here):
    with pytest.raises(ValueError, match=r"^data.name = 'folder:rows.csv': rows.csv must be a folder, got a file$"):
        load("folder:rows.csv")
    with pytest.raises(ValueError, match=r"^data.name = 'csv:.': . must be a file, got a folder$"):
        load("csv:.")
    with pytest.raises(ValueError, match=r"^data.name = 'csv:': a path must follow the colon$"):
        load("csv:")


def test_options_are_checked_and_in_the_record(here):
    chosen = load_experiment(here / "my.toml").data.options
    assert (chosen["label"], chosen["test_share"], chosen["split_seed"]) == ("kind", 0.2, 0)
    text = to_toml(load_experiment(here / "my.toml"))
    assert "split_seed = 0\n" in text
    (here / "again.toml").write_text(text)
    assert load_experiment(here / "again.toml") == load_experiment(here / "my.toml")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.options.lable=kind", "unknown key 'data.options.lable'; did you mean 'data.options.label'?"),
        ("data.options.test_share=1.5", "data.options.test_share must be below 1.0, got 1.5"),
        ("data.options.size=[0, 4]", "data.options.size.0 must be at least 1, got 0"),
        ("data.options.text=a", None),
        ("data.options.delimiter=ab", "data.options.delimiter must be one character, got 'ab'"),
    ],
)
def test_options_that_cannot_be_are_refused(here, override, said):
    if said is None:
        assert load_experiment(here / "my.toml", [override]).data.options["text"] == "a"
        with pytest.raises(ExperimentError, match=r"text must not be given beside inputs: a model reads one of them$"):
            load_experiment(here / "my.toml", [override, "data.options.inputs=['x']"])
        return
    with pytest.raises(ExperimentError) as error:
        load_experiment(here / "my.toml", [override])
    assert str(error.value) == f"command line: {said}"


def test_a_bundled_data_set_has_no_options(here):
    with pytest.raises(ExperimentError, match=r"unknown key 'data\.options'; it must be one of 'data\.name', "):
        load_experiment(here / "my.toml", ["data.name=digits", "data.options.label=kind"])
    assert load_experiment(here / "my.toml", ["data.name=digits"]).data.options == {}
    assert "[data.options]" not in to_toml(load_experiment(here / "my.toml", ["data.name=digits"]))


def test_a_run_on_a_table_by_owner_is_recorded_and_resumed(here, capsys):
    code = main(["run", "my.toml", "--workers", "1", "--out", "run"])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "rows.csv: 24 training and 6 test examples (drawn: 20 % of every owner's, split_seed 0)" in said.err
    assert main(["run", "my.toml", "--workers", "1", "--out", "run", "--resume"]) == 0
    assert main(["evaluate", "run"]) == 0
    assert main(["run", "my.toml", "data.options.label=kin", "--out", "other"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fedfibos: rows.csv: data.options.label must be one of 'x', 'y', 'kind', 'who', got 'kin'; did you mean 'kind'?"
    )
    assert main(["run", "my.toml", "data.name=csv:rows.cvs", "--out", "other"]) == 2


def test_options_reach_a_function_of_ones_own(here, monkeypatch):
    (here / "mine_with_options.py").write_text(
        "import torch\nfrom fedfibos import Split, TensorData\n"
        "def data(folder, number=4):\n"
        "    d = TensorData(torch.zeros(number, 2), torch.arange(number) % 2)\n"
        "    return Split(d, d, ('a', 'b'))\n"
    )
    monkeypatch.syspath_prepend(str(here))
    changes = ["data.name=mine_with_options:data", "data.options.number=6"]
    chosen = load_experiment(here / "my.toml", changes)
    assert chosen.data.options == {"number": 6}
    assert len(load(chosen.data.name, None, chosen.data.options).train) == 6
