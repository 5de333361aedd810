"""The shape of a dataset or an attribute in JSON. Pure.

Sizes have the slowest dimension first. Source: HDF Group, HDF5/JSON, "Dataspace".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from acqstream.errors import CorruptDataset, UnsupportedFeature
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


DType = np.dtype[Any]

VARIABLE_TEXT: DType = np.dtype(object)
"""Strings of any length in UTF-8, an object each."""

MAX_ITEM_BYTES = 1 << 24

_PREDEFINED = re.compile(r"H5T_(?:STD_([IU])(8|16|32|64)|IEEE_(F)(16|32|64))(LE|BE)")
_COMPLEX_PARTS = ("r", "i")
_BOOL_MEMBERS = {"FALSE": 0, "TRUE": 1}
_I8 = {"class": "H5T_INTEGER", "base": "H5T_STD_I8LE"}
_VARIABLE = "H5T_VARIABLE"
_MAX_DEPTH = 32  # types inside types
_MAX_FIELDS = 1000


def type_to_json(dtype: DType) -> dict[str, Any]:
    """The JSON of a type. Raises ValueError for one that HDF5 has in no such form, for example a time or a U string."""
    if dtype == VARIABLE_TEXT:
        return {"class": "H5T_STRING", "length": _VARIABLE, "charSet": "H5T_CSET_UTF8", "strPad": "H5T_STR_NULLTERM"}
    if dtype.subdtype is not None:
        base, dims = dtype.subdtype
        return {"class": "H5T_ARRAY", "base": type_to_json(base), "dims": [*dims]}
    if dtype.names is not None:
        fields = [{"name": name, "type": type_to_json(dtype[name])} for name in dtype.names]
        return {"class": "H5T_COMPOUND", "fields": fields}
    if dtype.kind == "b":
        return {"class": "H5T_ENUM", "base": dict(_I8), "members": _BOOL_MEMBERS}
    if dtype.kind == "c":
        part = np.dtype(f"{dtype.str[0]}f{dtype.itemsize // 2}")
        fields = [{"name": name, "type": type_to_json(part)} for name in _COMPLEX_PARTS]
        return {"class": "H5T_COMPOUND", "fields": fields}
    if dtype.kind == "S" and dtype.itemsize:
        return {
            "class": "H5T_STRING",
            "length": dtype.itemsize,
            "charSet": "H5T_CSET_ASCII",
            "strPad": "H5T_STR_NULLPAD",
        }
    bits, order = 8 * dtype.itemsize, "BE" if dtype.str[0] == ">" else "LE"
    if dtype.kind in "iu" and bits <= 64:
        return {"class": "H5T_INTEGER", "base": f"H5T_STD_{dtype.kind.upper()}{bits}{order}"}
    if dtype.kind == "f" and bits <= 64:
        return {"class": "H5T_FLOAT", "base": f"H5T_IEEE_F{bits}{order}"}
    raise ValueError(f"{dtype} has no HDF5 type")


def parse_type(value: object, where: str) -> DType:
    """The numpy type of a type in JSON, in its stored byte order; `VARIABLE_TEXT` for variable strings.

    A text is taken for a predefined type. where names the file in errors. Raises CorruptDataset, and UnsupportedFeature
    for references, opaque and variable-length types, and for items of more than 16 MiB.
    """
    dtype = _parse(value, where, 0)
    if dtype.itemsize > MAX_ITEM_BYTES:
        raise UnsupportedFeature(f"{where}: items of {dtype.itemsize} bytes; acqstream reads up to {MAX_ITEM_BYTES}")
    return dtype


def _parse(value: object, where: str, depth: int) -> DType:
    if depth > _MAX_DEPTH:
        raise UnsupportedFeature(f"{where}: a type nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, str):
        return _predefined(value, where)
    if not isinstance(value, Mapping):
        raise _wrong(value, "a type of HDF5", where)
    kind = value.get("class")
    if kind in ("H5T_INTEGER", "H5T_FLOAT"):
        return _predefined(value.get("base"), where)
    parse = _PARSERS.get(kind) if isinstance(kind, str) else None
    if parse is None:
        if isinstance(kind, str) and kind.startswith("H5T_"):
            raise UnsupportedFeature(f"{where}: items of {kind[:60]}; acqstream reads {', '.join(_READ_CLASSES)}")
        raise _wrong(kind, "a class of HDF5 types", where)
    return parse(value, where, depth)


def _predefined(name: object, where: str) -> DType:
    found = _PREDEFINED.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise _wrong(name, "a predefined type such as H5T_STD_U16LE", where)
    integer, integer_bits, real, real_bits, order = found.groups()
    kind, bits = (integer.lower(), integer_bits) if integer else (real.lower(), real_bits)
    return np.dtype(f"{'<' if order == 'LE' else '>'}{kind}{int(bits) // 8}")


def _string(value: Mapping[str, Any], where: str, _depth: int) -> DType:
    length = value.get("length")
    if length == _VARIABLE:
        return VARIABLE_TEXT
    if type(length) is not int or not 0 < length < 1 << 31:
        raise _wrong(length, f"a length of a string, a positive number of bytes or {_VARIABLE}", where)
    return np.dtype(f"S{length}")


def _enum(value: Mapping[str, Any], where: str, depth: int) -> DType:
    base = _parse(value.get("base"), where, depth + 1)
    if base.kind not in "iu":
        raise _wrong(value.get("base"), "an integer type as the base of an enum", where)
    # Older texts call the members `mapping`.
    members = value.get("members", value.get("mapping"))
    is_bool = base.itemsize == 1 and members == _BOOL_MEMBERS
    return np.dtype(np.bool_) if is_bool else base


def _compound(value: Mapping[str, Any], where: str, depth: int) -> DType:
    fields = value.get("fields")
    if not isinstance(fields, list) or not 0 < len(fields) <= _MAX_FIELDS:
        raise _wrong(fields, f"a list of 1 to {_MAX_FIELDS} fields of a compound", where)
    parsed: dict[str, DType] = {}
    for field in fields:
        name = field.get("name") if isinstance(field, Mapping) else None
        if not isinstance(name, str) or not name or name in parsed:
            raise _wrong(name, "a field of a compound with a name of its own", where)
        part = _parse(field.get("type"), where, depth + 1)
        if part == VARIABLE_TEXT:
            raise UnsupportedFeature(f"{where}: a compound with strings of variable length in {name[:60]!r}")
        parsed[name] = part
    kinds = set(parsed.values())
    if tuple(parsed) == _COMPLEX_PARTS and len(kinds) == 1:
        (part,) = kinds
        if part.kind == "f" and part.itemsize in (4, 8):
            return np.dtype(f"{part.str[0]}c{2 * part.itemsize}")
    return _made(lambda: np.dtype([*parsed.items()]), where)


def _array(value: Mapping[str, Any], where: str, depth: int) -> DType:
    base, dims = _parse(value.get("base"), where, depth + 1), value.get("dims")
    if base == VARIABLE_TEXT:
        raise UnsupportedFeature(f"{where}: an array type of strings of variable length")
    sizes = dims if isinstance(dims, list) and len(dims) <= _MAX_DEPTH else []
    if not sizes or not all(type(size) is int and 0 < size < 1 << 24 for size in sizes):
        raise _wrong(dims, "positive sizes of an array type", where)
    return _made(lambda: np.dtype((base, tuple(sizes))), where)


def _made(make: Callable[[], DType], where: str) -> DType:
    try:
        return make()
    except (ValueError, TypeError, OverflowError) as error:  # numpy bounds the size of an item
        raise UnsupportedFeature(f"{where}: a type that numpy cannot have ({error!s:.100})") from error


def _wrong(value: object, expected: str, where: str) -> CorruptDataset:
    return CorruptDataset(f"has {value!r:.80}, expected {expected}", path=where)


_PARSERS: dict[str, Callable[[Mapping[str, Any], str, int], DType]] = {
    "H5T_STRING": _string,
    "H5T_ENUM": _enum,
    "H5T_COMPOUND": _compound,
    "H5T_ARRAY": _array,
}
_READ_CLASSES = ("H5T_INTEGER", "H5T_FLOAT", *_PARSERS)
