"""``fedfibos flower new``: a Flower app to start from."""

from __future__ import annotations

import shutil
from pathlib import Path

TEMPLATE = Path(__file__).with_name("template")
FILES = ("pyproject.toml", "fleet.py")


def new_app(folder: Path) -> list[Path]:
    """Write the app's files.

    Args:
        folder: Where; made if it is not there.

    Returns:
        The files.

    Raises:
        FileExistsError: One of them is there already.
    """
    written = [folder / name for name in FILES]
    for path in written:
        if path.exists():
            raise FileExistsError(f"{path} exists: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path in written:
        shutil.copyfile(TEMPLATE / path.name, path)
    return written
