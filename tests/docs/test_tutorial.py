"""The tutorial's notebook is its page, and every cell of it runs in an empty folder."""

import importlib.util
import json
import shlex
import sys
from pathlib import Path

import pytest

from fedfibos.cli import main

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"


def cells():
    return [
        "".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]


def run(cell, names):
    """What Jupyter would do with it, in this process."""
    if cell.startswith("%%writefile "):
        first, _, body = cell.partition("\n")
        Path(first.split()[1]).write_text(body + "\n")
    elif cell.startswith("!"):
        for line in cell.splitlines():
            program, *arguments = shlex.split(line.removeprefix("!"))
            assert program == "fedfibos"
            assert main(arguments) == 0, line
    else:
        exec(cell, names)


def test_the_notebook_is_the_page():
    spec = importlib.util.spec_from_file_location("tools_tutorial", ROOT / "tools" / "tutorial.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.notebook(module.PAGE.read_text(encoding="utf-8")) == NOTEBOOK.read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")  # of other libraries, as the notebook's reader sees them
def test_every_cell_runs_in_an_empty_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "vibration", raising=False)
    names = {"__name__": "__main__"}
    try:
        for cell in cells():
            run(cell, names)
    finally:
        sys.modules.pop("vibration", None)
    shown = capsys.readouterr()
    assert "3               1       6,531  100.0 %" in shown.out
    assert "4          0.0625         409    6.3 %" in shown.out
    assert "holds nothing of layer" not in shown.err  # the preset's floor
    recognised = [line for line in shown.out.splitlines() if line.endswith("% recognised")]
    assert [line.split(":")[0] for line in recognised] == ["sound", "worn bearing", "bent shaft"]
    assert shown.out.endswith("torch.Size([5, 3])\n")
    assert (tmp_path / "report.html").stat().st_size > 50_000
    final = json.loads((tmp_path / "runs" / "first" / "final.json").read_text())
    assert final["global_accuracy"]["submodels"]["0.0625"]["last"] > 0.6  # chance is a third
