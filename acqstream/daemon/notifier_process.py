"""Starts the process that sends notices, and starts it again if it dies. The daemon waits for it nowhere."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
from collections.abc import Sequence

from acqstream.daemon.worker_process import child_environment

logger = logging.getLogger("acqstream.daemon")

MODULE = "acqstream.monitor.notifier"
RESTART_S = 30.0  # at least, between two starts


class NotifierProcess:
    """The notifier of a daemon; without targets there is none. Used by the loop only.

    endpoint: where the notifier asks for the status. command: of the process, without arguments.
    """

    def __init__(
        self,
        targets: Sequence[str],
        no_frames_s: float,
        endpoint: str,
        command: Sequence[str] = (sys.executable, "-m", MODULE),
    ) -> None:
        settings = {"endpoint": endpoint, "targets": list(targets), "no_frames_s": no_frames_s}
        # By its input and not by arguments, which every user of the machine can read: addresses may have secrets.
        self._settings = json.dumps(settings).encode() + b"\n"
        self._command = command if targets else ()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at_s = -RESTART_S
        self.n_starts = 0

    def look_after(self, now_s: float) -> None:
        """Start the process if it does not run; called in each turn of the loop."""
        if not self._command or now_s - self._started_at_s < RESTART_S:
            return
        process = self._process
        if process is not None:
            code = process.poll()
            if code is None:
                return
            logger.warning("the notifier ended with %d; starting it again", code)
            self._release(process)
        self._started_at_s = now_s
        self._process = self._start()

    def close(self) -> None:
        """Close the input of the process, which reports the last ends of runs and ends. Does not wait for it."""
        if self._process is not None:
            self._release(self._process)

    def _start(self) -> subprocess.Popen[bytes] | None:
        try:
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, env=child_environment())
        except OSError as error:
            logger.warning("the notifier cannot be started: %s", error)
            return None
        self.n_starts += 1
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it has died already: started again later
            process.stdin.write(self._settings)  # less than a pipe holds, so it does not wait for the process
            process.stdin.flush()
        return process

    @staticmethod
    def _release(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
