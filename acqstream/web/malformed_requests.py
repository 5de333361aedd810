"""What the log says of errors that any client can cause: how many, not what they held, which may be a token."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError

LOGGERS = ("aiohttp.server", "asyncio")
_INTERVAL_S = 60.0
_MALFORMED = "requests could not be parsed"
_NO_DESCRIPTORS = "connections could not be accepted for want of descriptors (`ulimit -n`)"


class MalformedRequests(logging.Filter):
    """A filter for LOGGERS: one line of a kind at first, then at most one each minute. Other errors pass."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._next_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a record that is only counted; the others are changed."""
        kind = _kind_of(record.exc_info[1] if record.exc_info else None)
        if kind is None:
            return True
        self._counts[kind] = self._counts.get(kind, 0) + 1
        now_s = self._clock()
        if now_s < self._next_s.get(kind, now_s):
            return False
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = f"%d {kind} since the last such line", (self._counts[kind],)
        record.exc_info = record.exc_text = None
        self._counts[kind], self._next_s[kind] = 0, now_s + _INTERVAL_S
        return True


def _kind_of(error: BaseException | None) -> str | None:
    if isinstance(error, HttpProcessingError):
        return _MALFORMED
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return _NO_DESCRIPTORS
    return None
