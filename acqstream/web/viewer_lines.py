"""Links and lines to copy that open a dataset in other programs. Pure.

Sources: Neuroglancer's state in the fragment of its address (its JSON schema, "viewer state"); the addresses of virtual
datasets are those of docs/web.md.
"""

from __future__ import annotations

import json
from urllib.parse import quote

PUBLIC_NEUROGLANCER = "https://neuroglancer-demo.appspot.com/"
_FRAMES = "ndtiff"
_LAYOUTS = {"n5": "n5", "ome-zarr": "zarr3", "precomputed": "precomputed"}
_DOWNLOADS = 4  # at a time: a link must not take the disk away from a recording


def viewer_lines(name: str, format_name: str, path: str, base: str, neuroglancer: str) -> list[dict[str, str]]:
    """Labels with a link ("href"), or a line to copy ("line").

    base: address of this server as its client knows it, with the token if there is one, without a slash at the end.
    neuroglancer: address of a Neuroglancer client. path: the dataset on the machine of this server.
    """
    address = f"{base}/data/{quote(name)}"
    lines = [
        {"label": "Python here", "line": f'import acqstream; ds = acqstream.open("{path}")'},
        {"label": "napari here", "line": f'acqstream view "{path}"'},
    ]
    if format_name == _FRAMES:
        zarr, n5, kind = f"{address}/ome.zarr", f"{address}/n5", "zarr3"
    elif format_name in _LAYOUTS:
        zarr, n5, kind = address, address, _LAYOUTS[format_name]
    else:
        return lines
    link = f"{neuroglancer}#!{quote(neuroglancer_state(name, f'{zarr}/|{kind}:'))}"
    lines.insert(0, {"label": "Neuroglancer", "href": link})
    if kind == "zarr3":
        lines += [
            {"label": "Python elsewhere", "line": f'import zarr; image = zarr.open("{zarr}", mode="r")["0"]'},
            {
                "label": "napari elsewhere",
                "line": f'import napari, dask.array; napari.view_image(dask.array.from_zarr("{zarr}/0"))',
            },
        ]
    if format_name == _FRAMES or kind == "n5":
        lines.append({"label": "Fiji: Plugins > BigDataViewer > HDF5/N5/Zarr/OME-NGFF Viewer", "line": f"{n5}"})
    return lines


def neuroglancer_state(name: str, source: str) -> str:
    """A state with one image layer. No prefetch: it would read about 60 frames around the one that is shown."""
    state = {
        "layers": [{"type": "image", "name": name, "source": source}],
        "layout": "xy",
        "prefetch": False,
        "concurrentDownloads": _DOWNLOADS,
    }
    return json.dumps(state, separators=(",", ":"))
