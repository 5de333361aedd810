"""The log of a daemon without a console, as a file of bounded size."""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

FORMAT = "%(asctime)s %(levelname)s %(message)s"
MAX_BYTES = 2**20
N_OLD = 4


class LogFile(RotatingFileHandler):
    """A file that is renamed when it is full; the last N_OLD ones remain."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=N_OLD, encoding="utf-8", errors="backslashreplace")

    def doRollover(self) -> None:  # noqa: N802 - the name of the standard library
        try:
            super().doRollover()
        except OSError:
            # Windows renames no file that another program has open: go on with this one, or the message would be lost.
            self.stream = self._open()


def start_logging(path: Path | None, *, has_console: bool = True) -> None:
    """Log to stderr where it exists (pythonw.exe has none), and to the file. Raises OSError if it cannot be opened.

    has_console=False: to the file alone.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler()] if has_console and sys.stderr is not None else []
    if path is not None:
        handlers.append(LogFile(path))
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=handlers)
