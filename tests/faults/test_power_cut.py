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
from acqstream.integrity.recovery import recover
from acqstream.log import journal
from acqstream.log.log import Log
from acqstream.log.state_file import STATE_NAME
from acqstream.model.acquisition_spec import TileSpec
from acqstream.storage.disk import LocalDisk
from tests.log.make_frames import MIB, Frame, frame_of, memory_of, spec_of
from tests.log.read_back import check_ours, read_journal

PIECE_BYTES = 4096
LIMIT_BYTES = 7_600_000
SKIPS = {2: 1, 5: 3, 9: 1, 10: 2, 17: 40, 63: 2}  # numbers that never come: the first one, and how many
END = 65  # the number behind the last one


def numbers_put() -> list[int]:
    skipped = {number for first, count in SKIPS.items() for number in range(first, first + count)}
    return [number for number in range(END) if number not in skipped]


FRAMES = [
    frame_of(number, (320, 512) if place % 2 else (9, 11), axes={"row": place // 4, "column": place % 4})
    for place, number in enumerate(numbers_put())
]


@dataclass
class Change:
    """One change of a file or a folder; `data` of a write, `offset` also the length of a cut.

    Names are paths in the data directory, which itself is "".
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
    """The changes of a whole run, and for every count of them how many numbers were durable then."""
    disk = RecordingDisk(folder.parent)
    seen: list[tuple[int, int]] = [(0, 0)]
    log: Log | None = None

    def on_change() -> None:
        if log is not None:
            durable = log.cursors().durable  # before the count: never too much is expected of too few changes
            seen.append((len(disk.changes), durable))

    spec = spec_of(**spec_fields)
    log = Log(folder, spec, memory=memory_of(2 * MIB), disk=disk, on_change=on_change, stack_limit_bytes=LIMIT_BYTES)
    with log:
        for place, frame in enumerate(FRAMES):
            skip_to(log, frame.header.number)
            log.append(frame.header, frame.image)
            if place % 3 == 2:
                assert log.wait_for_published(frame.header.number + 1)
        skip_to(log, END)
    durable = [max(number for count, number in seen if count <= position) for position in range(len(disk.changes) + 1)]
    assert durable[-1] == END
    return disk.changes, durable


def skip_to(log: Log, number: int) -> None:
    while log.received < number:
        log.skip(log.received, SKIPS[log.received], "planned")


Entries = dict[str, Inode | None]
"""What a folder lists: files, and folders as None, by their paths."""


def build(changes: Sequence[Change], directory: Path, chance: random.Random) -> None:
    """The data directory as a power cut after these changes may leave it."""
    entries: dict[str, Entries] = {"": {}}  # by folder
    steps: dict[str, list[Entries]] = {"": [{}]}  # each folder after the changes since its names were last forced
    for change in changes:
        place = os.path.dirname(change.name)
        if change.kind == "sync_directory":
            steps[change.name] = [dict(entries[change.name])]
        elif change.kind in ("mkdir", "create", "replace", "unlink"):
            if change.kind == "mkdir":
                entries[change.name], steps[change.name] = {}, [{}]
                entries[place][change.name] = None
            elif change.kind == "create":
                entries[place][change.name] = Inode()
            else:
                moved = entries[place].pop(change.name)
                if change.kind == "replace":
                    entries[place][change.target] = moved
            steps[place].append(dict(entries[place]))
        else:
            inode = entries[place][change.name]
            assert inode is not None
            if change.kind == "fdatasync":
                inode.force()
            else:
                inode.pending.append(change)
    directory.mkdir()
    arrived = [""]
    for place in arrived:  # a folder whose name was lost has lost all that is in it
        for name, inode in chance.choice(steps[place]).items():
            if inode is None:
                (directory / name).mkdir()
                arrived.append(name)
            else:
                (directory / name).write_bytes(inode.after_cut(chance))


def check_journal(folder: Path, original: Path, durable: int) -> None:
    """Every frame has its own number still, and what is durable its own record: with the producer's checksum."""
    records, before = read_journal(folder), read_journal(original)
    frames = records[records["flags"] == journal.FRAME]
    assert list(frames["number"]) == [frame.header.number for frame in FRAMES[: len(frames)]]
    kept = before[before["number"] < durable]
    assert records[: len(kept)].tobytes() == kept.tobytes()


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
    ("cuts", "fields"),
    [
        (150, {"durability": "batch"}),
        (100, {"durability": "close"}),
        (100, {"durability": "batch", "tiles": TileSpec((2, 4))}),
        pytest.param(1000, {"durability": "batch"}, marks=pytest.mark.slow),
        pytest.param(1000, {"durability": "close"}, marks=pytest.mark.slow),
    ],
    ids=["few", "unforced", "tiled", "many", "many unforced"],
)
def test_durable_frames_survive_and_none_is_wrong(tmp_path: Path, cuts: int, fields: dict[str, Any]) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    original = tmp_path / "cells"
    changes, durable = record(original, **fields)
    recovered = 0
    for cut in range(cuts):
        position = chance.randrange(len(changes) + 1)
        place = f"seed {seed}, cut {cut} after {position} changes"
        folder = tmp_path / "cut" / "cells"
        build(changes[:position], folder.parent, chance)
        if not (folder / STATE_NAME).exists():
            assert durable[position] == 0, place
        else:
            if fields["durability"] == "batch":  # else an entry anywhere in the index may have lost its end
                check_never_wrong(folder)
            recover(folder)
            with acqstream.open(folder) as dataset:
                count, complete = len(list(dataset.keys())), dataset.complete
            check_ours(folder, FRAMES[:count], complete=complete)
            check_journal(folder, original, durable[position])
            recovered += 1
        shutil.rmtree(folder.parent)
    assert recovered > cuts // 2
