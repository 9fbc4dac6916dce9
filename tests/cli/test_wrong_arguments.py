"""Every subcommand, fed with every kind of wrong argument: one line, exit code 2, no traceback, nothing written."""

import itertools

import pytest

from fedfibos.cli import main
from small_experiment import small_experiment

EXPERIMENT = small_experiment('method.name = "fedavg"')

FILES = {
    "missing.toml": None,
    "": None,
    "-": None,
    "null\0character.toml": None,
    "n" * 5000: None,
    "/dev/zero": None,
    "/dev/null": None,
    "folder": None,
    "empty.toml": b"",
    "picture.toml": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "utf16.toml": EXPERIMENT.encode("utf-16"),
    "latin1.toml": '[model]\nname = "gr\u00fc\u00df"'.encode("latin-1"),
    "nulls.toml": b"seed = 0\0\n",
    "json.toml": b'{"seed": 0}',
    "nested_arrays.toml": b"seed = " + b"[" * 2000 + b"]" * 2000,
    "nested_tables.toml": b"[" + b".".join([b"a"] * 2000) + b"]\nb = 1\n",
    "nested_inline.toml": b"a = " + b"{a = " * 2000 + b"1" + b"}" * 2000,
    "digits.toml": b"seed = " + b"9" * 5000,
    "wrong_types.toml": b"model = 1\nfederation = []\nmethod = 1979-05-27\n",
    "list.toml": b"model = [[1]]\n",
    "null_in_a_value.toml": b'base = "a\\u0000b.toml"\n',
    "itself.toml": b'base = "itself.toml"\n',
    "folder_as_base.toml": b'base = "folder"\n',
    "device_as_base.toml": b'base = "/dev/zero"\n',
    "huge.toml": b"# " + b"x" * 2**24,
}

READERS = {
    "run": lambda file: ["run", file, "--out", "out"],
    "dry run": lambda file: ["run", file, "--dry-run"],
    "sweep": lambda file: ["sweep", file, "--out", "out"],
    "methods": lambda file: ["methods", file],
    "axes": lambda file: ["axes", file],
    "report": lambda file: ["report", file, "--out", "page.html"],
    "audit": lambda file: ["audit", file],
    "evaluate": lambda file: ["evaluate", file],
    "diagnose": lambda file: ["diagnose", file],
    "export": lambda file: ["export", file, "--capacity", "0.5", "--out", "a.pt2"],
    "export app": lambda file: ["export", "folder", "--app", file, "--capacity", "0.5", "--out", "a.pt2"],
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "good.toml").write_text(EXPERIMENT)
    (tmp_path / "study.toml").write_text('base = "good.toml"\nseeds = [0]\n')
    return tmp_path


