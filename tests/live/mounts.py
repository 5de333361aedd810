"""A folder through a second mount, which shares no lock with the first."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import until


@contextmanager
def mounted(kind: str, source: Path, place: Path) -> Iterator[Path]:
    """`source` seen at `place`, by bindfs or as the upper folder of an overlay; skips the test where that cannot be."""
    for folder in (source, place, *(place.with_name(place.name + end) for end in ("-lower", "-work"))):
        folder.mkdir(exist_ok=True)
    options = f"lowerdir={place}-lower,upperdir={source},workdir={place}-work"
    command = {
        "bindfs": ["bindfs", str(source), str(place)],
        "overlay": ["mount", "-t", "overlay", "overlay", "-o", options, str(place)],
    }[kind]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, check=False, timeout=30)
    if done.returncode != 0:
        pytest.skip(f"no {kind} can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        command = ["umount", str(place)]
        until(lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0, "umount")
