"""Power cuts, simulated: what was not forced is lost piece by piece; what was called durable must be there."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError
from acqstream.model.acquisition_spec import TileSpec
from acqstream.pipeline.log import Log
from acqstream.pipeline.recovery import recover
from acqstream.pipeline.state_file import STATE_NAME
from acqstream.storage.disk import LocalDisk
from tests.pipeline.make_frames import MIB, Frame, frame_of, memory_of, spec_of
from tests.pipeline.read_back import check_ours

PIECE_BYTES = 4096
LIMIT_BYTES = 7_600_000
FRAMES = [
    frame_of(number, (320, 512) if number % 2 else (9, 11), axes={"row": number // 4, "column": number % 4})
    for number in range(16)
]


@dataclass
class Change:
    """One change of a file or a folder; `data` of a write, `offset` also the length of a cut.

    Names are paths in the dataset's folder, which itself is "".
    """

    kind: str
    name: str
    offset: int = 0
    data: bytes = b""
    target: str = ""


@dataclass
class Inode:
    """A file: what is safe, and what happened since."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def force(self) -> None:
        for change in self.pending:
            apply(self.safe, change.kind, change.offset, change.data)
        self.pending.clear()

    def after_cut(self, chance: random.Random) -> bytes:
        """Some pieces of what was not forced arrived, in any order; the length may have arrived without the bytes."""
        content = bytearray(self.safe)
        for change in self.pending if chance.random() < 0.8 else []:
            if change.kind == "truncate":
                apply(content, "truncate", change.offset, b"")
                continue
            for start in range(0, len(change.data), PIECE_BYTES):
                if chance.random() < 0.6:
                    piece = change.data[start : start + PIECE_BYTES]
                    within = chance.choice([len(piece), len(piece), chance.randrange(len(piece) + 1)])
                    apply(content, "pwritev", change.offset + start, piece[:within])
        return bytes(content)


def apply(content: bytearray, kind: str, offset: int, data: bytes) -> None:
    if kind == "truncate":
        del content[offset:]
        content.extend(bytes(offset - len(content)))
    else:
        content.extend(bytes(max(0, offset + len(data) - len(content))))
        content[offset : offset + len(data)] = data


