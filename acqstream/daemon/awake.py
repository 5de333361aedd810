"""Keeps the PC from sleeping while an acquisition is open."""

from __future__ import annotations

import logging

from acqstream.storage import platform

logger = logging.getLogger("acqstream.daemon")


class Awake:
    """Used by the loop only, as Windows counts the request for the thread that makes it."""

    def __init__(self) -> None:
        self._is_needed = False

    def keep(self, is_needed: bool) -> None:
        """Keep the PC awake if is_needed; costs a comparison while that does not change."""
        if is_needed == self._is_needed:
            return
        self._is_needed = is_needed
        try:
            platform.keep_awake(is_needed)
        except OSError as error:
            logger.warning("cannot keep the PC awake: %s; it may sleep in the middle of a run", error)
