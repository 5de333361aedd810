"""How an acquisition ends when more than one thing happens to it."""

from __future__ import annotations

import errno

import pytest

from acqstream.errors import AcqStreamError, AcquisitionFailed, DiskFull, FrameRefused
from acqstream.log.close_outcome import Ending
from acqstream.model.receipt import Status

NO_SPACE = DiskFull(OSError(errno.ENOSPC, "No space left on device"), "a.tif", "cannot write")
BROKEN = AcquisitionFailed("a fault")
REFUSED = FrameRefused("a wrong frame", code="checksum", number=3)


@pytest.mark.parametrize(
    ("ending", "error", "no_space", "status", "reason"),
    [
        (Ending(), None, None, "completed", ""),
        (Ending("canceled", "by hand"), None, None, "canceled", "by hand"),
        (Ending(), BROKEN, None, "failed", "a fault"),
        (Ending("canceled", "by hand"), BROKEN, NO_SPACE, "failed", "a fault"),
        (Ending(), REFUSED, None, "interrupted", "a wrong frame"),
        (Ending(), None, NO_SPACE, "error", str(NO_SPACE)),
        (Ending(given_up=("interrupted", "stopped")), None, NO_SPACE, "interrupted", f"stopped; {NO_SPACE}"),
        (Ending("canceled", "by hand", given_up=("error", "")), None, NO_SPACE, "canceled", f"by hand; {NO_SPACE}"),
        (Ending(given_up=("error", "no patience")), None, None, "completed", ""),  # nothing was left out after all
    ],
)
def test_who_has_the_last_word(
    ending: Ending, error: AcqStreamError | None, no_space: DiskFull | None, status: Status, reason: str
) -> None:
    assert ending.resolve(error, no_space) == (status, reason)
