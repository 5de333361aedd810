"""What the log says of requests that cannot be parsed: how many, not what they held, which may be a token."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from aiohttp.http_exceptions import HttpProcessingError

LOGGER = "aiohttp.server"
_INTERVAL_S = 60.0


class MalformedRequests(logging.Filter):
    """A filter for LOGGER: one line at first, then at most one each minute. Other errors pass as they are."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._count = 0
        self._next_s = -_INTERVAL_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a record that is only counted; the others are changed."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        self._count += 1
        now_s = self._clock()
        if now_s < self._next_s:
            return False
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = "%d requests could not be parsed since the last such line", (self._count,)
        record.exc_info = record.exc_text = None
        self._count, self._next_s = 0, now_s + _INTERVAL_S
        return True
