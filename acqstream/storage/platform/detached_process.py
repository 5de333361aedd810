"""Starts a process that does not end with this one: not by Ctrl-C, not with the terminal, not with a notebook."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from acqstream.storage import platform
from acqstream.storage.platform import DETACHED_OPTIONS, interpreter

_STARTER = Path(platform.__file__).parent / "detached_starter.py"
_RELEASE_S = 10.0
_MAX_OUTPUT_BYTES = 2**16


class DetachedProcess:
    """A process in a session of its own, without this process's input, output and open files.

    It is not a child of this process: a small starter between them ends at `release`, or when this process ends.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start `command`, working in `folder`. Raises OSError if not even the starter can be started."""
        program, variables = interpreter(command[0], environment)
        starter_program, starter_variables = interpreter(sys.executable, environment)
        order = {
            "command": [program, *command[1:]],
            "environment": variables,
            "folder": str(folder),
            "options": DETACHED_OPTIONS,
        }
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it has no name, so no process must remove it
        try:
            self._starter = subprocess.Popen(
                [starter_program, "-I", "-S", str(_STARTER)],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                env=starter_variables,
                **DETACHED_OPTIONS[-1],
            )
        except OSError:
            self._output.close()
            raise
        assert self._starter.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, as its exit code tells
            # No argument: all users read those, and the environment may hold secrets.
            self._starter.stdin.write(json.dumps(order).encode() + b"\n")
            self._starter.stdin.flush()

    @property
    def exit_code(self) -> int | None:
        """None while the process runs."""
        return self._starter.poll()

    def output(self) -> str:
        """Return the last text that the process printed, with "\\n" after each line on every system."""
        size = self._output.seek(0, 2)
        self._output.seek(max(0, size - _MAX_OUTPUT_BYTES))
        return self._output.read().decode("utf-8", "replace").replace("\r\n", "\n")

    def release(self) -> None:
        """Leave the process alone from now on. Repeated calls do nothing."""
        if self._starter.stdin is not None and not self._starter.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._starter.stdin.close()
            self._output.close()
            try:
                self._starter.wait(_RELEASE_S)
            except subprocess.TimeoutExpired:  # a PC that hangs; the process is not its child to be ended with it
                self._starter.kill()
