"""Asks a daemon for its status at intervals, and reads the receipts of runs that have ended."""

from __future__ import annotations

import time

from acqstream.client.daemon_requests import StatusClient
from acqstream.errors import AcqStreamError
from acqstream.monitor.daemon_view import DaemonView
from acqstream.monitor.receipts import receipt_of

ANSWER_S = 3.0


class DaemonWatch:
    """The latest view of a daemon; `view` may be read from any thread, the methods are for one thread.

    endpoint: as in `StatusClient`.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        self._client = StatusClient(endpoint)
        self.view = DaemonView(why="the daemon has not been asked yet")

    def look(self, timeout_s: float = ANSWER_S) -> DaemonView:
        """Ask the daemon, for at most timeout_s, and return the new view."""
        status, why = None, ""
        try:
            status = self._client.fetch(timeout_s)
        except (AcqStreamError, OSError) as error:
            why = str(error)
        self.view = self.view.following(status, time.monotonic(), receipt_of, why=why)
        return self.view

    def note_end_of_daemon(self, why: str) -> DaemonView:
        """The daemon's process has ended: so has each run, with or without a receipt. Return the new view."""
        self.view = self.view.following(None, time.monotonic(), receipt_of, why=why, has_daemon_ended=True)
        return self.view

    def close(self) -> None:
        self._client.close()
