"""``fedfibos settings``: what can be written in an experiment file, and what it means."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedfibos.common.validation import ExperimentError, did_you_mean
from fedfibos.config.settings import NOT_SET, REQUIRED, Group, groups


def show_settings(word: str, console: Console) -> None:
    """Print the settings whose key, or whose section's title, begins with or contains a word.

    Raises:
        ExperimentError: There is none.
    """
    found = [group for group in map(lambda group: _matching(group, word), groups()) if group.settings]
    if not found:
        keys = [setting.key for group in groups() for setting in group.settings]
        near = did_you_mean(word, [*keys, *(key.rpartition(".")[2] for key in keys)])
        raise ExperimentError(f"a word of a setting's key or section is wanted, got {word!r}{near}")
    for group in found:
        console.print(Text(group.title, style="bold"))
        console.print(Padding(Text(_shown(group.note), style="italic"), (0, 0, 1, 0)))
        for setting in group.settings:
            default = (
                f"{setting.default}; " if setting.default in (REQUIRED, NOT_SET) else f"default {setting.default}; "
            )
            head = Text(setting.key, style="bold").append(f"  ({default}{_shown(setting.values)})", style="not bold")
            console.print(Padding(head, (0, 0, 0, 2)))
            console.print(Padding(Text(_shown(setting.meaning)), (0, 0, 1, 6)))


def _matching(group: Group, word: str) -> Group:
    """The group where its title matches, else those of its settings that do."""
    paths = _paths(group.title)
    if word in group.title or any(word in path for path in paths):
        return group
    found = (setting for setting in group.settings if any(word in name for name in _names(setting.key, paths)))
    return Group(group.title, group.note, tuple(found))


def _names(key: str, paths: list[str]) -> list[str]:
    """A key, also with the name of its group inside: ``method.fiarse.scope`` is ``method.scope``."""
    return [key, *(f"{path}.{key.rpartition('.')[2]}" for path in paths)]


def _paths(title: str) -> list[str]:
    """A title with dots, as keys are written: ``method fiarse`` is ``method.fiarse``; one for each name that it has."""
    section, of, listed = title.partition(" of ")
    if not of:
        section, _, listed = title.partition(" ")
    return [f"{section}.{name}" if name else section for name in listed.split(", ")]


def _shown(text: str) -> str:
    """Without the marks of code."""
    return text.replace("``", "")
