"""Runs in the environment with zarr 3 and ome-zarr-models, which acqstream's tests cannot share (they need zarr 2).

Arguments: a container and an output folder. Every array goes to the output as a file of numpy, its path with "_" for
"/"; standard output is a JSON object with what the packages say of each group. Nothing of acqstream is imported here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from ome_zarr_models import open_ome_zarr


def read(container: str, out: str) -> dict[str, Any]:
    """Read all arrays; validate the container and every image in it."""
    found: dict[str, Any] = {"arrays": {}, "groups": {}}
    top = zarr.open_group(container, mode="r", zarr_format=3)
    groups = {"": top, **dict(top.groups())}
    for name, group in groups.items():
        if "multiscales" in group.attrs.get("ome", {}):  # of a collection the package has no model
            found["groups"][name] = type(open_ome_zarr(group)).__name__
        for key, array in group.arrays():
            path = f"{name}/{key}" if name else key
            np.save(Path(out) / f"{path.replace('/', '_')}.npy", array[...])
            shards = getattr(array, "shards", None)
            found["arrays"][path] = {"names": list(array.metadata.dimension_names), "shards": shards}
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(read(*sys.argv[1:])))