class RecordingDisk(LocalDisk):
    """Notes every change, with its bytes, in the order in which the calls returned."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.changes: list[Change] = []
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}

    def note(self, kind: str, path: str, offset: int = 0, data: bytes = b"", target: str = "") -> None:
        self.changes.append(Change(kind, self._place(path), offset, data, self._place(target) if target else ""))

    def _place(self, path: str) -> str:
        place = os.path.relpath(path, self._folder)
        return "" if place == "." else place

    def mkdir(self, path: str) -> None:
        with self._lock:
            super().mkdir(path)
            self.note("mkdir", path)

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        with self._lock:
            fd = super().open(path, create=create, direct=direct)
            self._names[fd] = path
            if create:
                self.note("create", path)
            return fd

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        with self._lock:
            written = super().pwritev(fd, buffers, offset)
            self.note("pwritev", self._names[fd], offset, b"".join(bytes(one) for one in buffers)[:written])
            return written

    def truncate(self, fd: int, length: int) -> None:
        with self._lock:
            super().truncate(fd, length)
            self.note("truncate", self._names[fd], length)

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            super().fdatasync(fd)
            self.note("fdatasync", self._names[fd])

    def replace(self, source: str, target: str) -> None:
        with self._lock:
            super().replace(source, target)
            self.note("replace", source, target=target)
            self._names = {fd: target if name == source else name for fd, name in self._names.items()}

    def unlink(self, path: str) -> None:
        with self._lock:
            super().unlink(path)
            self.note("unlink", path)

    def sync_directory(self, path: str) -> None:
        with self._lock:
            super().sync_directory(path)
            self.note("sync_directory", path)


def record(folder: Path, **spec_fields: Any) -> tuple[list[Change], list[int]]:
    """The changes of a whole run, and for every count of them how many frames were durable then."""
    disk = RecordingDisk(folder)
    seen: list[tuple[int, int]] = [(0, 0)]
    log: Log | None = None

    def on_change() -> None:
        if log is not None:
            durable = log.cursors().durable  # before the count: never too much is expected of too few changes
            seen.append((len(disk.changes), durable))

    spec = spec_of(durability="batch", **spec_fields)
    log = Log(folder, spec, memory=memory_of(2 * MIB), disk=disk, on_change=on_change, stack_limit_bytes=LIMIT_BYTES)
    with log:
        for frame in FRAMES:
            log.append(frame.header, frame.image)
            if frame.header.number % 3 == 2:
                assert log.wait_for_published(frame.header.number + 1)
    durable = [max(number for count, number in seen if count <= position) for position in range(len(disk.changes) + 1)]
    assert durable[-1] == len(FRAMES)
    return disk.changes, durable


def build(changes: Sequence[Change], folder: Path, chance: random.Random) -> None:
    """The folder as a power cut after these changes may leave it."""
    files: dict[str, dict[str, Inode]] = {}  # by folder
    steps: dict[str, list[dict[str, Inode]]] = {}  # each folder after the changes of its names since it was last forced
    for change in changes:
        place = os.path.dirname(change.name)
        if change.kind == "mkdir":  # in the dataset's folder it is there at once: nothing else tells of it
            files[change.name], steps[change.name] = {}, [{}]
        elif change.kind == "sync_directory":
            if change.name in files:
                steps[change.name] = [dict(files[change.name])]
        elif change.kind == "fdatasync":
            files[place][change.name].force()
        elif change.kind in ("create", "replace", "unlink"):
            if change.kind == "create":
                files[place][change.name] = Inode()
            else:
                moved = files[place].pop(change.name)
                if change.kind == "replace":
                    files[place][change.target] = moved
            steps[place].append(dict(files[place]))
        else:
            files[place][change.name].pending.append(change)
    folder.mkdir()
    for place, choices in steps.items():
        (folder / place).mkdir(exist_ok=True)
        for name, inode in chance.choice(choices).items():
            (folder / name).write_bytes(inode.after_cut(chance))


def check_never_wrong(folder: Path) -> None:
    """Before any recovery: a listed frame is right, or it is refused."""
    try:
        dataset = acqstream.open(folder)
    except DatasetError:
        return
    by_axes = {tuple(frame.axes.items()): frame for frame in FRAMES}
    with dataset:
        for axes in list(dataset.keys()):
            frame: Frame = by_axes[tuple(axes.items())]
            try:
                image = dataset.read_frame(axes)
            except DatasetError:
                continue
            assert np.array_equal(image, frame.image), f"frame {frame.header.number} is wrong before recovery"


@pytest.mark.parametrize(
    ("cuts", "tiles"),
    [(150, None), (100, TileSpec((2, 4))), pytest.param(1000, None, marks=pytest.mark.slow)],
    ids=["few", "tiled", "many"],
)
def test_durable_frames_survive_and_none_is_wrong(tmp_path: Path, cuts: int, tiles: TileSpec | None) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    changes, durable = record(tmp_path / "cells", tiles=tiles)
    recovered = 0
    for cut in range(cuts):
        position = chance.randrange(len(changes) + 1)
        place = f"seed {seed}, cut {cut} after {position} changes"
        folder = tmp_path / "cut" / "cells"
        folder.parent.mkdir()
        build(changes[:position], folder, chance)
        check_never_wrong(folder)
        if not (folder / STATE_NAME).exists():
            assert durable[position] == 0, place
        else:
            recover(folder)
            with acqstream.open(folder) as dataset:
                count, complete = len(list(dataset.keys())), dataset.complete
            assert count >= durable[position], place
            check_ours(folder, FRAMES[:count], complete=complete)
            recovered += 1
        shutil.rmtree(folder.parent)
    assert recovered > cuts // 2
