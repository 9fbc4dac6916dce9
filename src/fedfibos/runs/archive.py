"""The records of a study in one file, ``STUDY.tar.zst``: a folder of run directories without its checkpoints.

Any ``tar`` unpacks it (``tar --zstd -xf``). The same folder gives the same bytes: its files in a fixed order, without
times, owners and modes. Its checksum is looked at whenever it is read.
"""

from __future__ import annotations

import functools
import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import zstandard

from fedfibos.common.atomic_files import write_whole
from fedfibos.common.formatting import first_line
from fedfibos.runs.files import CHECKPOINT, CLIENTS, CONFIG, TRACKED, temporary, written_or_said
from fedfibos.runs.reading import RecordError

SUFFIX = ".tar.zst"

LEVEL = zstandard.ZstdCompressionParameters.from_level(
    19, window_log=27, enable_ldm=True, write_checksum=True, write_content_size=True
)
"""A window of 128 MiB, the largest that ``zstd`` takes unasked: the runs of a study are much alike."""


def archive_of(folder: Path) -> Path:
    """Where the archive of a folder lies: beside it."""
    return folder.with_name(f"{folder.name}{SUFFIX}")


def folder_of(archive: Path) -> Path:
    """The folder that an archive stands for."""
    return archive.with_name(archive.name.removesuffix(SUFFIX))


def read_archive(archive: Path) -> Mapping[str, bytes]:
    """The files of an archive: path below its folder -> content; nothing where there is no such file.

    Raises:
        RecordError: It cannot be read or is damaged.
    """
    try:
        found = archive.stat()
    except OSError:
        return {}
    return _packed(archive.absolute(), found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=16)
def _packed(archive: Path, changed: int, size: int) -> Mapping[str, bytes]:
    files = {}
    try:
        unpacker = zstandard.ZstdDecompressor().decompressobj()
        content = unpacker.decompress(archive.read_bytes())
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("it does not end where it should")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                place = PurePosixPath(member.name)
                if member.isfile() and (opened := tar.extractfile(member)) is not None:
                    files[PurePosixPath(*place.parts[1:]).as_posix()] = opened.read()
    except OSError as error:
        raise RecordError(f"{archive}: cannot be read: {error.strerror}") from None
    except (zstandard.ZstdError, tarfile.TarError, ValueError) as error:
        raise RecordError(f"{archive} is damaged: {first_line(error)}") from None
    return files


def pack(folder: Path) -> Path:
    """Write a folder's archive, with what was in it before; of a run that both have, the folder's counts.

    Returns:
        The archive. The folder stays as it is.

    Raises:
        RecordError: The folder holds no run, or the archive cannot be written.
    """
    folder = folder.absolute()  # "." has no name of its own
    archive = archive_of(folder)
    here = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    runs = {PurePosixPath(name).parent for name in here if PurePosixPath(name).name == CONFIG}
    if not runs:
        lacks = f"holds no {CONFIG}" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
        raise RecordError(f"{folder} must be a folder of run directories, it {lacks}")
    files = {
        name: content
        for name, content in read_archive(archive).items()
        if not any(run in PurePosixPath(name).parents for run in runs)
    }
    files |= {name: path.read_bytes() for name, path in here.items() if _belongs(PurePosixPath(name), runs, path)}
    with written_or_said(archive):
        write_whole(archive, encode(folder.name, files))
    return archive


def _belongs(name: PurePosixPath, runs: Iterable[PurePosixPath], path: Path) -> bool:
    """Whether a file is part of the record: neither a checkpoint nor what is there only while a run is written."""
    left_out = {run / folder for run in runs for folder in (CHECKPOINT, CLIENTS, *TRACKED)}
    return not temporary(path) and not left_out.intersection(name.parents)


def encode(top: str, files: Mapping[str, bytes]) -> bytes:
    """An archive's content.

    Args:
        top: Name of the folder that it unpacks to.
        files: Path below that folder -> content.
    """
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files, key=lambda name: (PurePosixPath(name).name, name)):  # alike beside alike
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(files[name])
            tar.addfile(member, io.BytesIO(files[name]))
    return zstandard.ZstdCompressor(compression_params=LEVEL).compress(content.getvalue())
