"""The log of a daemon without a console, as a file of bounded size."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from pathlib import Path

from acqstream.errors import ConfigError
from acqstream.storage.patient_output import PatientOutput, never_wait_for_output

FORMAT = "%(asctime)s %(levelname)s %(message)s"
MAX_BYTES = 2**20
N_OLD = 4


class LogFile:
    """A file that is renamed when it is full; the last N_OLD ones remain. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open(path)

    def write(self, data: bytes) -> int:
        """Append some of the data; return how many bytes."""
        if self._file.closed or (self._file.tell() and self._file.tell() + len(data) > MAX_BYTES):
            self._roll_over()
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()

    def _roll_over(self) -> None:
        self._file.close()
        # Windows renames no file that another program has open: go on with this one, or the message would be lost.
        with contextlib.suppress(OSError):
            for number in range(N_OLD, 0, -1):
                source = self._path if number == 1 else Path(f"{self._path}.{number - 1}")
                if source.exists():
                    os.replace(source, f"{self._path}.{number}")
        self._file = _open(self._path)


def _open(path: Path) -> io.FileIO:
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
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=handlers)
