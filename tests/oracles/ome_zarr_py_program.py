"""Runs in the environment with zarr 3: ome-zarr-py reads places, and ome-zarr-models says what they are.

Arguments: an output folder and paths. Of the first node of path n, level k goes to the output as `n-k.npy`;
standard output is a JSON list with what the packages say of each path. Nothing of acqstream is imported here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader
from ome_zarr_models import open_ome_zarr


def read(out: Path, number: int, path: str) -> dict[str, Any]:
    """The first node at a path, with all levels."""
    node = next(iter(Reader(parse_url(path))()))
    for level, data in enumerate(node.data):
        np.save(out / f"{number}-{level}.npy", np.asarray(data))
    metadata = node.metadata
    return {
        "specs": [type(spec).__name__ for spec in node.specs],
        "levels": len(node.data),
        "axes": [axis["name"] for axis in metadata["axes"]],
        "channels": metadata.get("channel_names"),
        "limits": [[*map(float, pair)] for pair in metadata.get("contrast_limits") or []],
        "transformations": metadata["coordinateTransformations"],
        "model": type(open_ome_zarr(zarr.open_group(path, mode="r", zarr_format=3))).__name__,
    }


if __name__ == "__main__":
    found = [read(Path(sys.argv[1]), number, path) for number, path in enumerate(sys.argv[2:])]
    sys.stdout.write(json.dumps(found))
