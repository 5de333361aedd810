"""Describes the exit of a process, and faults of the daemon, for users."""

from __future__ import annotations

import os
import signal
import sys
import time

from acqstream.errors import AcqStreamError, AcquisitionFailed, StorageError

_STARTED_S = time.time()


def exit_text(code: int) -> str:
    """Return the text of a return code of `subprocess`: the exit code, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def unexpected(error: Exception) -> AcqStreamError:
    """Return what a client is told of an error: what the disk said, else a fault of the daemon."""
    if isinstance(error, OSError):
        return StorageError.wrap(error, str(error.filename or "the data directory"), "a disk call failed")
    # Modules that are loaded late do not fit to those of another version.
    text, hint = f"{type(error).__name__}: {error}", replaced_hint()
    return AcquisitionFailed(f"{hint} ({text})" if hint else f"a fault in the daemon: {text}")


def replaced_hint() -> str:
    """Return what to do if a file of this package is newer than the process, or is gone; else nothing."""
    hint = "the program was replaced while this daemon ran; restart the daemon"
    names = [name for name in sys.modules if name.partition(".")[0] == "acqstream"]
    for path in filter(None, (getattr(sys.modules[name], "__file__", None) for name in names)):
        try:
            status = os.stat(path)
        except OSError:
            return hint
        if max(status.st_mtime, status.st_ctime) > _STARTED_S:
            return hint
    return ""
