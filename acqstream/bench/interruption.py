"""Cleaning up an interrupted benchmark: its processes are killed, its files deleted."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from acqstream.storage.platform.capabilities import interrupting_signals

SIGNALS = interrupting_signals()

_GONE_S = 10.0  # longer than a disk takes to let a killed process go


@contextmanager
def cleaned_up_if_interrupted() -> Iterator[None]:
    """Turn each of SIGNALS into SystemExit, with 128 and the signal's number; in the main thread only.

    All child processes are killed first, also one that is just starting, so none writes into a folder that is being
    deleted. Further signals are ignored from then on.
    """
    before = {number: signal.signal(number, _end) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def temporary_folder(prefix: str, directory: Path | None = None) -> Iterator[Path]:
    """A new folder that is deleted at the end, also where the signal comes while it is being deleted."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        except SystemExit:  # no second one can follow
            with suppress(FileNotFoundError):  # it came last
                shutil.rmtree(folder)
            raise


def _end(number: int, _frame: FrameType | None) -> None:
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=_GONE_S)
    sys.exit(128 + number)
