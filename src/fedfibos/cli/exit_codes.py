"""What a command ends with, and which error means which."""

from __future__ import annotations

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def exit_code(error: Exception) -> int | None:
    """What an error that is one line long ends a command with; None: it is nobody's fault but the code's."""
    from fedfibos.common.extras import MissingExtraError
    from fedfibos.common.validation import ExperimentError
    from fedfibos.round import NoUploadError
    from fedfibos.runs.reading import RecordError
    from fedfibos.simulation import WorkerError

    if isinstance(error, ExperimentError | MissingExtraError):
        return WRONG_USAGE
    return FAILED if isinstance(error, RecordError | NoUploadError | WorkerError | ValueError | OSError) else None
