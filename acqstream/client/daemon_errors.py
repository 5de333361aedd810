"""The daemon's `error` messages as exceptions."""

from __future__ import annotations

import errno

from acqstream.errors import (
    AcqStreamError,
    AcquisitionFailed,
    AcquisitionRefused,
    DatasetExists,
    DiskFull,
    FrameRefused,
    StorageError,
)
from acqstream.model.receipt import CTRL_C, UNFORCED, Receipt
from acqstream.protocol.replies import Error

_STORAGE_ERRORS: dict[str, tuple[type[StorageError], int]] = {
    "disk_full": (DiskFull, errno.ENOSPC),
    "io_error": (StorageError, errno.EIO),
}
_FRAME_CODES = frozenset(
    {"duplicate_axes", "shape_mismatch", "dtype_unsupported", "payload_size", "checksum", "tile_axes", "tile_size"}
)


def refusal(reply: Error, name: str) -> AcqStreamError:
    """Why `open` was answered with an error."""
    if reply.code == "name_taken":
        return DatasetExists(reply.text)
    if reply.code in _STORAGE_ERRORS:
        return _storage_error(reply, name, f"the daemon refuses to open {name!r}")
    return AcquisitionRefused(f"the daemon refuses to open {name!r}: {reply.text} ({reply.code})", code=reply.code)


def failure(reply: Error, path: str) -> AcqStreamError:
    """Why a running acquisition ended."""
    if reply.code in _STORAGE_ERRORS:
        return _storage_error(reply, path, "the daemon ended the acquisition")
    text = f"the daemon ended the acquisition: {reply.text} ({reply.code})"
    if reply.number is not None and reply.code in _FRAME_CODES:
        return FrameRefused(text, code=reply.code, number=reply.number)
    return AcquisitionFailed(text, code=reply.code, number=reply.number)


def name_unforced(error: AcqStreamError, receipt: Receipt) -> None:
    """Add the frames to the error of a failed run that were published and are not durable: the disk may lose them."""
    for gap in receipt.missing:
        if gap.reason == UNFORCED and isinstance(error, StorageError):
            error.number = gap.first if error.number is None else min(error.number, gap.first)
            error.add_note(f"frames {gap.first} to {gap.first + gap.count - 1} were {UNFORCED}; send them again")


def end_reason(error: BaseException) -> str:
    """The reason in `close` of a run that an exception of its program ended: type and text."""
    if isinstance(error, KeyboardInterrupt):
        return CTRL_C
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _storage_error(reply: Error, path: str, action: str) -> StorageError:
    kind, usual_errno = _STORAGE_ERRORS[reply.code]
    error = kind(OSError(reply.errno or usual_errno, reply.text), path, action)
    error.number = reply.number
    return error
