"""Attributes of groups and datasets in JSON. Pure.

Source: HDF Group, HSDS object storage schema, "Attributes"; HDF5/JSON, "Attribute".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acqstream.formats.hsds.dataspace import Dataspace
from acqstream.formats.hsds.hdf_type import VARIABLE_TEXT, DType, type_to_json
from acqstream.model.metadata import finite_number


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value with its type and shape. value is plain JSON: a number, a string, a nested list. Compare `attribute`."""

    dtype: DType
    space: Dataspace
    value: Any

    def to_json(self, created: float) -> dict[str, Any]:
        """The entry in `attributes` of an object. created: seconds since 1970."""
        return {
            "type": type_to_json(self.dtype),
            "shape": self.space.to_json(),
            "value": self.value,
            "created": created,
        }


def attribute(value: object) -> Attribute:
    """The attribute for a string, a number, a bool, or a list, tuple or array of one of them.

    Strings become variable strings in UTF-8, integers I64LE, real numbers F64LE. Raises ValueError for another value,
    an empty list, a number that is not finite, and an integer beyond 64 bits.
    """
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    items = _flat(plain)
    dims = _dims(plain)
    if not items:
        raise ValueError(f"an attribute of {value!r:.80} has no items, so no type")
    if all(isinstance(item, str) for item in items):
        return Attribute(VARIABLE_TEXT, Dataspace(dims), _listed(plain))
    if all(type(item) is bool for item in items):
        return Attribute(np.dtype(np.bool_), Dataspace(dims), _listed(plain))
    if all(type(item) is int for item in items) and max(map(abs, items)) < 1 << 63:
        return Attribute(np.dtype("<i8"), Dataspace(dims), _listed(plain))
    if any(type(item) is float for item in items) and all(finite_number(item) is not None for item in items):
        return Attribute(np.dtype("<f8"), Dataspace(dims), _listed(plain))
    raise ValueError(f"an attribute of {value!r:.80}; expected strings, bools or finite numbers of one kind")


def attributes_to_json(attributes: Mapping[str, Attribute], created: float) -> dict[str, Any]:
    """The value of `attributes` of an object."""
    return {name: one.to_json(created) for name, one in attributes.items()}


def read_attributes(given: object) -> dict[str, Any]:
    """The values of `attributes` of any writer by name, as JSON; what has no value is left out."""
    found: dict[str, Any] = {}
    for name, entry in given.items() if isinstance(given, Mapping) else ():
        if isinstance(name, str) and isinstance(entry, Mapping) and "value" in entry:
            found[name] = entry["value"]
    return found


def _dims(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        return ()
    inner = {_dims(item) for item in value}
    if len(inner) > 1:
        raise ValueError(f"an attribute of {value!r:.80}; expected a list without ragged items")
    return (len(value), *(inner.pop() if inner else ()))


def _flat(value: object) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        return [value]
    return [item for part in value for item in _flat(part)]


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
