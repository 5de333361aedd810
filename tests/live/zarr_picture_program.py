"""Polls a growing picture with zarr-python 3, in the environment that has it. Nothing of acqstream is imported here.

Arguments: the array's folder, and a file of numpy's with the complete picture, (y, x). Each line of standard input is a
number of polls; each is answered by a line of standard output, a JSON object: the shapes that were seen, and what was
wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import zarr


def main() -> None:
    folder, right = Path(sys.argv[1]), np.load(sys.argv[2])
    for line in sys.stdin:
        shapes, wrong = set(), []
        for _ in range(int(line)):
            if not (folder / "zarr.json").exists():
                continue
            array = zarr.open_array(str(folder), mode="r", zarr_format=3)
            found = np.asarray(array[:])
            shapes.add(found.shape)
            if not np.array_equal(found, right[: found.shape[0], : found.shape[1]]):
                wrong.append(f"{found.shape}: {int((found == 0).sum())} zeros")
        sys.stdout.write(json.dumps({"shapes": sorted(shapes), "wrong": wrong}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
