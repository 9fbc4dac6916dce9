"""Write docs/reference/settings.md from the definitions: ``python tools/settings.py`` (``--check``: only compare)."""

from __future__ import annotations

import sys
from pathlib import Path

from fedfibos.config.settings import groups

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"
HEAD = """# Settings

This page lists every setting of an experiment file. `python tools/settings.py` generates it from the definitions.
On the command line `section.key=value` overrides a setting. The `config.toml` of a run has all settings written
out. `fedfibos settings WORD` prints the settings that match a word. A file may begin with `base = "other.toml"`;
it then holds only what differs. Flower apps use the same keys for `method`, `local`, `server` and `seed`
([settings of a fleet](fleet_settings.md)).
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for group in groups():
        rows = [
            f"| `{setting.key}` | {_code(setting.default)} | {_cell(setting.values)} | {_cell(setting.meaning)} |"
            for setting in group.settings
        ]
        if rows:
            table = "\n".join(["| key | default | values | meaning |", "| --- | --- | --- | --- |", *rows])
            parts.append(f"## {group.title}\n\n{_marked(group.note)}\n\n{table}\n")
    return "\n".join(parts)


def _code(default: str) -> str:
    return default if default in ("required", "not set") else f"`{default}`"


def _cell(text: str) -> str:
    return _marked(text).replace("|", "\\|")


def _marked(text: str) -> str:
    return text.replace("``", "`")


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0
            if PAGE.read_text(encoding="utf-8") == page()
            else "docs/reference/settings.md is not current; run: python tools/settings.py"
        )
    PAGE.write_text(page(), encoding="utf-8")
