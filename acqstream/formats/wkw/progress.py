"""`acqstream-stored.json` in the folder of a dataset that is being written: what our readers may read of it.

It gives a depth, in voxels of the level, by "level/layer" (numbers). It is gone when the array is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from acqstream.formats.wkw.header import MAX_VOXELS
from acqstream.storage.files.small_file import parse_fields

STORED_NAME = "acqstream-stored.json"

_KEY = re.compile("([0-9]{1,9})/([0-9]{1,9})")


def encode_rows(rows: Mapping[tuple[int, int], int], row_depths: Sequence[int]) -> bytes:
    """The content of the file. rows: their number by (level, layer); row_depths: voxels of a row, by level."""
    return json.dumps(
        {f"{level}/{layer}": count * row_depths[level] for (level, layer), count in sorted(rows.items())}
    ).encode()


def parse_depths(content: bytes, path: str) -> dict[tuple[int, int], int]:
    """Voxels by (level, layer). Raises CorruptDataset that names `path`."""
    fields = parse_fields(content, path, max_integer=MAX_VOXELS)
    depths = {}
    for name in fields.values:
        key = _KEY.fullmatch(name)
        if key is None:
            raise fields.wrong(name, "absent: fields are named level/layer")
        depths[int(key[1]), int(key[2])] = fields.integer(name)
    return depths
