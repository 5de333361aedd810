"""The datasets of a data directory as the page lists them: name, state and result, without opening them.

Links and lines to copy open a dataset in other programs. The addresses of virtual datasets, and of the page that shows
one in Neuroglancer, are those of docs/web.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from acqstream.errors import AcqStreamError, CorruptDataset
from acqstream.formats.ndtiff.completion import StateFile
from acqstream.formats.ndtiff.folders import VIEW_SUFFIX, run_of_part
from acqstream.formats.registry import find_format
from acqstream.model.units import shell_word
from acqstream.monitor.daemon_watch import receipt_in
from acqstream.web.data.neuroglancer_state import CONCURRENT_DOWNLOADS, state_url
from acqstream.web.page.page_texts import receipt_texts

MAX_LISTED = 200
DAMAGED = "state unknown: acqstream.json is damaged"


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """One dataset. format "" : no format is known, or there is no frame yet. changed_s: seconds since 1970.

    state is "" for datasets of other writers, DAMAGED if it cannot be read; receipt has texts of the page, None without
    a receipt.
    """

    name: str
    format: str
    state: str
    changed_s: float
    receipt: Mapping[str, Any] | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "format": self.format,
            "state": self.state,
            "changed_s": self.changed_s,
            "receipt": self.receipt,
        }


def list_datasets(folders: Mapping[str, Path], limit: int = MAX_LISTED) -> list[DatasetEntry]:
    """The latest `limit` datasets, the last changed one first. Reads small files only.

    A mirror is an entry of its own only if its dataset is gone.
    """
    latest = sorted(_with_times(folders), reverse=True)
    entries: list[DatasetEntry] = []
    for changed_s, name in latest:
        entry = _entry(name, folders[name], changed_s)
        if entry is not None:
            entries.append(entry)
        if len(entries) == limit:
            break
    return entries


def _with_times(folders: Mapping[str, Path]) -> list[tuple[float, str]]:
    """The time of the last change of each folder but parts of runs and notes. A folder that vanishes is left out."""
    times = []
    for name, path in folders.items():
        if name.endswith(VIEW_SUFFIX) or name.startswith(".") or run_of_part(path.parent, name, folders.keys()):
            continue
        try:
            times.append((os.stat(path).st_mtime, name))
        except OSError:
            continue
    return times


def _entry(name: str, folder: Path, changed_s: float) -> DatasetEntry | None:
    try:
        format_name = find_format(folder).name
        state = _state_of(folder) if format_name == "ndtiff" else ""
    except (AcqStreamError, OSError):
        return None
    receipt = receipt_in(folder) if format_name == "ndtiff" else None
    texts = receipt_texts(receipt) if receipt is not None else None
    return DatasetEntry(name, format_name, state, changed_s, texts)


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
    link = f"/view/{quote(name)}" if is_virtual else state_url(neuroglancer, _image_state(name, f"{zarr}/|{kind}:"))
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
