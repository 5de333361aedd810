"""The power-cut model: a disk that records every change, and what a power cut leaves of a folder after some of them."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from acqstream.storage.files.disk import LocalDisk

PIECE_BYTES = 4096


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

    def open_file_system(self, folder: str) -> None:
        return  # each file is forced by a call of its own

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
