"""The changes that a verdict makes to a dataset, in their order, applied by one function over a Disk.

After a crash between any two of them the next recovery or repair does the rest.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from acqstream.errors import StorageError
from acqstream.formats.ndtiff.pages import StackPage
from acqstream.log.state_file import remove_file
from acqstream.storage.files.append_file import AppendFile
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.stack_file import finish_file

KEPT_SUFFIX = ".unpublished"
"""Suffix of stack files without a published frame, which recovery puts aside."""


@dataclass(frozen=True, slots=True)
class Finish:
    """A stack file gets patches (offset, bytes) and its exact length."""

    path: str
    patches: Sequence[tuple[int, bytes]]
    length: int

    def apply(self, disk: Disk) -> None:
        try:
            finish_file(disk, self.path, self.patches, self.length)
        except OSError as error:
            raise StorageError.wrap(error, self.path, "cannot finish") from error


def finish_stack(path: str, last: StackPage, end: int) -> Finish | None:
    """End the page chain after `last` and cut the file to `end` bytes; None if it is finished already."""
    try:
        is_finished = last.next == 0 and os.path.getsize(path) == end
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot finish") from error
    return None if is_finished else Finish(path, [(last.next_at, struct.pack("<I", 0))], end)


@dataclass(frozen=True, slots=True)
class PutAside:
    """A stack file is renamed, not removed: its frames were never published, but an operator may want to see them."""

    path: str
    length: int

    def apply(self, disk: Disk) -> None:
        try:
            finish_file(disk, self.path, (), self.length)  # free the space reserved after its end
            disk.replace(self.path, self.path + KEPT_SUFFIX)
        except OSError as error:
            folder = os.path.dirname(self.path)
            raise StorageError.wrap(error, folder, "cannot put unpublished stack files aside") from error


@dataclass(frozen=True, slots=True)
class Remove:
    """A file, which may be missing, is removed."""

    path: str

    def apply(self, disk: Disk) -> None:
        remove_file(disk, self.path)


@dataclass(frozen=True, slots=True)
class Replace:
    """A small file gets this content, atomically."""

    path: str
    content: bytes

    def apply(self, disk: Disk) -> None:
        replace_file(disk, self.path, self.content)


@dataclass(frozen=True, slots=True)
class Regrow:
    """A growing file is patched (offset, bytes), cut to `end`, continued with `added`, and forced.

    kept are its last bytes before `end`, written again: after a failed sync a lost one can still be read. header, the
    file's first bytes, comes last. held is the file where it is open and locked; otherwise it is opened.
    """

    path: str
    end: int
    kept: bytes = b""
    added: bytes = b""
    patches: Sequence[tuple[int, bytes]] = ()
    header: bytes = b""
    held: AppendFile | None = None

    def apply(self, disk: Disk) -> None:
        if self.held is not None:
            self._write(self.held)
            return
        file = AppendFile(disk, self.path, create=not os.path.exists(self.path), end=self.end)
        try:
            self._write(file)
        finally:
            file.close()

    def _write(self, file: AppendFile) -> None:
        for offset, content in self.patches:
            file.rewrite(offset, content)
        file.cut(self.end)
        if self.kept:
            file.rewrite(self.end - len(self.kept), self.kept)
        if self.added:
            file.append(self.added)
        if self.header:
            file.rewrite(0, self.header)
        file.sync()


@dataclass(frozen=True, slots=True)
class Force:
    """Bytes of a held file that only the page cache has are forced to the disk."""

    held: AppendFile

    def apply(self, _disk: Disk) -> None:
        self.held.sync()


Change = Finish | PutAside | Remove | Replace | Regrow | Force


def apply_changes(changes: Iterable[Change], disk: Disk) -> None:
    """Make these changes. Raises StorageError; those before the one that failed are made."""
    for change in changes:
        change.apply(disk)
