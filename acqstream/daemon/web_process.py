"""Runs the web face as a child process of the daemon, if the configuration wants it.

No call here waits for the child but `close`, and nothing that happens to it touches the daemon: it reads files only,
and asks for the status as any client does. It ends with the daemon, in whatever way that ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import acqstream
from acqstream.daemon.config import DaemonConfig
from acqstream.daemon.exit_text import exit_text
from acqstream.storage.platform import child_process

logger = logging.getLogger("acqstream.daemon")

TOKEN_NAME = "web-token"
_LOOK_S = 0.2
_FIRST_PAUSE_S = 1.0  # before a restart; doubled with every death in a row
_MAX_PAUSE_S = 60.0
_WELL_S = 60.0  # a process that lived so long was well
_END_S = 3.0
EXIT_CONFIGURATION = 78  # of the child: a restart cannot help


class WebProcess:
    """Used by the daemon's loop. endpoints: of the daemon. command starts the child; its arguments are added."""

    def __init__(
        self,
        config: DaemonConfig,
        endpoints: Sequence[str],
        command: Sequence[str] = (sys.executable, "-P", "-m", "acqstream.web.web_server"),
    ) -> None:
        self._command = [*command, json.dumps(_settings(config, endpoints))]
        self._is_wanted = config.web
        self._process: child_process.ChildProcess | None = None
        self._look_at_s = self._start_at_s = self._started_s = 0.0
        self._deaths = 0

    @property
    def pid(self) -> int | None:
        """The number of the process, None while it does not run."""
        return None if self._process is None else self._process.pid

    def look_after(self, now_s: float) -> None:
        """Start the process, and again when it has died. Raises nothing."""
        if not self._is_wanted or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_S
        if self._process is not None and (code := self._process.poll()) is not None:
            self._note_death(code, now_s)
        if self._process is None and self._is_wanted and now_s >= self._start_at_s:
            self._start(now_s)

    def close(self) -> None:
        """End the process."""
        self._is_wanted = False
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):  # it is dying already
            process.connection.shutdown(socket.SHUT_WR)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.connection.close()
        process.release()

    def _start(self, now_s: float) -> None:
        root = os.path.dirname(os.path.dirname(acqstream.__file__))
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            self._process = child_process.ChildProcess(
                self._command, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            )
        except OSError as error:
            logger.error("cannot start the web process: %s", error)  # noqa: TRY400 - no traceback: the text says all
            self._pause(now_s)
            return
        self._started_s = now_s

    def _note_death(self, code: int, now_s: float) -> None:
        assert self._process is not None
        self._process.connection.close()
        self._process.release()
        self._process = None
        if code == EXIT_CONFIGURATION:
            logger.error("the web process cannot work with this configuration; it is not started again")
            self._is_wanted = False
            return
        if now_s - self._started_s > _WELL_S:
            self._deaths = 0
        self._pause(now_s)
        logger.warning("the web process ended (%s); starting it again", exit_text(code))

    def _pause(self, now_s: float) -> None:
        self._start_at_s = now_s + min(_FIRST_PAUSE_S * 2**self._deaths, _MAX_PAUSE_S)
        self._deaths = min(self._deaths + 1, 10)


def needs_token(config: DaemonConfig, endpoints: Sequence[str]) -> bool:
    """Return True if the web face asks for a token.

    Unless the configuration decides: if the daemon itself listens at local sockets alone. Only a group can use these,
    but every user of the machine can connect to a port.
    """
    if config.web_token is not None:
        return config.web_token
    return not any(endpoint.startswith("tcp:") for endpoint in endpoints)


def _settings(config: DaemonConfig, endpoints: Sequence[str]) -> dict[str, object]:
    """The arguments of WebSettings, as JSON; token_file for its token."""
    token_file: Path | None = None
    if needs_token(config, endpoints):
        token_file = config.runtime / TOKEN_NAME
    return {
        "data": str(config.data),
        "address": config.web_address,
        "port": config.web_port,
        "endpoint": endpoints[0] if endpoints else None,
        "hosts": config.web_hosts,
        "origins": config.web_origins,
        "token_file": None if token_file is None else str(token_file),
        "neuroglancer": None if config.web_neuroglancer is None else str(config.web_neuroglancer),
        "read_mb_s": config.web_read_mb_s,
    }