def refused(command, here, capsys):
    """The one line that a command is refused with."""
    before = sorted(here.rglob("*"))
    assert main(command) == 2
    err = capsys.readouterr().err
    assert err.startswith("fedfibos: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert "embedded null byte" not in err
    assert len(err) < 1000 or "n" * 5000 in err
    assert sorted(here.rglob("*")) == before
    return err


@pytest.mark.slow_where("report", "axes", "diagnose", "audit", "methods", "sweep", "export", "evaluate")
@pytest.mark.parametrize("command", READERS)
def test_a_file_that_is_none_is_one_line(here, capsys, command):
    for name, content in FILES.items():
        if content is not None:
            (here / name).write_bytes(content)
        refused(READERS[command](name), here, capsys)


OVERRIDES = [
    "seed=-1",
    "seed=1.5",
    "seed=9999999999999999999999",
    f"seed={'9' * 5000}",
    "federation.rounds=0",
    "federation.rounds=-1",
    "federation.rounds=1e18",
    "federation.rounds=1000000000000000000",
    "federation.rounds=nan",
    "federation.rounds=inf",
    "federation.rounds=true",
    "federation.rounds=[1]",
    "federation.rounds={a=1}",
    "federation.rounds=",
    "federation.clients=1000000000000000000",
    "federation.clients=1000000",
    "federation.cohort=6",
    "federation.dropout=nan",
    "federation.dropout=1",
    "federation.capacities={nan=1}",
    "federation.capacities={1=nan}",
    "federation.capacities={1=inf}",
    "federation.capacities={-1=1}",
    "federation.capacities={}",
    "federation.capacities=1",
    "federation.capacities=uniforn",
    "local.lr=nan",
    "local.lr=inf",
    "local.lr=-1",
    "local.lr=1e999",
    "local.lr=fast",
    "local.steps=1000000000000000000",
    "local.batch_size=1e18",
    "local.batch_size=0",
    "local.momentum=nan",
    "local.betas=[nan, 0.5]",
    "local.betas=[0.5]",
    "local.milestones=[-1]",
    "evaluation.validation=nan",
    "evaluation.validation=1",
    "evaluation.every=0",
    "evaluation.batch_size=1000000000000000000",
    "model.options.hidden=[1000000000000]",
    "model.options.hidden=[1000000, 1000000, 1000000]",
    "model.options.hidden=[99999999999999999999999]",
    "model.options.hidden=[-1]",
    "model.options.hidden=[0]",
    "model.options.hidden=[nan]",
    "model.options.hidden=many",
    "model.options=1",
    "model.name=",
    "model.name=mlpp",
    "model.name=builtins:dict",
    "model.name=builtins:print",
    "model.name=os:path",
    "model.name=nowhere:net",
    "model.name=:",
    "model.name=a:",
    "model.name=../net.py:net",
    "model.held=[1]",
    "model.held=[nowhere]",
    "data.name=",
    "data.name=digit",
    "data.name=builtins:dict",
    "data.name=builtins:print",
    "data.partition.alpha=0",
    "data.partition.alpha=nan",
    "data.partition.scheme=lda",
    "data.partition=iid",
    "method.name=builtins:dict",
    "method.name=fedprox",
    "method.capacity=nan",
    "method.capacity=2",
    "method.preset=algorithm1",
    "run.checkpoint_every=0",
    "run.score_home=cloud",
    "a=1",
    "=1",
    ".=1",
    "local..lr=1",
    "local.lr",
    "",
    ".".join(["a"] * 2000) + "=1",
    "local.lr=" + "[" * 2000 + "]" * 2000,
]


@pytest.mark.parametrize("override", OVERRIDES, ids=lambda text: text[:50])
def test_a_setting_that_cannot_be_is_one_line(here, capsys, override):
    for command in (
        ["run", "good.toml", override, "--out", "out"],
        ["run", "good.toml", override, "--dry-run"],
        ["methods", "good.toml", override],
    ):
        refused(command, here, capsys)


OPTIONS = [
    *itertools.product(
        (["run", "good.toml", "--out", "out"], ["sweep", "study.toml", "--out", "out"], ["demo", "--out", "out"]),
        (["--workers", "0"], ["--workers", "-1"], ["--workers", "many"], ["--workers", "1e18"], ["--nothing"]),
    ),
    *itertools.product(
        (["run", "good.toml", "--out", "out"], ["sweep", "study.toml", "--out", "out"]),
        (["--device", "tpu"], ["--device", ""], ["--data-dir"]),
    ),
    *itertools.product((["audit", "folder"], ["diagnose", "folder"], ["evaluate", "folder"]), (["--device", "tpu"],)),
    (["audit", "folder"], ["--batch-size", "1"]),
    (["diagnose", "folder"], ["--clients", "0"]),
    (["diagnose", "folder"], ["--capacity", "half"]),
    *itertools.product(
        (["export", "folder", "--out", "a.pt2"],),
        (
            ["--capacity", "nan"],
            ["--capacity", "0"],
            ["--capacity", "2"],
            ["--capacity", "half"],
            ["--capacity", "0.5", "--client", "-1"],
            ["--capacity", "0.5", "--batch-size", "0"],
            [],
        ),
    ),
    (["sweep", "study.toml"], ["--only", "nowhere=1"]),
    (["sweep", "study.toml"], ["--only", "seed"]),
    (["sweep", "study.toml"], ["--only", ""]),
    (["sweep", "study.toml"], ["seed=1"]),
    (["report"], []),
    (["report", "folder"], ["--against", "nobody"]),
    (["methods"], ["--model", "mlpp"]),
    (["methods"], ["--memory", "nan"]),
    (["methods"], ["--memory", "-1"]),
    (["methods"], ["--bytes-per-round", "many"]),
    (["settings"], ["qqqqqq"]),
    (["data"], ["--data-dir"]),
    (["flower"], []),
    (["flower", "demo"], ["--rounds", "0"]),
    (["flower", "demo"], ["--method", "fedprox"]),
    (["flower", "new"], []),
    (["flower", "new"], ["good.toml"]),
    ([], ["nothing"]),
    ([], ["--nothing"]),
]


@pytest.mark.parametrize(("command", "more"), OPTIONS, ids=lambda words: " ".join(words))
def test_an_option_that_cannot_be_is_one_line(here, capsys, command, more):
    refused([*command, *more], here, capsys)


@pytest.mark.parametrize("out", ["good.toml", "good.toml/out", "n" * 5000, "/dev/null", "null\0character", "/proc/out"])
def test_a_place_that_cannot_be_written_to_is_one_line(here, capsys, out):
    refused(["run", "good.toml", "--out", out], here, capsys)


def test_a_file_with_a_byte_order_mark_is_read(here, capsys):
    (here / "marked.toml").write_bytes(b"\xef\xbb\xbf" + EXPERIMENT.encode())
    assert main(["run", "marked.toml", "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("-", "-: standard input is not read, wanted the name of an experiment file"),
        ("null\0character", "an argument must not have a null character, got 'null\\x00character'"),
        ("folder", "folder: is a folder, wanted an experiment file or a run directory"),
        ("/dev/zero", "/dev/zero: is no regular file, wanted an experiment file"),
        ("utf16.toml", "utf16.toml: is not UTF-8 text, as TOML must be: byte 0 is 0xff"),
        ("nested_arrays.toml", "nested_arrays.toml: is not valid TOML: it is nested too deeply"),
        ("nested_tables.toml", "nested_tables.toml: is not valid TOML: it is nested more than 16 deep"),
    ],
)
def test_what_is_said_of_a_file_that_is_none(here, capsys, name, said):
    if FILES.get(name) is not None:
        (here / name).write_bytes(FILES[name])
    assert refused(["run", name, "--out", "out"], here, capsys) == f"fedfibos: {said}\n"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.name=builtins:dict", "model.name = 'builtins:dict': it must be a function or class of Python's"),
        (
            "federation.rounds=1000000000000000000",
            "federation.rounds must be at most 1000000000, got 1",
        ),
        (
            "model.options.hidden=[1000000000000]",
            "the model would have 75,000,000,000,010 parameters, 300,000 GB",
        ),
    ],
)
def test_what_is_said_of_a_setting_that_cannot_be(here, capsys, override, said):
    assert said in refused(["run", "good.toml", override, "--out", "out"], here, capsys)


def test_a_data_set_of_ones_own_is_not_called_by_no_name():
    import torch

    from fedfibos.data import Split, TensorData

    labels = torch.tensor([0, 3])
    with pytest.raises(ValueError, match=r"^the data set: training labels must be in 0\.\.1"):
        Split(TensorData(torch.zeros(2, 2), labels), TensorData(torch.zeros(2, 2), labels), ("a", "b"))
