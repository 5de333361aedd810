"""Output of the verbs: tables, JSON and progress, errors with their exit codes, the log; and text as it was typed.

Tables and JSON documents go to stdout, progress goes to stderr if that is a terminal. Exit codes are documented in
docs/command-line.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acqstream.errors import (
    AcqStreamError,
    AcquisitionFailed,
    ConfigError,
    DaemonUnavailable,
    DatasetLocked,
    StorageError,
    WaitTimeout,
)
from acqstream.model.daemon_note import STARTING
from acqstream.model.units import shell_word, size_text
from acqstream.storage.patient_output import PatientOutput, never_wait_for_output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
DatasetArgument = Annotated[Path, typer.Argument(help="A dataset, or a file or level in it.")]
FollowLinksOption = Annotated[bool, typer.Option("--follow-links", help="Read what links have elsewhere.")]

_PIPE_COLUMNS = 160  # a table in a file or pipe is not folded to 80 columns


def print_json(document: object) -> None:
    """One JSON document on stdout, in ASCII; dataclasses become objects, paths strings."""
    print(json.dumps(document, indent=2, ensure_ascii=True, default=_plain))


def print_made(path: Path, size_bytes: int, command: str) -> None:
    """The last lines of a verb: what it made, how large that is, and a command that opens it, from any folder."""
    print(f"made {path}, {size_text(size_bytes)}")
    print(f"open {command} {shell_word(str(path.absolute()))}")


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def console() -> Console:
    """A console for tables on stdout; plain text if that is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False, soft_wrap=False)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress display on stderr that clears itself; silent if stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        yield progress


@contextmanager
def progress_of(text: str) -> Iterator[Callable[[int, int], None]]:
    """A progress display of one task: call it with what is done and all there is, which may be 0 at first."""
    with progress_bar() as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2  # of the argument parser too
    INCOMPLETE = 3  # frames are missing, or a run did not end in order
    UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h: no daemon answers
    STORAGE = 75  # EX_TEMPFAIL of sysexits.h: the disk failed, or another daemon holds the directory
    TIMEOUT = 124  # as timeout(1): what was waited for has not ended in time
    CONFIGURATION = 78  # EX_CONFIG of sysexits.h: the service manager does not try again


def exit_code_of(error: AcqStreamError | OSError) -> ExitCode:
    """The code that a verb ends with after this error."""
    if isinstance(error, DaemonUnavailable):
        return ExitCode.UNAVAILABLE
    if isinstance(error, ConfigError):
        return ExitCode.CONFIGURATION
    if isinstance(error, DatasetLocked | StorageError):
        return ExitCode.STORAGE
    if isinstance(error, WaitTimeout):
        return ExitCode.TIMEOUT
    if isinstance(error, AcquisitionFailed) and error.code == "incomplete":
        return ExitCode.INCOMPLETE
    return ExitCode.ERROR


def error_line(error: AcqStreamError | OSError) -> str:
    """The error in one line, and the next step where there is one."""
    text = " ".join(str(error).split()) or type(error).__name__
    is_there = STARTING in text or "does not answer" in text
    if isinstance(error, DaemonUnavailable) and "acqstream serve" not in text and not is_there:
        text += "; start one with: acqstream serve --data DIR"
    return f"acqstream: {text}"


LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
MAX_LOG_BYTES = 2**20
N_OLD_LOGS = 4


class LogFile:
    """A file that is renamed when it is full; the last N_OLD_LOGS remain. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open_log(path)

    def write(self, data: bytes) -> int:
        """Append some of the data; return how many bytes."""
        if self._file.closed or (self._file.tell() and self._file.tell() + len(data) > MAX_LOG_BYTES):
            self._roll_over()
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()

    def _roll_over(self) -> None:
        self._file.close()
        # Windows renames no file that another program has open: go on with this one, or the message would be lost.
        with contextlib.suppress(OSError):
            for number in range(N_OLD_LOGS, 0, -1):
                source = self._path if number == 1 else Path(f"{self._path}.{number - 1}")
                if source.exists():
                    os.replace(source, f"{self._path}.{number}")
        self._file = _open_log(self._path)


def _open_log(path: Path) -> io.FileIO:
    from acqstream.storage.platform import open_log  # loads numpy, which most commands do not need

    return io.FileIO(path, "ab", opener=lambda _name, _flags: open_log(path))


def start_logging(path: Path | None, *, has_console: bool = True) -> None:
    """Log to stderr where it exists (pythonw.exe has none), and to the file. Raises ConfigError if it cannot.

    has_console=False: to the file alone. No thread waits for a write to either, nor for printed output.
    """
    never_wait_for_output()
    handlers: list[logging.Handler] = [logging.StreamHandler()] if has_console and sys.stderr is not None else []
    if path is not None:
        try:
            file = LogFile(path)
        except OSError as error:
            raise ConfigError(f"cannot write the log {path}: {error.strerror or error}") from error
        handlers.append(logging.StreamHandler(PatientOutput("log", file.write).stream()))
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, handlers=handlers)


def typed_text(argument: str) -> str:
    """The argument as it was typed. Bytes that Python could not decode in a plain locale are mostly UTF-8."""
    try:
        return argument.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        return argument  # the caller reports the error
