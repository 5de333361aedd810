"""Runs in the environment with zarr 3, xarray, obstore, cloud-volume and napari. Nothing of acqstream is imported here.

Arguments: the name of a function below, a URL, and an output file of numpy. Standard output is a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stdout
from typing import Any

import numpy as np


def fsspec(url: str, out: str) -> dict[str, Any]:
    """Read level 0 with zarr-python over fsspec."""
    import zarr

    group = zarr.open_group(url, mode="r")
    np.save(out, group["0"][...])
    names = getattr(group["0"].metadata, "dimension_names", ())
    return {"names": list(names or ())}


def obstore(url: str, out: str) -> dict[str, Any]:
    """Read level 0 with zarr-python over obstore."""
    import zarr
    from obstore.store import HTTPStore
    from zarr.storage import ObjectStore

    store = ObjectStore(HTTPStore.from_url(url, client_options={"allow_http": True}), read_only=True)
    np.save(out, zarr.open_group(store, mode="r")["0"][...])
    return {}


def xarray(url: str, out: str) -> dict[str, Any]:
    """Read the dataset for xarray."""
    import xarray as xr

    dataset = xr.open_zarr(url, chunks=None)
    image = dataset["image"]
    np.save(out, image.values)
    coords = {name: [*image.coords[name].values.tolist()] for name in image.dims}
    units = {name: image.coords[name].attrs.get("units", "") for name in image.dims}
    return {"dims": [*image.dims], "coords": coords, "units": units, "attributes": sorted(image.attrs)}


def dask(url: str, out: str) -> dict[str, Any]:
    """Read level 0 as a lazy array of dask."""
    import dask.array

    lazy = dask.array.from_zarr(url, component="0")
    np.save(out, lazy.compute(scheduler="threads"))
    return {"chunks": [sizes[0] for sizes in lazy.chunks]}


def plate(url: str, out: str) -> dict[str, Any]:
    """Validate a plate, its first well and that well's first field with ome-zarr-models; read the field."""
    import zarr
    from ome_zarr_models import open_ome_zarr

    top = zarr.open_group(url, mode="r")
    attributes = top.attrs.asdict()
    well = attributes.get("ome", attributes)["plate"]["wells"][0]["path"]
    groups = [top, *(zarr.open_group(f"{url}/{path}", mode="r") for path in (well, f"{well}/0"))]
    np.save(out, groups[-1]["0"][...])
    models = [open_ome_zarr(group) for group in groups]
    return {"models": [type(one).__name__ for one in models], "modules": [type(one).__module__ for one in models]}


def cloudvolume(url: str, out: str) -> dict[str, Any]:
    """Read a precomputed volume."""
    from cloudvolume import CloudVolume

    volume = CloudVolume(url, progress=False, fill_missing=True)
    np.save(out, np.asarray(volume[:, :, :])[..., 0].T)
    return {"resolution": volume.resolution.tolist()}


def napari(url: str, out: str) -> dict[str, Any]:
    """Open an image in napari's model of a viewer, through its plug-in for OME-Zarr, and move the sliders to the end.

    out gets levels of layers as LAYER/LEVEL, and the picture that a layer shows as LAYER/shown if it has one level.
    """
    import npe2
    from napari.components import ViewerModel

    npe2.PluginManager.instance().discover()
    viewer = ViewerModel()
    layers = viewer.open(url, plugin="napari-ome-zarr")
    viewer.dims.current_step = tuple(count - 1 for count in viewer.dims.nsteps)
    arrays: dict[str, Any] = {}
    for number, layer in enumerate(layers):
        levels = layer.data if layer.multiscale else [layer.data]
        arrays.update({f"{number}/{level}": np.asarray(data) for level, data in enumerate(levels)})
        if not layer.multiscale:
            arrays[f"{number}/shown"] = np.asarray(layer._slice.image.raw)
    with open(out, "wb") as file:
        np.savez(file, **arrays)
    return {
        "names": [layer.name for layer in layers],
        "scales": [layer.scale.tolist() for layer in layers],
        "axes": [list(layer.axis_labels) for layer in layers],
        "limits": [list(layer.contrast_limits) for layer in layers],
        "colors": [(255 * layer.colormap.map(np.array([1.0]))[0, :3]).tolist() for layer in layers],
        "units": [[str(unit) for unit in layer.units] for layer in layers],
    }


def napari_line(line: str, out: str) -> dict[str, Any]:
    """Run a line of Python that shows an image, with napari's model of a viewer in place of its window."""
    import napari
    import napari.view_layers
    from napari.components import ViewerModel

    viewers, runs = [], []

    def make_viewer(**_options: Any) -> ViewerModel:
        viewers.append(ViewerModel())
        return viewers[-1]

    napari.view_layers.Viewer = make_viewer
    napari.run = lambda: runs.append(True)
    exec(line, {})  # noqa: S102 - it is the page's own line
    (layer,) = viewers[0].layers
    np.save(out, np.asarray(layer.data))
    return {"runs": len(runs)}


if __name__ == "__main__":
    functions = {one.__name__: one for one in (fsspec, obstore, xarray, dask, plate, cloudvolume, napari, napari_line)}
    with redirect_stdout(sys.stderr):  # some of them print
        told = functions[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # threads of obstore abort an interpreter that ends in its turn, once in some hundred times
