"""The stack files of one folder: their pages, the checksums of stored bytes, and how a file is finished."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

import xxhash

from acqstream.errors import StorageError
from acqstream.formats.ndtiff.pages import StackPage, walk_pages
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.files.stack_file import finish_file

KEPT_SUFFIX = ".unpublished"
"""Suffix of stack files without a published frame, which recovery puts aside."""
_PIECE_BYTES = 4 * 2**20


class OpenStacks:
    """Opens each stack file of a folder once. Raises StorageError where a file is missing or cannot be read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, ReadFile] = {}
        self._pages: dict[str, dict[int, StackPage]] = {}

    def get(self, name: str) -> ReadFile:
        if name not in self._files:
            self._files[name] = ReadFile(self._folder / name)
        return self._files[name]

    def size(self, name: str) -> int:
        """Length in bytes; 0 for a file that cannot be read."""
        with contextlib.suppress(StorageError):
            return self.get(name).size()
        return 0

    def pages(self, name: str) -> dict[int, StackPage]:
        """The pages of an intact chain by pixel offset; empty for a file that cannot be read."""
        if name not in self._pages:
            # A missing file has no pages: recovery then cuts what was said to lie in it.
            pages: list[StackPage] = []
            with contextlib.suppress(StorageError):
                file = self.get(name)
                head = file.read(0, 8)
                first = struct.unpack("<4xI", head)[0] if len(head) == 8 else 0
                pages += walk_pages(file.read, file.size(), first)
            self._pages[name] = {page.pixels: page for page in pages}
        return self._pages[name]

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def stored_checksum(file: ReadFile, offset: int, length: int) -> int | None:
    """XXH3-64 of the bytes [offset, offset + length), read in pieces; None where the file ends before.

    A damaged length costs no memory. Raises StorageError.
    """
    end = offset + length
    if file.size() < end:
        return None
    digest = xxhash.xxh3_64()  # fed in pieces: a record of a damaged journal may claim gigabytes
    while offset < end:
        piece = file.read(offset, min(_PIECE_BYTES, end - offset))
        if not piece:
            return None  # cut meanwhile
        digest.update(piece)
        offset += len(piece)
    return digest.intdigest()


def finish_stack(disk: Disk, path: str, last: StackPage, end: int) -> bool:
    """End the page chain after `last` and cut the file to `end` bytes; False if it is finished already.

    Raises StorageError.
    """
    try:
        if last.next == 0 and os.path.getsize(path) == end:
            return False
        finish_file(disk, path, [(last.next_at, struct.pack("<I", 0))], end)
    except OSError as error:
        raise StorageError.wrap(error, path, "cannot finish") from error
    return True
