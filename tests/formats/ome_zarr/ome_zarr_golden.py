"""Golden data of other software: what expected.json says of them."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.formats.chunk_reader import ChunkReader

GOLDEN = Path(__file__).parents[2] / "golden" / "ome_zarr"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
_MAX_BYTES = 2**24


def read_all(reader: ChunkReader) -> NDArray[np.generic]:
    """The whole level. Only for small arrays."""
    spec = reader.spec
    assert np.prod([float(size) for size in spec.shape]) * spec.dtype.itemsize < _MAX_BYTES
    result = np.zeros(spec.shape, spec.dtype)
    for position in itertools.product(*map(range, spec.grid_shape)):
        chunk = reader.read_chunk(position)
        if chunk is not None:
            result[spec.region(position)] = chunk
    return result


def digest(array: NDArray[np.generic]) -> str:
    """As the convention of expected.json says."""
    little = np.array(array, array.dtype.newbyteorder("<"), order="C")
    if little.dtype.kind == "f":
        little[np.isnan(little)] = np.nan  # type: ignore[call-overload]
    return hashlib.sha256(little.tobytes()).hexdigest()
