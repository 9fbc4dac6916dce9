"""A user's own model and data in an experiment: found, used, recorded, and what cannot be is one line."""

import hashlib
import json
import sys

import pytest
from own_code import BARE, EXPERIMENT, MINE

from fedfibos.cli import main
from fedfibos.common.validation import ExperimentError
from fedfibos.config.experiment import load_experiment, to_toml


@pytest.mark.slow
def test_a_run_with_both_from_the_current_folder_is_a_run_like_any_other(mine, capsys):
    assert main(["run", "mine.toml", "--out", "run", "--workers", "1"]) == 0
    assert main(["run", "run", "--out", "again", "--workers", "2"]) == 0  # from its record, by two processes
    finals = [json.loads((mine / name / "final.json").read_text()) for name in ("run", "again")]
    assert finals[0]["params_sha256"] == finals[1]["params_sha256"]
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    own = json.loads((mine / "run" / "environment.json").read_text())["own"]
    assert own == {"mine_of_the_test:points": digest, "mine_of_the_test:net": digest}
    assert main(["report", "run", "--out", "page.html"]) == 0
    assert "mine_of_the_test:net" in (mine / "page.html").read_text()
    assert main(["export", "run", "--capacity", "0.5", "--out", "half.safetensors"]) == 0
    capsys.readouterr()


def test_settings_are_written_out_as_far_as_toml_goes(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    experiment = load_experiment("mine.toml")
    assert experiment.model.options == {"hidden": 5}
    assert load_experiment("mine.toml", ["model.name=mine_of_the_test:net"]).model.options == {"hidden": 5}
    (mine / "mine.toml").write_text(BARE)
    text = to_toml(load_experiment("mine.toml"))
    assert "hidden = 6" in text
    assert "activation" not in text  # a class
    assert "norm" not in text.partition("[model]")[2].partition("[federation]")[0]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.name=mine_of_the_test:nets", "must have a function nets, it has none; did you mean 'net'"),
        ("model.name=mine_of_the_tes:net", "no module 'mine_of_the_tes' in the current folder or among what is"),
        ("model.name=mine_of_the_test:", "model.name must be a name of ours or 'module:function', such as"),
        ("model.name=mine_of_the_test.net", "or your own 'module:function', got 'mine_of_the_test.net'"),
        (
            "model.name=mine_of_the_test:narrow",
            "mine_of_the_test:narrow must take num_classes, it has no such parameter",
        ),
        ("model.name=mine_of_the_test:needs", "options.hidden is missing"),
        ("model.name=mine_of_the_test:NOT_A_FUNCTION", "must have a function NOT_A_FUNCTION, got 3"),
        ("model.options.hiden=3", "must take hiden, it has no such parameter; did you mean 'hidden'"),
        ("model.norm=batch", "command line: mine_of_the_test:net must take norm, it has no such parameter"),
        ("data.name=mine_of_the_test:pints", "did you mean 'points'"),
        ("model.name=3", "model.name must be one of .*, got 3"),
    ],
)
def test_one_line_errors_of_settings(mine, monkeypatch, override, message):
    monkeypatch.syspath_prepend(mine)
    if "options" not in override:
        (mine / "mine.toml").write_text(BARE)
    with pytest.raises(ExperimentError, match=message) as error:
        load_experiment("mine.toml", [override])
    assert "\n" not in str(error.value)


def test_what_goes_wrong_in_the_users_code_is_one_line_with_its_place(mine, monkeypatch, capsys):
    broken = ["run", "mine.toml", "--out", "run", "model.name=mine_of_the_test:broken"]
    (mine / "mine.toml").write_text(BARE)
    assert main(broken) == 2
    err = capsys.readouterr().err
    place = MINE.splitlines().index("    return 1 / 0") + 1
    assert err == (
        f"fedfibos: mine_of_the_test.py, line {place}: ZeroDivisionError: division by zero "
        "(in model.name = 'mine_of_the_test:broken')\n"
    )
    assert err.count("\n") == 1
    (mine / "not_python.py").write_text("def (")
    assert main([*broken[:-1], "model.name=not_python:net"]) == 2
    err = capsys.readouterr().err
    assert "SyntaxError: invalid syntax (not_python.py, line 1) (importing not_python for model.name" in err


def test_a_module_whose_import_is_missing_says_which(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    (mine / "mine_of_the_test_too.py").write_text("import no_such_library")
    with pytest.raises(ExperimentError, match="mine_of_the_test_too imports no_such_library, which is not installed"):
        load_experiment("mine.toml", ["data.name=mine_of_the_test_too:points"])


def test_code_beside_the_experiment_file_is_found_from_anywhere(mine, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert main(["run", str(mine / "mine.toml"), "--dry-run"]) == 0


def test_code_beside_the_experiment_goes_before_that_of_the_current_folder(mine):
    (mine / "sub").mkdir()
    (mine / "sub" / "mine.toml").write_text(EXPERIMENT)
    beside = MINE + "\n# another version\n"
    (mine / "sub" / "mine_of_the_test.py").write_text(beside)
    assert main(["run", "sub/mine.toml", "--out", "run", "--workers", "1"]) == 0
    assert (mine / "run" / "code" / "mine_of_the_test.py").read_text() == beside


def test_an_error_is_placed_in_the_users_file_and_not_in_the_library_that_it_called(mine, capsys):
    lines = MINE.count("\n")
    (mine / "mine_of_the_test.py").write_text(
        MINE + "\n\ndef wrong(num_classes, input_shape):\n    return torch.ones(2) @ torch.ones(3, 4)\n"
    )
    (mine / "mine.toml").write_text(BARE)
    assert main(["run", "mine.toml", "model.name=mine_of_the_test:wrong", "--out", "run"]) == 2
    assert f"fedfibos: mine_of_the_test.py, line {lines + 4}: " in capsys.readouterr().err
    (mine / "mine_of_the_test.py").write_text(
        MINE + "\n\ndef wrong(num_classes, input_shape):\n    return nn.Linear(-1, 2)\n"
    )
    sys.modules.pop("mine_of_the_test")
    assert main(["run", "mine.toml", "model.name=mine_of_the_test:wrong", "--out", "run"]) == 2
    assert f"fedfibos: mine_of_the_test.py, line {lines + 4}: " in capsys.readouterr().err
