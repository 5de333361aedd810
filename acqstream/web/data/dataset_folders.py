"""The folders of datasets in the data directory, found by listing it: no request makes up a path."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from acqstream.errors import DatasetError, StorageError
from acqstream.formats.ndtiff import NDTiffFormat
from acqstream.formats.registry import find_format

LISTED_S = 0.5  # a listing is used again for so long
KIND_S = 2.0  # likewise what a folder holds
MAX_KINDS = 10_000


class ServedFolders:
    """Folders directly below `data` by name, but hidden ones and links that lead out of it. Thread safe."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._listed: dict[str, Path] = {}
        self._kinds: dict[Path, tuple[bool, float]] = {}  # True for containers of chunk formats, and when looked at
        self._listed_at_s = -LISTED_S

    def all(self) -> Mapping[str, Path]:
        """All folders by name. Raises StorageError."""
        with self._lock:
            if time.monotonic() - self._listed_at_s >= LISTED_S:
                self._listed = self._list()
                self._listed_at_s = time.monotonic()
            return self._listed

    def find(self, name: str) -> Path | None:
        """The folder with exactly this name; None if there is none."""
        return self.all().get(name)

    def has_chunks(self, folder: Path) -> bool:
        """Return True if a folder is a container of a chunk format; looked up again after some seconds."""
        now_s = time.monotonic()
        with self._lock:
            known = self._kinds.get(folder)
        if known is not None and now_s - known[1] < KIND_S:
            return known[0]
        try:
            found = not isinstance(find_format(folder), NDTiffFormat)
        except DatasetError:
            found = False
        with self._lock:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            self._kinds[folder] = found, now_s
        return found

    def _list(self) -> dict[str, Path]:
        top = os.path.realpath(self._data)
        found = {}
        try:
            with os.scandir(self._data) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if entry.name.startswith("."):
                        continue
                    if _is_folder(entry) and not (entry.is_symlink() and _is_outside(entry.path, top)):
                        found[entry.name] = Path(entry.path)
        except OSError as error:
            raise StorageError.wrap(error, str(self._data), "list the data directory") from error
        return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """False also for what cannot be looked at, as a link in a circle: it must not hide the other folders."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def leads_out(path: Path, folder: Path) -> bool:
    """Return True if a path below a folder leads elsewhere by a link."""
    return path != folder and _is_outside(str(path), os.path.realpath(folder))


def _is_outside(path: str, top: str) -> bool:
    return not os.path.realpath(path).startswith(top.rstrip(os.sep) + os.sep)
