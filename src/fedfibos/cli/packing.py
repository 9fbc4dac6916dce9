"""``fedfibos pack``: the records of a study in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of run directories.")],
) -> None:
    """Write the records of each study, without checkpoints, into one file beside its folder: FOLDER.tar.zst."""
    from fedfibos.cli.terminal import console_here
    from fedfibos.common.formatting import bytes_text, count_of
    from fedfibos.runs.archive import pack as write
    from fedfibos.runs.archive import read_archive
    from fedfibos.runs.files import CONFIG

    for folder in folders:
        archive = write(folder)
        runs = sum(Path(name).name == CONFIG for name in read_archive(archive))
        text = f"{count_of(runs, 'run')}, {bytes_text(archive.stat().st_size)}: {archive}"
        console_here().print(text, markup=False, highlight=False, soft_wrap=True)
