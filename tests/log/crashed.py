"""Datasets as they lie on the disk when their writer has died."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from tests.log.make_frames import Frame, start_log
from tests.log.read_back import read_index, stack_folder
from tests.storage.scripted_disk import ScriptedDisk

LIMIT_BYTES = 7_600_000  # of a stack file: seven frames of 320 x 512 uint16
Step = Frame | int  # a frame, or that many skipped numbers


def crash(folder: Path, steps: Sequence[Step], *, disk: ScriptedDisk | None = None, **spec: Any) -> Path:
    """A dataset as it lies on the disk when its writer dies after publishing `steps`."""
    source = folder.with_name(folder.name + "-alive")
    number = 0
    with start_log(source, limit=LIMIT_BYTES, durability="close", disk=disk, **spec) as log:
        log.wait_until_open()
        for step in steps:
            if isinstance(step, int):
                log.skip(number, step, "no light")
                number += step
            else:
                log.append(step.header, step.image)
                number += 1
            assert log.wait_for_published(number)
        shutil.copytree(source, folder)
    shutil.rmtree(source)
    return folder


def content_of(folder: Path) -> dict[str, bytes]:
    """Files and their bytes, without those that hold the time."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"}


def without_leftovers(folder: Path) -> dict[str, bytes]:
    """As `content_of`, without files whose replacing was cut short."""
    return {name: content for name, content in content_of(folder).items() if not name.endswith(".new")}


def entry_starts(folder: Path) -> list[int]:
    """Where the entries of the index begin, and where the last one ends."""
    return [*read_index(folder).offsets, (stack_folder(folder) / INDEX_NAME).stat().st_size]


def cut(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)
