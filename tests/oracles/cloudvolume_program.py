"""Runs in the environment that holds cloud-volume, which acqstream and its tests do not share.

Arguments: "read", a volume's folder, the number of a scale and a file of numpy that gets its voxels, (c, z, y, x);
standard output is a JSON object with what the package says of the scale. Or "write", a folder that does not exist, a
file of numpy with voxels (c, z, y, x), the encoding and the chunk (x, y, z). Nothing of acqstream is imported here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from cloudvolume import CloudVolume


def read(folder: str, scale: str, out: str) -> dict[str, Any]:
    volume = CloudVolume(f"file://{folder}", mip=int(scale), progress=False, fill_missing=False, bounded=True)
    voxels = np.asarray(volume[:])
    np.save(out, voxels.transpose(3, 2, 1, 0))
    return {
        "resolution": [float(size) for size in volume.resolution],
        "shape": [int(size) for size in volume.shape],
        "scales": len(volume.available_mips),
        "dtype": str(volume.dtype),
    }


def write(folder: str, voxels: str, encoding: str, *chunk: str) -> dict[str, Any]:
    array = np.load(voxels).transpose(3, 2, 1, 0)
    labels = encoding == "compressed_segmentation"
    info = CloudVolume.create_new_info(
        num_channels=array.shape[3],
        layer_type="segmentation" if labels else "image",
        data_type=str(array.dtype),
        encoding=encoding,
        resolution=[4, 4, 40],
        voxel_offset=[0, 0, 0],
        chunk_size=[int(size) for size in chunk],
        volume_size=array.shape[:3],
    )
    volume = CloudVolume(f"file://{folder}", info=info, progress=False)
    volume.commit_info()
    volume[:] = array
    return {}


FUNCTIONS: dict[str, Callable[..., dict[str, Any]]] = {"read": read, "write": write}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(FUNCTIONS[sys.argv[1]](*sys.argv[2:])))
