"""Nothing is forced to the disk by the tests' own process: that shows in a power cut only, and takes milliseconds.

Daemons and whatever else runs in a process of its own force as ever, and so do the tests of the disk (tests/storage).
Which calls force what, and when, is noted above these functions, by the scripted disks.
"""

from __future__ import annotations

import os

import pytest

_FORCING = {name: getattr(os, name) for name in ("fsync", "fdatasync") if hasattr(os, name)}


def force_nothing() -> None:
    for name in _FORCING:
        setattr(os, name, _look_only)


def force_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, call in _FORCING.items():
        monkeypatch.setattr(os, name, call)


def _look_only(descriptor: int) -> None:
    os.fstat(descriptor)  # one that is closed is an error still
