"""Polls a growing Zarr array with zarr-python 3, in the environment that has it. Nothing of acqstream is imported here.

Arguments: the array's folder. Each line of standard input is a number of polls; each is answered by a line of standard
output, a JSON object: the polls made, those that found an array, its largest length, and what was wrong.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zarr


def poll(folder: Path, choice: random.Random) -> tuple[int, str]:
    """Open the array anew and read its last plane or any. Returns its length, 0 without one, and what is wrong."""
    if not (folder / "zarr.json").exists():
        return 0, ""
    array = zarr.open_array(str(folder), mode="r", zarr_format=3)
    length = array.shape[0]
    if not length:
        return 0, ""
    at = choice.choice([length - 1, choice.randrange(length)])
    found = np.asarray(array[at])
    count = found.size
    expected = ((np.arange(count) + at * 977) % 65535 + 1).astype("uint16").reshape(found.shape)
    if np.array_equal(found, expected):
        return length, ""
    return length, f"plane {at} of {length}: {int((found == 0).sum())} zeros, {int((found != expected).sum())} wrong"


def main() -> None:
    folder, choice = Path(sys.argv[1]), random.Random(5)
    for line in sys.stdin:
        told: dict[str, Any] = {"polls": 0, "found": 0, "length": 0, "wrong": []}
        for _ in range(int(line)):
            length, wrong = poll(folder, choice)
            told["polls"] += 1
            told["found"] += bool(length)
            told["length"] = max(told["length"], length)
            told["wrong"] += [wrong] if wrong else []
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
