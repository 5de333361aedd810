"""The runs below a directory: each dataset with its parts as one entry, found fast by an index that may be lost.

The index of a directory lies in the cache folder of this user (XDG_CACHE_HOME, LOCALAPPDATA, else ~/.cache), and not in
the directory: disks may be read-only or full, and users who share one trust each other with nothing. It has nothing
that the disk has not. What another user could have written, what is damaged, and what another version wrote is not
used, and the runs are read again. A run is read again if its folder, its index or a part of it has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import xxhash

from acqstream import __version__
from acqstream.dataset.dataset import Dataset, open_dataset
from acqstream.errors import AcqStreamError, CorruptDataset, FileMissing, StorageError
from acqstream.formats.ndtiff.completion import STATE_NAME, StateFile, read_request
from acqstream.formats.ndtiff.folders import (
    FULL_RESOLUTION,
    VIEW_SUFFIX,
    has_ndtiff_mark,
    is_run,
    mirror_parts,
    read_records,
    run_of_part,
    stack_paths,
)
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.registry import chunk_formats
from acqstream.model.dataset_name import name_key
from acqstream.model.view_spec import requested_views
from acqstream.storage.files.atomic_file import read_private, replace_private
from acqstream.storage.files.boundary import distrust
from acqstream.storage.files.folder_tree import is_link, walk
from acqstream.storage.files.small_file import read_json_object
from acqstream.storage.platform import FILES
from acqstream.storage.stores.data_path import data_path_of

CHANNEL = "channel"
MAX_DEPTH = 6  # folders of users, projects and days; a disk with other things is not searched to its end
MAX_WORDS = 1000  # characters of a summary that are searched
MAX_CHANNELS = 64
LAST_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
MAX_INDEX_BYTES, MAX_INDEXES = 2**27, 64
SETTLED_S = 2.5  # a folder that changed later than so long ago may change again without another time of change
_STACKS_LOOKED_AT = 3

Signature = list[list[Any]]
"""What differs once a run has changed: time, number or size, and name, of its folder, its index and its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A dataset with its parts, or a mirror whose dataset is gone.

    name: its path below the listed directory, with "/". began_s: when it began, seconds since 1970; of other writers,
    when it changed last. size_bytes: of all parts, without holes. axes: how many values each has, of frames with row
    and column. state: as in acqstream.json, lower case; "complete" or "growing" for other writers. mirrors: state by
    name; "removed" if the folder of one that had ended is gone. words: texts of its summary. doubt: why it cannot be
    read, or "". parts: names beside its folder.
    """

    name: str
    format: str
    began_s: float
    frames: int = 0
    size_bytes: int = 0
    axes: Mapping[str, int] = field(default_factory=dict)
    channels: Sequence[str] = ()
    state: str
    mirrors: Mapping[str, str] = field(default_factory=dict)
    words: str = ""
    doubt: str
    parts: Sequence[str]

    @property
    def is_settled(self) -> bool:
        """Nothing of it changes without a change of its folder."""
        return not self.doubt and "running" not in (self.state, *self.mirrors.values()) and self.state != "growing"

    def matches(self, words: Iterable[str], channel: str = "") -> bool:
        """True if each word is in its name, a channel or its summary, and `channel` in a channel, of any case."""
        channels = [name_key(one) for one in self.channels]
        text = "\n".join([name_key(self.name), *channels, name_key(self.words)])
        return all(name_key(word) in text for word in words) and (
            not channel or any(name_key(channel) in one for one in channels)
        )


def list_runs(
    top: Path, *, cache: Path | None = None, on_read: Callable[[int], None] = lambda _count: None
) -> list[ListedRun]:
    """The runs in and below a directory, the one that began last first. Links are not followed.

    cache: the folder of indexes, by default this user's. on_read gets how many runs were read and not found in the
    index. Raises StorageError if the directory cannot be listed; folders below that cannot are left out.
    """
    count = itertools.count(1)

    def read(path: Path, name: str, parts: Sequence[str]) -> ListedRun | None:
        run = _read_run(path, name, parts)
        if run is not None:
            on_read(next(count))
        return run

    index = _KeptIndex(read, Path(os.path.realpath(top)), cache_folder() if cache is None else cache)
    runs = [*_runs_below(index, str(top), "")]
    index.save()
    return sorted(runs, key=lambda run: (-run.began_s, run.name))


def parts_in(folder: Path, names: Collection[str]) -> dict[str, list[str]]:
    """The parts of each run in a folder that has any, by name and sorted. names: all names in the folder, as a set."""
    parts: dict[str, list[str]] = {}
    for name in sorted(name for name in names if "." in name):
        if owner := run_of_part(folder, name, names):
            parts.setdefault(owner, []).append(name)
    return parts


def parts_of(run: Path) -> list[str]:
    """Names of what lies beside a dataset, or beside a mirror without one, and belongs to it. Raises StorageError."""
    names = _names_in(run.parent)
    if not is_run(run):
        return [name for name in mirror_parts(run.name, names) if name != run.name]
    start = f"{run.name}."
    return sorted(one for one in names if one.startswith(start) and run_of_part(run.parent, one, names) == run.name)


def disk_bytes(path: Path) -> int:
    """Disk usage of a file or of all files in a folder in bytes, without holes and links."""
    if not path.is_dir():
        return FILES.stored_bytes(str(path)) if path.is_file() else 0
    total = 0
    for folder, names in walk(str(path)):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a temporary file
                if not is_link(f"{folder}/{name}"):
                    total += FILES.stored_bytes(f"{folder}/{name}")
    return total


def cache_folder() -> Path | None:
    """The folder of this user for what can be made again; None if the system names none."""
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        if value := os.environ.get(name):
            return Path(value) / "acqstream"
    try:
        return Path.home() / ".cache" / "acqstream"
    except RuntimeError:
        return None


def _runs_below(index: RunIndex[ListedRun], folder: str, prefix: str) -> Iterator[ListedRun]:
    """Yield the runs in a folder, then those of the folders in it. Raises StorageError for the first folder."""
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry in found if not entry.name.startswith(".")]
    except OSError as error:
        if prefix:
            return  # another user's, or removed meanwhile
        raise StorageError.wrap(error, folder, "list the runs in") from error
    names = {entry.name for entry in entries}
    parts = parts_in(Path(folder), names)
    own = {name for some in parts.values() for name in some}
    below: list[str] = []
    for entry in entries:
        if entry.name in own or not _is_plain_folder(entry):
            continue
        run_parts = parts.get(entry.name) or [one for one in mirror_parts(entry.name, names) if one != entry.name]
        run = index.run(folder, entry.name, prefix, run_parts)
        if run is not None:
            yield run
        elif not entry.name.endswith(VIEW_SUFFIX):
            below.append(entry.name)
    for name in below if prefix.count("/") < MAX_DEPTH else ():
        yield from _runs_below(index, f"{folder}/{name}", f"{prefix}{name}/")


def read_brief(path: Path, name: str, parts: Sequence[str]) -> ListedRun | None:
    """A run by its small files alone, without size, mirrors and what its frames tell; None for another folder.

    Raises FileNotFoundError, PermissionError.
    """
    format_name = "ndtiff" if is_run(path) else _format_of(path)
    if not format_name:
        return None
    state, doubt = "", ""
    if format_name == "ndtiff":
        file = StateFile(path)
        try:
            file.refresh()
            state = str(file.state or "").lower()
        except CorruptDataset:  # its frames can be read
            state, doubt = "damaged", "state unknown: acqstream.json is damaged"
        except StorageError as error:
            state, doubt = "damaged", str(error)
    began_s = _within_dates(os.stat(path).st_mtime)
    return ListedRun(name=name, format=format_name, began_s=began_s, state=state, doubt=doubt, parts=parts)


def _read_run(path: Path, name: str, parts: Sequence[str]) -> ListedRun | None:
    run = read_brief(path, name, parts)
    if run is None:
        return None
    run = replace(run, size_bytes=sum(disk_bytes(path.parent / part) for part in (path.name, *parts)))
    try:
        run = replace(run, began_s=_began_s(path) or run.began_s, mirrors=_mirrors_of(path))
        with open_dataset(path) as dataset:
            return _described(run, dataset)
    except (AcqStreamError, OSError) as error:
        return replace(run, state=run.state or "damaged", doubt=str(error))


def _described(run: ListedRun, dataset: Dataset) -> ListedRun:
    """Return the run with what its frames tell."""
    axes = dataset.axes
    return replace(
        run,
        format=dataset.format,
        frames=sum(1 for _ in dataset.keys()) if dataset.has_frames else 0,  # noqa: SIM118 - a method, no dict
        axes={axis: len(values) for axis, values in axes.items()},
        channels=[str(value) for value in axes.get(CHANNEL, ())[:MAX_CHANNELS] if isinstance(value, str)],
        state=run.state or ("complete" if dataset.complete else "growing"),
        words=_words_in(dataset.summary_metadata),
    )


def _began_s(path: Path) -> float | None:
    try:
        text = read_json_object(path / STATE_NAME).get("started_at")
        return _within_dates(datetime.fromisoformat(text).timestamp()) if isinstance(text, str) else None
    except (FileMissing, CorruptDataset, ValueError, OverflowError, OSError):
        return None


def _within_dates(seconds: float) -> float:
    """A time that every calendar here can show: files and strangers may state any."""
    return min(max(0.0, seconds), LAST_S)


def _mirrors_of(path: Path) -> dict[str, str]:
    """State of each mirror by name, as it is recorded; "running" for a requested one without a record."""
    found: dict[str, str] = {record.name: record.state for record in read_records(path).values()}
    with contextlib.suppress(ValueError):  # a damaged request; records have what was made
        for spec in requested_views(read_request(path) or {}):
            found.setdefault(spec.name, "running")
    return found


def _format_of(path: Path) -> str:
    """Name of the format of a folder that is no run by its names; "" if none is known."""
    place = data_path_of(path)
    try:
        for candidate in chunk_formats():
            if candidate.detect(place):
                return candidate.name
        return "ndtiff" if any(map(has_ndtiff_mark, stack_paths(path)[:_STACKS_LOOKED_AT])) else ""
    except (AcqStreamError, OSError):
        return ""


def _words_in(summary: Mapping[str, Any]) -> str:
    """The texts of a summary, up to MAX_WORDS characters."""
    texts, queue, length = [], [*summary.values()], 0
    while queue and length < MAX_WORDS:
        value = queue.pop(0)
        if isinstance(value, str) and value:
            texts.append(value[: MAX_WORDS - length])
            length += len(value) + 1
        elif isinstance(value, Mapping):
            queue += [*value.values()][:MAX_WORDS]
        elif isinstance(value, list | tuple):
            queue += value[:MAX_WORDS]
    return "\n".join(texts)


def _is_plain_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and not is_link(entry.path)
    except OSError:
        return False


def _names_in(folder: Path) -> set[str]:
    try:
        return {name for name in os.listdir(folder) if not name.startswith(".")}
    except OSError as error:
        raise StorageError.wrap(error, str(folder), "list") from error


def _signature(folder: str, name: str, parts: Collection[str]) -> Signature:
    """Raises FileNotFoundError without the folder."""
    path = f"{folder}/{name}"
    status = os.stat(path)
    found: Signature = [[status.st_mtime_ns, status.st_ino, ""]]
    for index in (f"{path}/{INDEX_NAME}", f"{path}/{FULL_RESOLUTION}/{INDEX_NAME}"):
        with contextlib.suppress(OSError):  # also of a link in a circle: reading the run says what is wrong
            status = os.stat(index)
            found.append([status.st_mtime_ns, status.st_size, ""])
            break
    for part in sorted(parts):
        with contextlib.suppress(OSError):
            status = os.stat(f"{folder}/{part}")
            found.append([status.st_mtime_ns, status.st_ino, part])
    return found


class _Settled(Protocol):
    @property
    def is_settled(self) -> bool:
        """Nothing of it changes without a change of its folder."""


_Run = TypeVar("_Run", bound=_Settled)


@dataclass(frozen=True, slots=True)
class _Row(Generic[_Run]):
    """What is known of a folder; run is None if it is not one."""

    signature: Signature
    run: _Run | None


class RunIndex(Generic[_Run]):
    """Runs as `read` found them last, of at most `max_rows` folders: those that were asked for last.

    read: gets the folder of a run, its name below the listed directory, and the names of its parts.
    """

    def __init__(self, read: Callable[[Path, str, Sequence[str]], _Run | None], max_rows: float = math.inf) -> None:
        self._read = read
        self._max_rows = max_rows
        self._rows: OrderedDict[str, _Row[_Run]] = OrderedDict()
        self._old: Mapping[str, _Row[_Run]] = self._rows

    def run(self, folder: str, name: str, prefix: str, parts: Sequence[str]) -> _Run | None:
        """Return the run in a folder; None if it is neither a run nor a mirror, if it is gone, or another user's.

        prefix: of its name, the path of `folder` below the listed directory, with "/" at its end.
        """
        began_ns, key = time.time_ns(), prefix + name
        try:
            signature = _signature(folder, name, parts)
            row = self._old.get(key)
            if row is None or row.signature != signature:
                row = _Row(signature, self._read(Path(folder, name), key, parts))
        except (FileNotFoundError, PermissionError):
            return None
        self._rows.pop(key, None)
        is_quiet = began_ns - max(look[0] for look in signature) > SETTLED_S * 1e9
        if is_quiet and (row.run is None or row.run.is_settled):
            self._rows[key] = row
            if len(self._rows) > self._max_rows:
                self._rows.popitem(last=False)
        return row.run


class _KeptIndex(RunIndex[ListedRun]):
    """The index of a directory in a file. cache: its folder, None to keep none."""

    def __init__(
        self, read: Callable[[Path, str, Sequence[str]], ListedRun | None], top: Path, cache: Path | None
    ) -> None:
        super().__init__(read)
        self._path = None if cache is None else cache / f"runs-{hashlib.sha256(os.fsencode(top)).hexdigest()[:32]}"
        self._old = self._load()

    def save(self) -> None:
        """Write the index if it has changed; without it the next list takes longer, and no error is due."""
        if self._path is None or dict(self._rows) == self._old:
            return
        rows = [[name, row.signature, row.run and astuple(row.run)] for name, row in self._rows.items()]
        body = json.dumps(rows, separators=(",", ":")).encode()
        with contextlib.suppress(OSError):  # a full disk, or a home that is read-only
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if len(body) <= MAX_INDEX_BYTES and not distrust(self._path):
                replace_private(self._path, _head(body) + body)
                self._forget_old_ones(self._path.parent)

    def _load(self) -> dict[str, _Row[ListedRun]]:
        if self._path is None or distrust(self._path):
            return {}
        try:
            content = read_private(self._path, MAX_INDEX_BYTES + 2**10)
        except OSError:  # none yet, or not ours
            return {}
        head, _, body = content.partition(b"\n")
        if head + b"\n" != _head(body):
            return {}
        try:
            rows = json.loads(body)  # written by this program, as the checksum shows
            names = ListedRun.__slots__
            return {
                name: _Row(signature, run and ListedRun(**dict(zip(names, run, strict=True))))
                for name, signature, run in rows
            }
        except (TypeError, ValueError):
            return {}

    @staticmethod
    def _forget_old_ones(folder: Path) -> None:
        """Remove the oldest indexes, of directories that nobody lists, and those that a killed process left."""
        found = sorted(folder.glob("runs-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in found[MAX_INDEXES:]:
            FILES.unlink(str(path))


def _head(body: bytes) -> bytes:
    """The first line: what wrote the rows, and their checksum, so that no row of a damaged file is believed."""
    return f"acqstream-runs 1 {__version__} {xxhash.xxh3_64_hexdigest(body)}\n".encode()
