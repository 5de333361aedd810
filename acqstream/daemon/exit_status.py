"""How a daemon ended; the command line makes an exit code of it."""

from __future__ import annotations

import enum

from acqstream.errors import AcqStreamError, FrameRefused, StorageError


class Outcome(enum.IntEnum):
    """From good to bad: the worst of what happened counts."""

    WELL = 0  # what ran was finished
    STORAGE = 1  # an acquisition failed, or was not finished, because of the disk
    FAULT = 2  # an unexpected error in a thread


def outcome_of(error: AcqStreamError | None) -> Outcome:
    """What the error that broke an acquisition means for the daemon."""
    if error is None or isinstance(error, FrameRefused):
        return Outcome.WELL
    return Outcome.STORAGE if isinstance(error, StorageError) else Outcome.FAULT
