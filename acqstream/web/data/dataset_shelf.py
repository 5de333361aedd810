"""Datasets of the data directory: their folders, and those that are open for viewers and the page.

Folders are found by listing the data directory: no request makes up a path. A few datasets are open at a time, the
least recently used one is closed first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from acqstream.errors import AcqStreamError, DatasetError, StorageError
from acqstream.formats.ndtiff import NDTiffFormat
from acqstream.formats.registry import find_format
from acqstream.web.data.virtual_dataset import ServedDataset

logger = logging.getLogger("acqstream.web")

LISTED_S = 0.5  # a listing is used again for so long
SETTLED_NS = 2_500_000_000  # a directory that changed later may change again without another time of change
KIND_S = 2.0  # likewise what a folder holds
MAX_KINDS = 10_000


class ServedFolders:
    """Folders directly below `data` by name, but hidden ones and links that lead out of it. Thread safe.

    A name that is not UTF-8 has no address, so its folder is left out.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._listed: dict[str, Path] = {}
        self._reported: set[str] = set()  # names without an address
        self._kinds: dict[Path, tuple[bool, float]] = {}  # True for containers of chunk formats, and when looked at
        self._listed_at_s = -LISTED_S
        self._changed_ns = 0  # when the data directory changed before it was listed; 0: it is listed again

    def all(self) -> Mapping[str, Path]:
        """All folders by name. Raises StorageError."""
        with self._lock:
            if time.monotonic() - self._listed_at_s >= LISTED_S:
                changed_ns = self._settled_ns()
                if not changed_ns or changed_ns != self._changed_ns:
                    self._listed, has_links = self._list()
                    self._changed_ns = 0 if has_links else changed_ns  # where a link leads may change elsewhere
                self._listed_at_s = time.monotonic()
            return self._listed

    def _settled_ns(self) -> int:
        """When an entry of the directory came or went last; 0 if that was just now, or cannot be told."""
        try:
            changed_ns = os.stat(self._data).st_mtime_ns
        except OSError:
            return 0
        return changed_ns if time.time_ns() - changed_ns > SETTLED_NS else 0

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

    def _list(self) -> tuple[dict[str, Path], bool]:
        """Folders by name, and whether links are among the entries."""
        top = os.path.realpath(self._data)
        found, has_links, nameless = {}, False, set()
        try:
            with os.scandir(self._data) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if entry.name.startswith("."):
                        continue
                    if not _is_utf8(entry.name):
                        nameless.add(entry.name)
                        continue
                    has_links |= entry.is_symlink()
                    if _is_folder(entry) and not (entry.is_symlink() and _is_outside(entry.path, top)):
                        found[entry.name] = Path(entry.path)
        except OSError as error:
            raise StorageError.wrap(error, str(self._data), "list the data directory") from error
        if new := nameless - self._reported:
            text = "not served, since their names are not UTF-8: %d folders or files in %s, such as %r; rename them"
            logger.warning(text, len(nameless), self._data, min(new))
        self._reported = nameless
        return found, has_links


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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


@dataclass(slots=True, eq=False)
class _Book:
    dataset: ServedDataset
    identity: tuple[int, int]  # of the folder: another one may take its name
    n_users: int = 0
    is_closed: bool = False


class DatasetShelf:
    """Lends datasets by folder. Thread safe; files are opened and closed by the threads that borrow."""

    def __init__(self, max_open: int, opener: Callable[[Path], ServedDataset]) -> None:
        self._max_open = max_open
        self._opener = opener
        self._lock = threading.Lock()  # of the two below and of each book's n_users
        self._books: OrderedDict[Path, _Book] = OrderedDict()
        self._opening = threading.Lock()  # one at a time: opening a million frames takes memory

    @contextmanager
    def borrow(self, folder: Path) -> Iterator[ServedDataset]:
        """The dataset in a folder, open until it is given back; it is as of its last refresh.

        Raises UnknownFormat before the first frame, StorageError, CorruptDataset; FileNotFoundError without a folder.
        """
        book = self._take(folder)
        try:
            yield book.dataset
        finally:
            self._give_back(book)

    def drop(self, dataset: ServedDataset) -> None:
        """Open the dataset again at the next request: it was replaced or removed."""
        with self._lock:
            book = self._books.get(dataset.path)
            if book is None or book.dataset is not dataset:
                return
            del self._books[dataset.path]
        self._discard(book)

    def close(self) -> None:
        """Close all; those in use when they are given back."""
        with self._lock:
            books = [*self._books.values()]
            self._books.clear()
        for book in books:
            self._discard(book)

    def _take(self, folder: Path) -> _Book:
        status = os.stat(folder)
        identity = status.st_dev, status.st_ino
        book = self._known(folder, identity)
        if book is not None:
            return book
        with self._opening:
            book = self._known(folder, identity)  # another thread may have opened it meanwhile
            if book is not None:
                return book
            book = _Book(self._opener(folder), identity, n_users=1)
            with self._lock:
                old = self._books.pop(folder, None)
                self._books[folder] = book
                surplus = [self._books.popitem(last=False)[1] for _ in range(len(self._books) - self._max_open)]
            for one in filter(None, [old, *surplus]):
                self._discard(one)
            return book

    def _known(self, folder: Path, identity: tuple[int, int]) -> _Book | None:
        with self._lock:
            book = self._books.get(folder)
            if book is None or book.identity != identity:
                return None
            self._books.move_to_end(folder)
            book.n_users += 1
            return book

    def _give_back(self, book: _Book) -> None:
        with self._lock:
            book.n_users -= 1
            must_close = book.is_closed and not book.n_users
        if must_close:
            _close(book)

    def _discard(self, book: _Book) -> None:
        """Close a book that was taken off the shelf, now or when its last user gives it back."""
        with self._lock:
            book.is_closed = True
            must_close = not book.n_users
        if must_close:
            _close(book)


def _close(book: _Book) -> None:
    with contextlib.suppress(AcqStreamError, OSError):  # it only reads
        book.dataset.close()
