"""Runs in the environment with zarr 2, the last one that knows N5. Nothing of acqstream is imported here.

usage: read FOLDER: its path.json lists arrays, and path N goes to N.npy; write FOLDER: path.json is a container, and
FOLDER/DTYPE.npy are written into it with each codec, as CODEC_DTYPE.
"""

import json
import sys
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import zarr

CODECS = {
    "none": None,
    "gzip": numcodecs.GZip(5),
    "zlib": numcodecs.Zlib(5),
    "bz2": numcodecs.BZ2(5),
    "xz": numcodecs.LZMA(preset=3),
    "blosc": numcodecs.Blosc("lz4"),
    "zstd": numcodecs.Zstd(3),
}

warnings.simplefilter("ignore")  # of its own deprecations, and of codecs that others may not know
what, folder = sys.argv[1], Path(sys.argv[2])
told = json.loads((folder / "paths.json").read_text())
if what == "read":
    for number, path in enumerate(map(Path, told)):
        top = next(one for one in path.parents if one.suffix == ".n5")
        key = path.relative_to(top).as_posix()
        np.save(folder / f"{number}.npy", zarr.open(zarr.N5Store(str(top)), mode="r")[key][...])
else:
    store = zarr.open(zarr.N5Store(told), mode="w")
    for name, codec in CODECS.items():
        for file in sorted(folder.glob("*.npy")):
            array = np.load(file)
            made = store.create_dataset(
                f"{name}_{file.stem}", shape=array.shape, chunks=(2, 4, 8), dtype=array.dtype, compressor=codec
            )
            made[...] = array
sys.stdout.write(json.dumps(list(CODECS)))
