"""The runs of a data directory as the page lists them: as `ls` reads them, and their results, without opening them.

Links and lines to copy open a dataset in other programs. The addresses of virtual datasets, and of the page that shows
one in Neuroglancer, are those of docs/web.md.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from acqstream.dataset.run_list import ListedRun, RunIndex, read_brief
from acqstream.errors import AcqStreamError
from acqstream.formats.ndtiff.folders import VIEW_SUFFIX, is_run, run_of_part
from acqstream.model.dataset_name import name_key
from acqstream.model.units import shell_word
from acqstream.model.view_spec import LOG_VIEW_KINDS
from acqstream.monitor.daemon_watch import receipt_in
from acqstream.web.data.neuroglancer_state import CONCURRENT_DOWNLOADS, state_url
from acqstream.web.page.page_texts import receipt_texts

MAX_LOOKS = 1000  # folders that an answer looks into
MAX_READ = 2000  # datasets whose facts are kept
N_TIMED = 200  # of the latest, whose time is looked at for each answer
ALL_TIMES_S = 60.0
_NO_MIRRORS = (VIEW_SUFFIX, *(f".{kind}" for kind in LOG_VIEW_KINDS))  # levels, and notes on progress


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """One run, or a mirror without one. receipt: texts of the page, None without a receipt."""

    run: ListedRun
    receipt: Mapping[str, Any] | None

    @property
    def mirrors(self) -> tuple[str, ...]:
        """Names of their folders, as addresses have them."""
        prefix = self.run.name[: self.run.name.rfind("/") + 1]
        return tuple(prefix + part for part in self.run.parts if not part.endswith(_NO_MIRRORS))

    @property
    def is_settled(self) -> bool:
        return self.run.is_settled

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.run.name,
            "format": self.run.format,
            "state": self.run.doubt or self.run.state,
            "changed_s": self.run.began_s,
            "receipt": self.receipt,
            "mirrors": self.mirrors,
        }


@dataclass(frozen=True, slots=True)
class DatasetPage:
    """Some datasets that were searched for. total: all of them; offset of the next page, None after the last one.

    Of more than MAX_LOOKS other folders some may count at first. The next page may turn out empty.
    """

    total: int
    next_offset: int | None
    entries: Sequence[DatasetEntry]

    def as_dict(self) -> dict[str, Any]:
        return {"total": self.total, "next": self.next_offset, "datasets": [one.as_dict() for one in self.entries]}


class DatasetCatalog:
    """Finds datasets by words of their names. Thread safe; remembers what it has read of those shown lately.

    With 20,000 datasets a search takes milliseconds. The times of the latest folders are looked at for each answer, and
    those of all others after ALL_TIMES_S. What came, went or changed since is judged again, with the names that begin
    with it, and nothing else.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: Mapping[str, Path] = {}
        self._keys: dict[str, str] = {}  # names to search in
        self._times: dict[str, float] = {}  # of the last change, of all that can be listed
        self._families: dict[str, set[str]] = {}  # names by their begin up to the first dot: runs and their parts
        self._owners: dict[str, str] = {}  # the run of each part
        self._parts: dict[str, set[str]] = {}  # own names of mirrors, by run
        self._others: set[str] = set()  # names of folders that are no dataset
        self._unjudged: set[str] = set()  # names that may be of those
        self._latest: list[tuple[float, str]] = []  # time of the last change and name, the last changed one first
        self._timed_at_s = -math.inf
        self._index = RunIndex(_read_entry, MAX_READ)

    def page(self, folders: Mapping[str, Path], search: str, offset: int, limit: int) -> DatasetPage:
        """At most `limit` datasets with all words of `search` in their names, the last changed one first.

        folders: by name, as `ServedFolders` has them. offset: of a page before, 0 for the first. Reads small files.
        """
        with self._lock:
            self._refresh(folders)
            words, found = name_key(search).split(), self._latest
            for word in words:
                found = [one for one in found if word in self._keys[one[1]]]
            entries: list[DatasetEntry] = []
            n_looks, end = 0, offset
            for _, name in found[offset:]:
                if len(entries) == limit or n_looks == MAX_LOOKS:
                    break
                end, n_looks = end + 1, n_looks + 1
                entry = self._entry(name)
                if entry is not None:
                    entries.append(entry)
            total = len(found) - sum(all(word in self._keys[name] for word in words) for name in self._others)
            return DatasetPage(total, end if end < len(found) else None, entries)

    def _refresh(self, folders: Mapping[str, Path]) -> None:
        now_s = time.monotonic()
        changed = set() if folders is self._folders else folders.keys() ^ self._folders.keys()
        self._folders = folders
        if now_s - self._timed_at_s >= ALL_TIMES_S:
            self._timed_at_s = now_s
            looked_at = changed.union(folders)
        else:
            looked_at = changed.union(name for _, name in self._latest[:N_TIMED])
        changed.update([name for name in looked_at if self._look(name)])
        if changed:
            self._regroup(changed)
        self._count_others()

    def _look(self, name: str) -> bool:
        """Note the time of the last change of a folder that can be listed; True if it is another one."""
        before = self._times.pop(name, None)
        if name in self._folders and not name.endswith(VIEW_SUFFIX):
            with contextlib.suppress(OSError):  # it has vanished
                self._times[name] = os.stat(self._folders[name]).st_mtime
        return self._times.get(name) != before

    def _regroup(self, changed: Set[str]) -> None:
        """Judge again which folders are parts of which run, among these and those whose names begin with theirs."""
        families: dict[str, set[str]] = {}
        for name in changed:
            family = _family(name)
            families[family] = members = self._families.setdefault(family, set())
            if name in self._folders:
                self._keys[name] = name_key(name)
                members.add(name)
            else:
                self._keys.pop(name, None)
                members.discard(name)
        owners = {name.removesuffix(VIEW_SUFFIX) for name in changed}
        judged = {*changed}
        for members in families.values():
            judged.update(name for name in members if not owners.isdisjoint(_begins(name)))
        for name in judged & self._owners.keys():
            self._look(name)  # it may have changed within ALL_TIMES_S
            self._parts[self._owners.pop(name)].discard(name.rpartition("/")[2])
        self._others -= judged
        self._unjudged -= judged
        for family, members in families.items():
            if not members:
                del self._families[family]
            elif len(members) > 1:
                above = family[: family.rfind("/") + 1]
                names, folder = {name[len(above) :] for name in members}, self._folders[min(members)].parent
                for name in judged & members:
                    own = name[len(above) :]
                    if run := run_of_part(folder, own, names):
                        self._owners[name] = above + run
                        self._parts.setdefault(above + run, set()).add(own)
        for name in changed - self._folders.keys():
            self._parts.pop(name, None)
        listed = (judged & self._times.keys()) - self._owners.keys()
        self._unjudged |= listed
        kept = [one for one in self._latest if one[1] not in judged]
        self._latest = sorted([*kept, *((self._times[name], name) for name in listed)], reverse=True)

    def _count_others(self) -> None:
        """Find new folders that are no dataset, which do not count; MAX_LOOKS of them at a time."""
        n_looks = 0
        while self._unjudged and n_looks < MAX_LOOKS:
            name = self._unjudged.pop()
            if not is_run(self._folders[name]):
                n_looks += 1
                self._entry(name)

    def _entry(self, name: str) -> DatasetEntry | None:
        above, slash, own = name.rpartition("/")
        folder, entry = os.fspath(self._folders[name].parent), None
        with contextlib.suppress(AcqStreamError, OSError):  # the other ones are listed all the same
            entry = self._index.run(folder, own, above + slash, sorted(self._parts.get(name, ())))
        (self._others.add if entry is None else self._others.discard)(name)
        return entry


