"""Processes of Linux and other POSIX systems: child processes, how this one is asked to end, and detached ones.

A child has a local socket to its parent, which it must not outlive.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from acqstream.storage.platform.capabilities import has_process_files

STOP_SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask a program to end. A handler runs in the main thread, and interrupts its poll."""


def session_signals() -> tuple[int, ...]:
    """Return the signals of a closed terminal and a log-off, which often come with others; none under `nohup`."""
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)


def console_watch(stop: Callable[[float | None], None]) -> AbstractContextManager[object]:
    """Watch nothing: signals report everything, also a closed terminal and a log-off."""
    del stop
    return nullcontext()


def keep_awake(is_needed: bool) -> None:
    """Do nothing: the desktop decides. docs/system-service.md shows systemd-inhibit and caffeinate."""
    del is_needed


DETACHED_OPTIONS: tuple[Mapping[str, Any], ...] = ({"start_new_session": True},)
"""Keywords for subprocess.Popen, the best first. A session without a terminal gets no Ctrl-C and no SIGHUP from one."""


def interpreter(program: str, environment: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the program and its environment, unchanged."""
    return program, dict(environment)


_NICENESS = 10
_OOM_SCORE = 500  # of 1000: killed before the parent when memory runs out
_PR_SET_PDEATHSIG = 1


class ChildProcess(subprocess.Popen[bytes]):
    """A child, started with two arguments added, which `adopt_connection` and `follow_parent` take.

    connection is the parent's end of the socket; the caller closes it. Raises OSError.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            arguments = [*command, str(theirs.fileno()), str(os.getpid())]
            try:
                # The system ends the child with the thread that started it: see `follow_parent`.
                super().__init__(arguments, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=dict(environment))
            except OSError:
                self.connection.close()
                raise

    def release(self) -> None:
        """Give up what ends the child with this process, once it has ended or was killed."""


def adopt_connection(argument: str) -> socket.socket:
    """In the child: the socket to its parent. argument is the first one that `ChildProcess` added."""
    return socket.socket(fileno=int(argument))


def follow_parent(argument: str) -> None:
    """In the child: have the system kill this process when its parent ends, in whatever way.

    argument is the second one that `ChildProcess` added, the parent's number. Exits if that process has ended already.
    """
    if has_process_files():
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(argument):
        sys.exit(1)


def yield_to_parent() -> None:
    """In the child: let the parent go first where processor time or memory are short."""
    os.nice(_NICENESS)
    if has_process_files():
        with contextlib.suppress(OSError):  # no /proc here
            Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE), encoding="ascii")


def ignored_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that a terminal or a service manager sends to the child with its parent."""
    return signal.SIGINT, signal.SIGTERM, signal.SIGHUP


class GroupProcess(subprocess.Popen[bytes]):
    """A program that can be killed with all that it has started: `kill_all`. Raises OSError.

    It has pipes for input and errors, and no output.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )

    def kill_all(self) -> None:
        """Kill it and its children, but those in yet another session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def release(self) -> None:
        """Forget it when it has ended; what it has started may live on."""


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # random(4)


def boot_id() -> str:
    """An id that differs between machines, and between two starts of one; empty if the system has none."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
