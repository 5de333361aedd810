"""Exit codes of every verb; documented in docs/command-line.md."""

from __future__ import annotations

from enum import IntEnum

from acqstream.errors import (
    AcqStreamError,
    AcquisitionFailed,
    ConfigError,
    DaemonUnavailable,
    DatasetLocked,
    StorageError,
    WaitTimeout,
)
from acqstream.model.daemon_note import STARTING


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2  # of the argument parser too
    INCOMPLETE = 3  # frames are missing, or a run did not end in order
    UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h: no daemon answers
    STORAGE = 75  # EX_TEMPFAIL of sysexits.h: the disk failed, or another daemon holds the directory
    TIMEOUT = 124  # as timeout(1): what was waited for has not ended in time
    CONFIGURATION = 78  # EX_CONFIG of sysexits.h: the service manager does not try again


def exit_code_of(error: AcqStreamError | OSError) -> ExitCode:
    """The code that a verb ends with after this error."""
    if isinstance(error, DaemonUnavailable):
        return ExitCode.UNAVAILABLE
    if isinstance(error, ConfigError):
        return ExitCode.CONFIGURATION
    if isinstance(error, DatasetLocked | StorageError):
        return ExitCode.STORAGE
    if isinstance(error, WaitTimeout):
        return ExitCode.TIMEOUT
    if isinstance(error, AcquisitionFailed) and error.code == "incomplete":
        return ExitCode.INCOMPLETE
    return ExitCode.ERROR


def error_line(error: AcqStreamError | OSError) -> str:
    """The error in one line, and the next step where there is one."""
    text = " ".join(str(error).split()) or type(error).__name__
    is_there = STARTING in text or "does not answer" in text
    if isinstance(error, DaemonUnavailable) and "acqstream serve" not in text and not is_there:
        text += "; start one with: acqstream serve --data DIR"
    return f"acqstream: {text}"
