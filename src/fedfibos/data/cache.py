"""Decoded images and tokenised texts kept in the user's cache folder, so that it is done once."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

Tensors = dict[str, Tensor]
LOG = logging.getLogger(__name__)


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/fedfibos``, by default ``~/.cache/fedfibos``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "fedfibos"


def decoded_once(file: Path, decode: Callable[[Path], Tensors], decoder: str) -> Tensors:
    """``decode(file)``, or what an earlier call kept of it.

    The key is the digest of the file's content and the version of the image decoder, so a changed or
    damaged file never meets an old result. A cache that cannot be written or read only costs the
    time of decoding again.

    Args:
        file: The encoded images.
        decode: Pure function of the file's content.
        decoder: The image decoder and its version.
    """
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return made_once(f"{digest[:32]}-{decoder}", lambda: decode(file), f"decoding {file.name}")


def made_once(key: str, make: Callable[[], Tensors], doing: str) -> Tensors:
    """What ``make`` gives, or what an earlier call with that key kept of it.

    Args:
        key: A file's name that tells everything the result depends on.
        make: Called where nothing is kept under the key.
        doing: What ``make`` does, for the log: it may take a minute.
    """
    kept = cache_dir() / f"{key}.safetensors"
    try:
        return load_file(kept)
    except (OSError, SafetensorError):
        LOG.info("%s", doing)
        tensors = make()
    LOG.info("kept for next time in %s" if _keep(tensors, kept) else "cannot be kept for next time in %s", kept.parent)
    return tensors


def _keep(tensors: Tensors, kept: Path) -> bool:
    """Write under a temporary name, then rename: another process sees all or nothing. Whether it worked."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            written = Path(folder) / kept.name
            save_file(tensors, written)
            with written.open("rb") as stream:
                os.fsync(stream.fileno())
            written.replace(kept)
    except (OSError, SafetensorError):
        return False
    return True
