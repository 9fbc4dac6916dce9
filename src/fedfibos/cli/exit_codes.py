"""What a command ends with, and which error means which (the documentation's page of the command line).

Refused: nothing was trained or written, and the same command gives the same answer until the command line, the
experiment, its data or its code is changed. Failed: it began and could not go on; the same command may do.
"""

from __future__ import annotations

import errno

FAILED, REFUSED, INTERRUPTED, READER_GONE = 1, 2, 130, 141

WRONG_PATH = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""What the operating system says of a path that is no place to read from or write to; the disk may be fine."""

CLASS_REJECTED = 3
"""A run has its results, but all clients of a capacity were rejected for several rounds in a row: what it says of that
capacity is of submodels that nobody trained."""


def exit_code(error: BaseException) -> int | None:
    """What an error that is one line long ends a command with; None: it is nobody's fault but the code's."""
    from fedfibos.common.extras import MissingExtraError
    from fedfibos.common.user_code import users_frame
    from fedfibos.common.validation import ExperimentError
    from fedfibos.local import LocalTrainingError
    from fedfibos.runs.reading import RecordError
    from fedfibos.runs.record import BusyError
    from fedfibos.simulation import WorkerError
    from fedfibos.soundness import NoUploadError

    if isinstance(error, BusyError | LocalTrainingError | NoUploadError | WorkerError):
        return FAILED
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError) and cause.errno is not None and not isinstance(error, ExperimentError):
        return REFUSED if cause.errno in WRONG_PATH else FAILED
    if isinstance(error, MissingExtraError | RecordError | ValueError | OSError):
        return REFUSED
    return None if users_frame(error) is None else FAILED


def in_words(error: BaseException) -> str:
    """An error's message: out of a user's own code with its file and line first, of the operating system with the path.

    What the operating system says is said without its number.
    """
    from fedfibos.common.user_code import describe_error, users_frame

    if users_frame(error) is not None:
        return describe_error(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
