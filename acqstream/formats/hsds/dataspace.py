"""The shape of a dataset or an attribute in JSON. Pure.

Sizes have the slowest dimension first. Source: HDF Group, HDF5/JSON, "Dataspace".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from acqstream.formats.hsds.object_id import MAX_NDIM
from acqstream.model.fields import Fields

UNLIMITED = "H5S_UNLIMITED"


@dataclass(frozen=True, slots=True)
class Dataspace:
    """dims: () is a scalar, None a null space without any item.

    maxdims: None for a dimension without a bound; (): the sizes are fixed.
    """

    dims: tuple[int, ...] | None = ()
    maxdims: tuple[int | None, ...] = ()

    @property
    def items(self) -> int:
        """Number of items."""
        return 0 if self.dims is None else math.prod(self.dims)

    def to_json(self) -> dict[str, Any]:
        """The value of `shape`. 1.0 of the server writes H5S_UNLIMITED for no bound, 0.9 writes 0; both read both."""
        if self.dims is None:
            return {"class": "H5S_NULL"}
        if not self.dims:
            return {"class": "H5S_SCALAR"}
        simple: dict[str, Any] = {"class": "H5S_SIMPLE", "dims": [*self.dims]}
        if self.maxdims:
            simple["maxdims"] = [UNLIMITED if size is None else size for size in self.maxdims]
        return simple


def parse_dataspace(fields: Fields) -> Dataspace:
    """The inverse of `Dataspace.to_json`. Raises the error of `fields`."""
    kind = fields.choice("class", ("H5S_SIMPLE", "H5S_SCALAR", "H5S_NULL"))
    if kind != "H5S_SIMPLE":
        return Dataspace(() if kind == "H5S_SCALAR" else None)
    dims = fields.integers("dims")
    if len(dims) > MAX_NDIM:
        raise fields.wrong("dims", f"at most {MAX_NDIM} sizes")
    return Dataspace(dims, _maxdims(fields, dims))


def _maxdims(fields: Fields, dims: tuple[int, ...]) -> tuple[int | None, ...]:
    if fields.values.get("maxdims") is None:
        return ()
    found: list[int | None] = []
    for given, size in zip(fields.items("maxdims", len(dims)), dims, strict=True):
        is_unlimited = given == UNLIMITED or (type(given) is int and given == 0)
        if not is_unlimited and (type(given) is not int or given < size):
            raise fields.wrong("maxdims", f"{UNLIMITED}, 0 or at least the size for each of dims {dims}")
        found.append(None if is_unlimited else given)
    return tuple(found)
