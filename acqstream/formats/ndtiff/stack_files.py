"""The stack files of one folder, opened when first read, a bounded number at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from acqstream.errors import CorruptDataset, StorageError
from acqstream.formats.ndtiff.stack_header import ByteOrder, byte_order_of
from acqstream.storage.files.boundary import Boundary
from acqstream.storage.files.read_file import ReadFile

MAX_OPEN = 64  # descriptors are limited to 1024 per process on many systems


class StackFiles:
    """Open stack files by name; the least recently used one is closed when too many are open. Thread safe.

    check_in_place raises DatasetError if the folder was replaced since the index was opened. Called after each opening.
    """

    def __init__(self, folder: Path, check_in_place: Callable[[], None], boundary: Boundary) -> None:
        self._folder = folder
        self._boundary = boundary
        self._check_in_place = check_in_place
        self._open: OrderedDict[str, tuple[ReadFile, ByteOrder]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> tuple[ReadFile, ByteOrder]:
        """The file and its byte order. Raises CorruptDataset if it is missing or no TIFF file.

        The file stays open as long as the caller holds it.
        """
        with self._lock:
            entry = self._open.get(name)
            if entry is None:
                entry = self._open[name] = self._open_file(name)
                if len(self._open) > MAX_OPEN:
                    self._open.popitem(last=False)
            elif len(self._open) > 1:
                self._open.move_to_end(name)
            return entry

    def close(self) -> None:
        """Give up all files."""
        with self._lock:
            self._open.clear()

    def _open_file(self, name: str) -> tuple[ReadFile, ByteOrder]:
        path = self._folder / name
        try:
            with self._boundary.inside():
                file = ReadFile(path)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise CorruptDataset("the index names this stack file, but it is missing", path=str(path)) from error
            raise
        self._check_in_place()
        return file, byte_order_of(file.read, str(path))
