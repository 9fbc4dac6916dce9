"""Files of a published archive: read from the .tar.gz as it is, or from the folder it unpacks to."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath


def read_members(source: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """The content of the named files of a folder, or of a tar archive (nothing is unpacked to disk).

    Args:
        source: A folder that holds the files, or an archive that holds them at any depth.
        limits: File name -> the most bytes it may have.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: Not a readable archive, or a file larger than its limit.
    """
    found = _from_folder(source, limits) if source.is_dir() else _from_archive(source, limits)
    if missing := [name for name in limits if name not in found]:
        raise FileNotFoundError(f"{source}: must hold {', '.join(limits)}; {missing[0]} is missing")
    return found


def _from_folder(folder: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    found = {}
    for name, limit in limits.items():
        if (folder / name).is_file():
            _check_size(folder, name, (folder / name).stat().st_size, limit)
            found[name] = (folder / name).read_bytes()
    return found


def _from_archive(file: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    found = {}
    try:
        with gzip.open(file) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if member.isfile() and name in limits:
                    _check_size(file, name, member.size, limits[name])
                    content = archive.extractfile(member)
                    found[name] = content.read() if content is not None else b""
            while stream.read(1 << 20):  # gzip's checksum is compared at the very end
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file}: must be a .tar.gz archive; damaged or truncated ({error})") from error
    return found


def _check_size(source: Path, name: str, size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"{source}: {name} must have at most {limit} bytes, got {size}")
