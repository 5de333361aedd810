"""Exit status of a daemon; the command line turns it into an exit code."""

from __future__ import annotations

import enum

from acqstream.errors import AcqStreamError, StorageError


class ExitStatus(enum.IntEnum):
    """From good to bad; the worst event of a daemon's life counts."""

    SUCCESS = 0  # every acquisition was finished
    STORAGE = 1  # an acquisition failed, or was not finished, because of the disk
    FAULT = 2  # an unexpected error in a thread


def exit_status_of(error: AcqStreamError | None) -> ExitStatus:
    """Return what the error that ended an acquisition (None: it ended in order) means for the daemon."""
    if error is None:
        return ExitStatus.SUCCESS
    return ExitStatus.STORAGE if isinstance(error, StorageError) else ExitStatus.FAULT
