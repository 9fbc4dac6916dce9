"""Pages show what is public and point at what is there; the site builds without a warning."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedfibos

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = DOCS / "reference" / "command_line.md"  # by the build
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(set(DOCS.rglob("*.md")) - {GENERATED})]
EXAMPLES = [*sorted((ROOT / "examples").glob("*.py")), ROOT / "src" / "fedfibos" / "flower" / "template" / "fleet.py"]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def strangers(source):
    """What a piece of code imports from the package and is no public name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("fedfibos.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedfibos":
            public = fedfibos.__all__ if node.module == "fedfibos" else ()
            found += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in public]
    return found


def test_a_name_that_is_not_public_is_seen():
    assert strangers("from fedfibos.round import merge") == ["fedfibos.round.merge"]
    assert strangers("from fedfibos import Clinet, Client") == ["fedfibos.Clinet"]
    assert strangers("import fedfibos.round") == ["fedfibos.round"]


def test_pages_and_examples_import_public_names_alone():
    shown = [(page, block) for page in PAGES for block in blocks(page)]
    assert len(shown) >= 8
    shown += [(path, path.read_text(encoding="utf-8")) for path in EXAMPLES]
    assert {path.name: names for path, source in shown if (names := strangers(source))} == {}


def test_every_public_name_is_on_one_page_of_the_reference():
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "reference" / "api").glob("*.md")]
    told = re.findall(r"^\.\. (?:auto\w+|py:data):: fedfibos\.(\w+)$", "\n".join(pages), re.MULTILINE)
    assert sorted(told) == fedfibos.__all__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    inside = [link.partition("#")[0] for link in links if not link.startswith(("http", "#"))]
    lost = [link for link in inside if not (page.parent / link).exists()]
    assert [link for link in lost if (page.parent / link).resolve() != GENERATED] == []


def test_the_notebooks_links_lead_somewhere():
    notebook = ROOT / "examples" / "tutorial.ipynb"
    text = "".join("".join(cell["source"]) for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"])
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    assert len(links) > 5
    assert [link for link in links if not (notebook.parent / link).exists()] == []


def test_the_site_builds_without_a_warning(tmp_path):
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees")]
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    for page in ("tutorial", "how-to/fleet", "reference/command_line", "reference/api/round", "explanation/design"):
        assert f'href="{page}.html"' in home
    method = (tmp_path / "site" / "reference" / "api" / "methods.html").read_text(encoding="utf-8")
    assert "server_lr" in method
