"""The core install lacks the extras: what needs one says in a line how to install it, and a device imports none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedfibos.common.extras import MissingExtraError, extra

WITHOUT = """
import contextlib, io, json, sys
for package in {packages}:
    sys.modules[package] = None  # as if it were not installed
{code}
"""


def python(code, *packages):
    """What a fresh interpreter without these packages prints as JSON."""
    script = WITHOUT.format(packages=packages, code=code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_missing_package_is_one_line_with_the_command():
    wanted = r"^no_such_library is not installed: pip install 'fedfibos\[data\]'$"
    with pytest.raises(MissingExtraError, match=wanted), extra("data"):
        import no_such_library.inner  # noqa: F401


def test_a_fault_of_the_packages_own_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError, match=r"fedfibos\.nowhere"), extra("data"):
        import fedfibos.nowhere  # noqa: F401


COMMANDS = """
from fedfibos.cli import main
told = {{}}
for name, line in {lines}.items():
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        told[name] = [main(line), errors.getvalue()]
json.dump(told, sys.stdout)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Exit code and standard error of commands where no extra is installed."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "ag_news").mkdir()
    for half in ("train", "test"):
        (folder / "ag_news" / f"{half}.parquet").write_bytes(b"")
    rest = "federation = {clients = 1, cohort = 1, rounds = 1, capacities = {1.0 = 1.0}}\nmethod.name = 'fedavg'\n"
    (folder / "digits.toml").write_text("model.name = 'mlp'\n" + rest)
    (folder / "texts.toml").write_text("data.name = 'ag_news'\nmodel.name = 'text'\n" + rest)
    lines = {
        "report": ["report", str(folder)],
        "flower": ["flower", "demo"],
        "digits": ["run", str(folder / "digits.toml"), "--dry-run"],
        "texts": ["run", str(folder / "texts.toml"), "--dry-run", "--data-dir", str(folder)],
    }
    packages = ("matplotlib", "jinja2", "pyarrow", "PIL", "sklearn", "transformers", "flwr", "onnx")
    return python(COMMANDS.format(lines=lines), *packages)


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("report", "fedfibos: matplotlib is not installed: pip install 'fedfibos[report]'\n"),
        ("flower", "fedfibos: flwr is not installed: pip install 'fedfibos[flower]'\n"),
        ("texts", "fedfibos: pyarrow is not installed: pip install 'fedfibos[data]'\n"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(told, command, wanted):
    assert told[command] == [2, wanted]


def test_the_digits_say_what_brings_them(told):
    code, line = told["digits"]
    assert code == 2
    assert line.startswith("fedfibos: data set 'digits' was not found: scikit-learn brings them: ")
    assert "pip install 'fedfibos[data]'" in line
    assert line.count("\n") == 1


def test_a_device_imports_no_extra_but_flower():
    """What ``fedfibos[flower]`` installs is enough; peak memory was 260 MiB with torch 2.13.0+cpu on x86-64."""
    heavy = ["matplotlib", "jinja2", "sklearn", "scipy", "pyarrow", "PIL", "torch_pruning", "transformers", "onnx"]
    code = f"""
from pathlib import Path
from torch import nn, zeros
from fedfibos import TensorData, client_app, task_of

config = {{"method.name": "fedfibos", "local.steps": 1, "federation.rounds": 1, "federation.cohort": 1}}
client_app(lambda config: task_of(nn.Linear(2, 2), config), lambda context: TensorData(zeros(2, 2), zeros(2).long()))
got = [name for name in {heavy} if name in sys.modules]
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
json.dump([got, int(peak.split()[1]) / 1024], sys.stdout)  # ru_maxrss would be that of the tests' process too
"""
    imported, mebibytes = python(code)
    assert imported == []
    if folder := os.environ.get("FEDFIBOS_RECORD"):
        record = {"torch": torch.__version__, "peak_resident_mib": round(mebibytes)}
        (Path(folder) / "device_import.json").write_text(json.dumps(record, indent=2) + "\n")
    assert mebibytes < 400