def _begins(name: str) -> Iterator[str]:
    """Yield the name, and what stands before each of its dots."""
    yield name
    yield from (name[:at] for at, character in enumerate(name) if character == ".")


def _family(name: str) -> str:
    above, slash, own = name.rpartition("/")
    return f"{above}{slash}{own.partition('.')[0]}"


def _read_entry(path: Path, name: str, parts: Sequence[str]) -> DatasetEntry | None:
    run = read_brief(path, name, parts)
    if run is None:
        return None
    receipt = receipt_in(path) if run.format == "ndtiff" else None
    texts = None if receipt is None else receipt_texts(receipt, str(path.absolute()))
    return DatasetEntry(run, texts)


_FRAMES = "ndtiff"
_LAYOUTS = {"n5": "n5", "ome-zarr": "zarr3", "precomputed": "precomputed"}


def viewer_lines(name: str, format_name: str, path: str, base: str, neuroglancer: str) -> list[dict[str, str]]:
    """Labels with a link ("href"), or a line to copy ("line").

    base: address of this server as its client knows it, with the token if there is one, without a slash at the end.
    neuroglancer: address of a Neuroglancer client. path: the dataset on the machine of this server.
    """
    address = f"{base}/data/{quote(name)}"
    lines = [
        {"label": "Python here", "line": f"import acqstream; ds = acqstream.open({path!r})"},
        {"label": "napari here", "line": f"acqstream view {shell_word(path)}"},
    ]
    if format_name == _FRAMES:
        zarr, n5, kind = f"{address}/ome.zarr", f"{address}/n5", "zarr3"
    elif format_name in _LAYOUTS:
        zarr, n5, kind = address, address, _LAYOUTS[format_name]
    else:
        return lines
    is_virtual = format_name == _FRAMES  # its server knows its axes, and follows it while it grows
    link = (
        f"/view/{quote(name, safe='')}"
        if is_virtual
        else state_url(neuroglancer, _image_state(name, f"{zarr}/|{kind}:"))
    )
    lines.insert(0, {"label": "Neuroglancer", "href": link})
    if kind == "zarr3":
        lines += [
            {"label": "Python elsewhere", "line": f'import zarr; image = zarr.open("{zarr}", mode="r")["0"]'},
            # An address is percent-encoded: these quotes serve in the shells of all systems.
            {"label": "napari elsewhere", "line": f'napari --plugin napari-ome-zarr "{zarr}"'},
            {
                "label": "napari elsewhere, in Python",  # needs no plug-in
                "line": f'import napari, dask.array; napari.imshow(dask.array.from_zarr("{zarr}/0")); napari.run()',
            },
        ]
    if format_name == _FRAMES or kind == "n5":
        lines.append({"label": "Fiji: Plugins > BigDataViewer > HDF5/N5/Zarr/OME-NGFF Viewer", "line": f"{n5}"})
    return lines


def _image_state(name: str, source: str) -> dict[str, Any]:
    """A state with one image layer. No prefetch: it would read about 60 frames around the one that is shown."""
    return {
        "layers": [{"type": "image", "name": name, "source": source}],
        "layout": "xy",
        "prefetch": False,
        "concurrentDownloads": CONCURRENT_DOWNLOADS,
    }
