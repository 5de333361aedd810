"""Kills the process that makes views and mirrors, again and again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Sequence
from typing import Any

from acqstream.client.daemon_requests import fetch_status
from acqstream.model.status import UnfinishedViewStatus
from tests.faults.fault_result import Try
from tests.faults.producer_process import ProducerProcess
from tests.faults.progress_board import Phase
from tests.live.daemon_process import DaemonProcess
from tests.waiting import until

END_S = 100.0
LATEST_S = 0.5  # after the process was started
LATEST_AFTER_NEWS_S = 0.1
MOST_EARLY = 2  # kills in a row that may come before a view got on: after a few more it is given up


class ViewKiller:
    """Kills the process alone, or with the daemon (so often), and waits until there is another one."""

    def __init__(
        self, daemon: DaemonProcess, producer: ProducerProcess, chance: random.Random, *, daemon_share: float = 0.0
    ) -> None:
        self._daemon = daemon
        self._producer = producer
        self._chance = chance
        self._daemon_share = daemon_share
        self._early = 0
        self._best: dict[str, int] = {}

    def kill_all_along(self, one: Try, kills: int) -> None:
        """Of one run, which is closed then; half the time the last kill comes later: meanwhile, or as they catch up."""
        for number in range(kills):
            if number == kills - 1 and self._chance.random() < 0.5:
                self._producer.close()
            one.delivered += self._kill()
        self._producer.close()

    def _kill(self) -> bool:
        """SIGKILL soon after its start, or when the views have got on; False if it had nothing left to do."""
        pid = until(self._pid_or_end, "the views' process runs", END_S)
        if pid is True:
            return False
        if self._early < MOST_EARLY and self._chance.random() < 0.4:
            self._early += 1
            time.sleep(self._chance.uniform(0.0, LATEST_S))
        else:
            self._early = 0
            until(self._have_got_on, "the views get on", END_S)
            time.sleep(self._chance.uniform(0.0, LATEST_AFTER_NEWS_S))
        if self._chance.random() < self._daemon_share:
            self._daemon.kill()
            self._daemon.start()
            self._early = 0  # the new daemon has not seen any death
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(lambda: fetch_status(self._daemon.endpoint).views.pid != pid, "the death was noticed")
        self._have_got_on()  # what it told after the last look is no progress of the next process
        return True

    def _pid_or_end(self) -> Any:
        phase = self._producer.board.phase
        assert phase is not Phase.FAILED, f"the producer ended with {self._producer.report()}"
        views = fetch_status(self._daemon.endpoint).views
        is_over = phase is Phase.CLOSED and not views.mirrors
        return is_over or views.pid

    def _have_got_on(self) -> bool:
        """All that are under way."""
        cursors = {job.mirror: job.cursor for job in jobs_of(self._daemon)}
        have = all(cursor > self._best.get(name, 0) for name, cursor in cursors.items())
        if have:
            self._best = cursors
        return have


def jobs_of(daemon: DaemonProcess) -> Sequence[UnfinishedViewStatus]:
    """Views and mirrors that are not complete."""
    return fetch_status(daemon.endpoint).views.mirrors
