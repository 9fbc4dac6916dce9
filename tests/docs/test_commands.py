"""Every command that a page shows is one that there is, with options that it has."""

import re
import shlex
from pathlib import Path

import click
import pytest
import typer

from fedfibos.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "docs" / "reference" / "command_line.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(set((ROOT / "docs").rglob("*.md")) - {GENERATED})]
COMMAND = re.compile(r"^(?: {4}|!)?(fedfibos [^#\n]*)|`(fedfibos [^`\n]*)`", re.MULTILINE)


def commands(page: Path) -> list[str]:
    found = COMMAND.findall(page.read_text(encoding="utf-8"))
    return [(line or quoted).strip().rstrip("\\") for line, quoted in found]


def wrong(line: str) -> str | None:
    """What is wrong with a command line, as far as its words tell; None for a sound one."""
    words, command = shlex.split(line)[1:], typer.main.get_command(app)
    context = click.Context(command, info_name="fedfibos")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        command = command.get_command(context, name)
        if command is None:
            return f"no command {name}"
        context = click.Context(command, info_name=name, parent=context)
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in {*options, "--help"}]
    return f"no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fedfibos run a.toml --dry-run", None),
        ("fedfibos rnu a.toml", "no command rnu"),
        ("fedfibos flower demo --secret", "no option --secret"),
    ],
)
def test_a_command_that_there_is_not_is_seen(line, said):
    assert wrong(line) == said


def test_the_commands_of_all_pages():
    shown = [(page.name, line) for page in PAGES for line in commands(page)]
    assert len(shown) > 60
    assert {(page, line): said for page, line in shown if (said := wrong(line)) is not None} == {}
