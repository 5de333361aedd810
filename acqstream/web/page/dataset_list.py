"""The datasets of a data directory as the page lists them: name, state and result, without opening them.

Links and lines to copy open a dataset in other programs. The addresses of virtual datasets, and of the page that shows
one in Neuroglancer, are those of docs/web.md.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from acqstream.errors import AcqStreamError, CorruptDataset
from acqstream.formats.ndtiff.completion import StateFile
from acqstream.formats.ndtiff.folders import VIEW_SUFFIX, is_run, run_of_part
from acqstream.formats.registry import find_format
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
SETTLED_S = 2.5  # a folder that changed later than so long ago may change again without another time of change
DAMAGED = "state unknown: acqstream.json is damaged"
_NO_MIRRORS = (VIEW_SUFFIX, *(f".{kind}" for kind in LOG_VIEW_KINDS))  # levels, and notes on progress


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """One dataset. format "" : no format is known, or there is no frame yet. changed_s: seconds since 1970.

    state is "" for datasets of other writers, DAMAGED if it cannot be read; receipt has texts of the page, None without
    a receipt. mirrors: names of their folders.
    """

    name: str
    format: str
    state: str
    changed_s: float
    receipt: Mapping[str, Any] | None
    mirrors: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "format": self.format,
            "state": self.state,
            "changed_s": self.changed_s,
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

    With 20,000 datasets a search takes milliseconds: names are kept, and the time of each folder is looked at again
    when a name comes or goes, or after ALL_TIMES_S; until then those of the latest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: Mapping[str, Path] = {}
        self._folded: dict[str, str] = {}  # names to search in
        self._parts: dict[str, list[str]] = {}  # names of mirrors, by dataset
        self._others: set[str] = set()  # names of folders that are no dataset
        self._told: set[str] = set()  # names that were told from those
        self._latest: list[tuple[float, str]] = []  # time of the last change and name, the last changed one first
        self._timed_at_s = -math.inf
        self._read: OrderedDict[str, tuple[tuple[float, tuple[str, ...]], DatasetEntry | None]] = OrderedDict()

    def page(self, folders: Mapping[str, Path], search: str, offset: int, limit: int) -> DatasetPage:
        """At most `limit` datasets with all words of `search` in their names, the last changed one first.

        folders: by name, as `ServedFolders` has them. offset: of a page before, 0 for the first. Reads small files.
        """
        with self._lock:
            self._refresh(folders)
            words, found = name_key(search).split(), self._latest
            if words:
                found = [one for one in found if all(word in self._folded[one[1]] for word in words)]
            entries: list[DatasetEntry] = []
            n_looks, end = 0, offset
            for changed_s, name in found[offset:]:
                if len(entries) == limit or n_looks == MAX_LOOKS:
                    break
                end, n_looks = end + 1, n_looks + 1
                entry = self._entry(name, changed_s)
                if entry is not None:
                    entries.append(entry)
            total = len(found) - sum(name in self._others for _, name in found)
            return DatasetPage(total, end if end < len(found) else None, entries)

    def _refresh(self, folders: Mapping[str, Path]) -> None:
        now_s = time.monotonic()
        is_same = folders is self._folders or folders.keys() == self._folders.keys()
        if not is_same or now_s - self._timed_at_s >= ALL_TIMES_S:
            parts: dict[str, list[str]] = {}
            neighbours: dict[str, set[str]] = {}
            for name in folders:
                above, _, own = name.rpartition("/")
                neighbours.setdefault(above, set()).add(own)
            for name in folders:
                above, slash, own = name.rpartition("/")
                if run := run_of_part(folders[name].parent, own, neighbours[above]):
                    parts.setdefault(f"{above}{slash}{run}", []).append(name)
            hidden = {one for names in parts.values() for one in names}
            self._parts, self._timed_at_s = parts, now_s
            self._folded = {name: name_key(name) for name in folders}
            names, later = [one for one in folders if one not in hidden], []
        else:
            names, later = [name for _, name in self._latest[:N_TIMED]], self._latest[N_TIMED:]
        self._folders = folders
        timed = _with_times((name, folders[name]) for name in names)
        if timed != self._latest[:N_TIMED] or not later:
            self._latest = sorted((*timed, *later), reverse=True)
        if not later:
            self._tell_others()

    def _tell_others(self) -> None:
        """Find new folders that are no dataset, which do not count; MAX_LOOKS of them at a time."""
        self._others &= self._folders.keys()
        self._told &= self._folders.keys()
        n_looks = 0
        for changed_s, name in self._latest:
            if n_looks < MAX_LOOKS and name not in self._told:
                self._told.add(name)
                if not is_run(self._folders[name]):
                    n_looks += 1
                    self._entry(name, changed_s)

    def _entry(self, name: str, changed_s: float) -> DatasetEntry | None:
        known, key = self._read.get(name), (changed_s, tuple(self._parts.get(name, ())))
        if known is None or known[0] != key:
            known = key, _entry(name, self._folders, *key)
            (self._others.add if known[1] is None else self._others.discard)(name)
            if time.time() - changed_s < SETTLED_S:
                return known[1]  # it may change again without another time
            self._read[name] = known
        self._read.move_to_end(name)
        if len(self._read) > MAX_READ:
            self._read.popitem(last=False)
        return known[1]


def _with_times(folders: Iterable[tuple[str, Path]]) -> list[tuple[float, str]]:
    """The time of the last change of each folder that is not one of notes. A folder that vanishes is left out."""
    times = []
    for name, path in folders:
        if name.endswith(VIEW_SUFFIX) or name.rpartition("/")[2].startswith("."):
            continue
        try:
            times.append((os.stat(path).st_mtime, name))
        except OSError:
            continue
    return times


def _entry(name: str, folders: Mapping[str, Path], changed_s: float, parts: Sequence[str]) -> DatasetEntry | None:
    folder = folders[name]
    try:
        format_name = find_format(folder).name
        state = _state_of(folder) if format_name == "ndtiff" else ""
    except (AcqStreamError, OSError):
        return None
    receipt = receipt_in(folder) if format_name == "ndtiff" else None
    texts = receipt_texts(receipt, str(folder.absolute())) if receipt is not None else None
    mirrors = tuple(one for one in sorted(parts) if not one.endswith(_NO_MIRRORS))
    return DatasetEntry(name, format_name, state, changed_s, texts, mirrors)


def _state_of(folder: Path) -> str:
    file = StateFile(folder)
    file.refresh()
    try:
        return str(file.state or "")
    except CorruptDataset:  # its frames can be read
        return DAMAGED


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
