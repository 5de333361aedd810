"""How an acquisition ends when more than one thing happens to it."""

from __future__ import annotations

import errno

import pytest

from acqstream.errors import AcqStreamError, AcquisitionFailed, DiskFull
from acqstream.log.log_thread import CloseRequest
from acqstream.model.receipt import Status

NO_SPACE = DiskFull(OSError(errno.ENOSPC, "No space left on device"), "a.tif", "cannot write")
BROKEN = AcquisitionFailed("a fault")


@pytest.mark.parametrize(
    ("ending", "error", "no_space", "status", "reason"),
    [
        (CloseRequest(), None, None, "completed", ""),
        (CloseRequest("canceled", "by hand"), None, None, "canceled", "by hand"),
        (CloseRequest(), BROKEN, None, "failed", "a fault"),
        (CloseRequest("canceled", "by hand"), BROKEN, NO_SPACE, "failed", "a fault"),
        (CloseRequest(), None, NO_SPACE, "error", str(NO_SPACE)),
        (CloseRequest(abandoned=("interrupted", "stopped")), None, NO_SPACE, "interrupted", f"stopped; {NO_SPACE}"),
        (CloseRequest("canceled", "me", abandoned=("error", "")), None, NO_SPACE, "canceled", f"me; {NO_SPACE}"),
        (CloseRequest(abandoned=("error", "no patience")), None, None, "completed", ""),  # nothing was left out
    ],
)
def test_who_has_the_last_word(
    ending: CloseRequest, error: AcqStreamError | None, no_space: DiskFull | None, status: Status, reason: str
) -> None:
    assert ending.resolve(error, no_space) == (status, reason)
