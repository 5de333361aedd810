"""Links and lines to copy that open a dataset in other programs. Pure.

The addresses of virtual datasets, and of the page that shows one in Neuroglancer, are those of docs/web.md.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from acqstream.model.units import shell_word
from acqstream.web.data.neuroglancer_state import CONCURRENT_DOWNLOADS, state_url

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
