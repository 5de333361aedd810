"""Standard output, standard error and log files that a program never waits for.

A full pipe, a console with selected text and a hung mount all block a write. So each of them has a bounded
queue and a thread of its own. The thread writes to the raw file: the lock of a buffer would keep the program from
ending while a write is blocked.
"""

from __future__ import annotations

import atexit
import io
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

MAX_PIECES = 1000  # that wait; a further one is dropped
MAX_PIECE_BYTES = 16384
END_S = 1.0  # for what waits when the program ends
_RETRY_S = 0.05  # of a file that another program has made non-blocking


class PatientOutput(io.RawIOBase):
    """A file whose `write` never waits. target writes some bytes, and returns how many; None: none now.
    replaced: the stream of the process whose place it takes.

    n_dropped: pieces that found the queue full, or failed; their number is written as soon as the queue is empty.
    """

    def __init__(
        self, name: str, target: Callable[[bytes], int | None], replaced: io.TextIOWrapper | None = None
    ) -> None:
        super().__init__()
        self._replaced = replaced
        self.n_dropped = 0
        self._target = target
        self._pieces: queue.SimpleQueue[bytes | threading.Event] = queue.SimpleQueue()  # a signal handler may log
        self._thread = threading.Thread(target=self._run, name=f"output-{name}", daemon=True)
        self._thread.start()
        atexit.register(self.drain)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return super().fileno() if self._replaced is None else self._replaced.fileno()

    def isatty(self) -> bool:
        return self._replaced is not None and self._replaced.isatty()

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        """Queue a piece of text, or drop it."""
        if self._pieces.qsize() < MAX_PIECES:
            is_long = len(data) > MAX_PIECE_BYTES
            self._pieces.put(bytes(data[:MAX_PIECE_BYTES]) + b" ...\n" if is_long else bytes(data))
        else:
            self.n_dropped += 1
        return len(data)

    def drain(self, timeout_s: float = END_S) -> bool:
        """Wait until all that is queued was written, for at most timeout_s; return True if it was."""
        is_written = threading.Event()
        self._pieces.put(is_written)
        return is_written.wait(timeout_s)

    def _run(self) -> None:
        n_reported = 0
        while True:
            piece = self._pieces.get()
            if isinstance(piece, bytes) and not self._write_all(piece):
                self.n_dropped += 1
            n_dropped = self.n_dropped
            if n_dropped > n_reported and self._pieces.empty():
                text = f"{n_dropped - n_reported} messages were dropped: they could not be written here in time\n"
                if self._write_all(text.encode()):
                    n_reported = n_dropped
            if isinstance(piece, threading.Event):
                piece.set()

    def _write_all(self, data: bytes) -> bool:
        try:
            while data:
                n_written = self._target(data)
                data = data[n_written or 0 :]
                if not n_written:
                    time.sleep(_RETRY_S)
        except (OSError, ValueError):  # a closed terminal, a full disk; ValueError: the file was closed
            return False
        return True

    def stream(self) -> io.TextIOWrapper:
        """Return this as a text file."""
        # A buffer in between would add nothing: a line is passed on as it ends.
        return io.TextIOWrapper(self, "utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[arg-type]


def never_wait_for_output() -> None:
    """From now on no write to standard output or standard error blocks this process.

    Streams that are no files, as in a notebook or a test, stay.
    """
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if type(stream) is io.TextIOWrapper and not isinstance(stream.buffer, PatientOutput):
            stream.flush()
            buffer: Any = stream.buffer
            setattr(sys, name, PatientOutput(name, getattr(buffer, "raw", buffer).write, stream).stream())
