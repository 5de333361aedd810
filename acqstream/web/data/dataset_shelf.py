"""Datasets of the data directory: their folders, and those that are open for viewers and the page.

Folders are found by listing the data directory: no request makes up a path. A few datasets are open at a time, the
least recently used one is closed first.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from acqstream.errors import AcqStreamError, DatasetError, StorageError
from acqstream.formats.ndtiff import NDTiffFormat
from acqstream.formats.ndtiff.folders import VIEW_SUFFIX, holds_runs, is_run, run_of_part
from acqstream.formats.registry import chunk_formats, find_format
from acqstream.model.dataset_name import MAX_FOLDERS
from acqstream.storage.files.folder_tree import is_link
from acqstream.storage.stores.data_path import data_path_of
from acqstream.web.data.virtual_dataset import ServedDataset

logger = logging.getLogger("acqstream.web")

LISTED_S = 0.5  # a listing is used again for so long, and longer if it took more than WALK_S
WALK_S = 0.025
_MAX_LONGER = 10
SETTLED_NS = 2_500_000_000  # a directory that changed later may change again without another time of change
KIND_S = 2.0  # how long the format of a folder is remembered
MAX_KINDS = 10_000
MAX_BRANCHES = 2_000  # folders that are looked into for datasets

_Stamp = tuple[int, ...]  # device, inode, and times of the last change in nanoseconds


@dataclass(frozen=True, slots=True)
class _Listing:
    """The content of a folder.

    stamp: of the folder before it was listed; empty if it is listed again, as links may lead on. served: folders by
    name in the data directory. inodes: of runs and parts of runs, by their own names. below: folders that may hold
    datasets, by their own names. names: of all entries. is_branch: datasets may lie in it; is_cut: they are not listed.
    """

    stamp: _Stamp
    served: Mapping[str, Path]
    inodes: Mapping[str, int]
    below: Sequence[str] = ()
    names: Collection[str] = ()
    is_branch: bool = True
    is_cut: bool = False


class ServedFolders:
    """Folders of datasets below `data` by name, such as "anna/2026-11-29/embryo". Thread safe.

    Left out are hidden ones, links that lead out of `data`, and folders that hold other folders. Without an address is
    a name that is not UTF-8. Links are not followed to look for datasets in them.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._listed: dict[str, Path] = {}
        self._listings: dict[str, _Listing] = {}  # by the name of the folder, with "/" at its end
        self._reported: set[str] = set()  # names without an address
        self._is_cut = False  # not all folders were looked into
        self._kinds: dict[Path, tuple[bool, float]] = {}  # True for containers of chunk formats, and when looked at
        self._list_at_s = 0.0

    def all(self, *, is_ahead: bool = False) -> Mapping[str, Path]:
        """All folders by name. is_ahead: nobody asks yet, so the next call looks for changes. Raises StorageError."""
        with self._lock:
            began_s = time.monotonic()
            if began_s >= self._list_at_s:
                before, self._listings = self._listings, {}
                try:
                    self._walk(before)
                except OSError as error:
                    raise StorageError.wrap(error, str(self._data), "list the data directory") from error
                if self._listings != before:
                    self._listed = {}
                    for listing in self._listings.values():
                        self._listed.update(listing.served)
                ended_s = time.monotonic()
                longer = min(max((ended_s - began_s) / WALK_S, 1.0), _MAX_LONGER)
                self._list_at_s = 0.0 if is_ahead else ended_s + LISTED_S * longer
            return self._listed

    def _walk(self, before: Mapping[str, _Listing]) -> None:
        """List the data directory and the folders in it that may hold datasets, of them the last changed first.

        before: the listings of an earlier walk. One is good as long as its folder did not change. Raises OSError.
        """
        n_branches = n_cut = 0
        waiting = [(0, 0, "", _stamp(os.stat(self._data)))]  # the folders of users are looked into before all others
        while waiting:
            _, _, prefix, stamp = heapq.heappop(waiting)
            known, is_full = before.get(prefix), n_branches > MAX_BRANCHES  # the data directory counts as one
            is_same = known is not None and known.stamp == stamp
            if known is None or not is_same or (known.is_branch and known.is_cut != is_full):
                try:
                    known = self._look(prefix, stamp, known, is_full=is_full)
                except OSError:  # another user's, or removed meanwhile
                    if not prefix:
                        raise
                    continue
            self._listings[prefix] = known
            n_branches += known.is_branch and not known.is_cut
            n_cut += known.is_cut
            for name in known.below:
                with contextlib.suppress(OSError):
                    stamp = _stamp(os.lstat(f"{self._data}/{prefix}{name}"))
                    heapq.heappush(waiting, (min(prefix.count("/"), 1), -stamp[-1], f"{prefix}{name}/", stamp))
        if n_cut and not self._is_cut:
            text = "not listed: datasets in %d of the folders of %s, which has more than %d of users and days"
            logger.warning(text, n_cut, self._data, MAX_BRANCHES)
        self._is_cut = n_cut > 0

    def _look(self, prefix: str, stamp: _Stamp, known: _Listing | None, *, is_full: bool) -> _Listing:
        """List a folder unless it is a link by now. known: an earlier listing of this folder. Raises OSError."""
        folder = f"{self._data}/{prefix}".rstrip("/")
        kept = stamp if time.time_ns() - max(stamp[2:]) > SETTLED_NS else ()
        if not prefix:
            return self._list(folder, prefix, kept, known)
        if is_link(folder):
            raise NotADirectoryError(folder)
        above, _, name = prefix[:-1].rpartition("/")
        if not self._is_branch(prefix, name, self._listings[above and f"{above}/"].names):
            return _Listing(kept, {prefix[:-1]: Path(folder)}, {}, is_branch=False)
        return _Listing(kept, {}, {}, is_cut=True) if is_full else self._list(folder, prefix, kept, known)

    def _is_branch(self, prefix: str, name: str, neighbours: Collection[str]) -> bool:
        """Return True if datasets may lie in a folder: those in it are looked at. Raises OSError."""
        folder = self._data / prefix
        with os.scandir(folder) as found:
            has_folder = any(one.is_dir(follow_symlinks=False) and not one.name.startswith(".") for one in found)
        if not has_folder or prefix.count("/") > MAX_FOLDERS or not holds_runs(folder.parent, name, neighbours):
            return False
        return not _is_container(folder)

    def find(self, name: str) -> Path | None:
        """The folder with exactly this name; None if there is none, or if it leads out of the data directory by now."""
        folder = self.all().get(name)
        if folder is None and self._is_cut and f"{name}/" not in self._listings:
            folder = self._resolve(name)
        return None if folder is None or leads_out(folder, self._data) else folder

    def _resolve(self, name: str) -> Path | None:
        """The dataset of this name in folders that are not listed, if each part of the name is a folder and no link."""
        folder, parts = str(self._data), name.split("/")
        for number, part in enumerate(parts, 1):
            try:
                names = set(os.listdir(folder))
                path = f"{folder}/{part}"
                if part not in names or part.startswith(".") or is_link(path) or not os.path.isdir(path):
                    return None
            except OSError:
                return None
            is_last = number == len(parts)
            if holds_runs(folder, part, names) == is_last or number > MAX_FOLDERS + is_last:
                return None
            folder = path
        return Path(folder)

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

    def _list(self, folder: str, prefix: str, stamp: _Stamp, known: _Listing | None) -> _Listing:
        """known: an earlier listing of this folder. Raises OSError."""
        top = os.path.realpath(self._data)
        served: dict[str, Path] = {}
        inodes, below, nameless = {}, [], set()
        with os.scandir(folder) as found:
            entries = sorted((one for one in found if not one.name.startswith(".")), key=lambda one: one.name)
        names = {one.name for one in entries}
        for entry in entries:
            name, leads_on = entry.name, entry.is_symlink()
            if not _is_utf8(name):
                nameless.add(name)
                continue
            if leads_on:
                stamp = ()  # where a link leads may change elsewhere
            if not _is_folder(entry):
                continue
            is_known = not leads_on and known is not None and known.inodes.get(name) == entry.inode()
            if leads_on or (not is_known and is_link(entry.path)):
                stamp = ()
                if not _is_outside(entry.path, top):
                    served[prefix + name] = Path(entry.path)
            elif is_known or _is_of_run(folder, name, names):
                path = known.served.get(prefix + name) if known is not None else None  # 20,000 paths take a while
                served[prefix + name], inodes[name] = path or Path(entry.path), entry.inode()
            else:
                below.append(name)
        if new := nameless - self._reported:
            text = "not served, since their names are not UTF-8: %d folders or files in %s, such as %r; rename them"
            logger.warning(text, len(nameless), folder, min(new))
        self._reported |= nameless
        return _Listing(stamp, served, inodes, below, names)


def _stamp(status: os.stat_result) -> _Stamp:
    """Another one for another folder, and after an entry of the folder came or went, or its rights changed.

    Its owner can set the last time, but not the one before it (except on Windows, where that is of its creation).
    """
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mtime_ns


def _is_of_run(folder: str, name: str, names: Collection[str]) -> bool:
    """Return True for a run, and for a part of one, also if the run is gone."""
    if name.endswith(VIEW_SUFFIX) or f"{name}{VIEW_SUFFIX}" in names:
        return True
    return is_run(f"{folder}/{name}") or bool(run_of_part(Path(folder), name, names))


def _is_container(folder: Path) -> bool:
    """Return True also for what no name in the folder shows, as the bucket of a server."""
    try:
        return any(candidate.detect(data_path_of(folder)) for candidate in chunk_formats())
    except (DatasetError, StorageError):
        return False


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
