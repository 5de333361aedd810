"""Runs in the environment that holds the webknossos package, which acqstream and its tests cannot share.

Each line of standard input is a JSON list, the name of a function below and its arguments; each is answered by a line
of standard output: {"found": ...}, or {"error": ...}. Nothing of acqstream is imported here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cluster_tools
import numpy as np
import webknossos


def read(path: str, out: str) -> dict[str, Any]:
    """All that the package says of a dataset; the voxels of each magnification go to LAYER_MAG.npy, (z, y, x, c)."""
    dataset = webknossos.Dataset.open(path)
    size = dataset.voxel_size_with_unit
    return {
        "voxel_size": list(size.factor),
        "unit": size.unit.value,
        "layers": {layer.name: _read_layer(layer, Path(out)) for layer in dataset.layers.values()},
    }


def _read_layer(layer: Any, out: Path) -> dict[str, Any]:
    mags: dict[str, Any] = {}
    for mag, view in sorted(layer.mags.items()):
        name, info = mag.to_layer_name(), view.info
        np.save(out / f"{layer.name}_{name}.npy", view.read().transpose(3, 2, 1, 0))
        mags[name] = {
            "block": list(info.chunk_shape),
            "cube": list(info.shard_shape),
            "compressed": info.compression_mode,
            "dtype": np.dtype(info.voxel_type).name,
        }
    return {
        "category": layer.category,
        "dtype": np.dtype(layer.dtype).name,
        "channels": layer.num_channels,
        "corner": list(layer.bounding_box.topleft),
        "size": list(layer.bounding_box.size),
        "mags": mags,
    }


def write(path: str, voxels: str, coarsest: str) -> dict[str, Any]:
    """Make a dataset of the voxels (z, y, x) in a file: one layer, compressed, with magnifications up to `coarsest`."""
    array = np.load(voxels).transpose(2, 1, 0)
    dataset = webknossos.Dataset(path, voxel_size=(11.24, 11.24, 28))
    box = webknossos.BoundingBox((0, 0, 0), array.shape)
    layer = dataset.add_layer("color", "color", dtype=array.dtype, data_format="wkw", bounding_box=box)
    layer.add_mag(1, compress=True).write(array, absolute_offset=(0, 0, 0), allow_unaligned=True)
    with cluster_tools.get_executor("sequential") as executor:  # no processes beside this one
        layer.downsample(coarsest_mag=webknossos.Mag(coarsest), executor=executor)
    return {}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever the package prints
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"found": read(*arguments) if name == "read" else write(*arguments)}
        except Exception as error:  # noqa: BLE001 - the test that asked tells it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
