"""attributes.json of all folders of an N5 container: read of any writer, and made for our own. Pure.

Source: N5 file-system specification 4.0.0, items 2 to 4. Per-axis values of DatasetAttributes are in N5 order: x, the
fastest axis, first. Everything else has the slowest first.

Axes, pixel size and place of a level are no part of the specification. Three ways are in use: `pixelResolution` with
`downsamplingFactors` on each level (n5-viewer, the Fiji plug-ins), `transform` (COSEM), and `axes`, `resolution` and
`units` (neuroglancer on the group, tensorstore on the dataset). What does not have one item per axis is ignored, as the
viewers do. Our writer makes the set that BigDataViewer, n5-viewer, the Fiji plug-ins, neuroglancer and Paintera each
find theirs in; keys that some reader refuses are not among them. Its own note, under a key that other readers ignore,
has the names of axes and positions, and whether more will come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import numpy as np

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.array_members import Numbering, member_part
from acqstream.formats.array_note import note_of_array, note_of_level, read_array, read_level
from acqstream.formats.compression import N5_COMPRESSION
from acqstream.formats.n5.member_folders import Layout, N5Options, folder_axes, group_folder, has_too_many, level_folder
from acqstream.model.fields import Fields
from acqstream.model.metadata import finite_number
from acqstream.storage.files.small_file import parse_json

ATTRIBUTES_NAME = "attributes.json"
VERSION_KEY, VERSION = "n5", "4.0.0"
MAX_BLOCK_BYTES = 2**31 - 1  # not compressed

MAX_ATTRIBUTES_BYTES = 16 * 1024 * 1024
_MAX_DIMENSIONS = 32
_MANDATORY = ("dimensions", "blockSize", "dataType")
_TYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64")
_DTYPES = {name: np.dtype(name) for name in _TYPES}
_OTHER_TYPES = ("string", "object")


@dataclass(frozen=True, slots=True)
class DatasetAttributes:
    """The mandatory attributes of a dataset, in N5 order. dtype is in the byte order of this machine."""

    dimensions: tuple[int, ...]
    block_size: tuple[int, ...]
    dtype: np.dtype[np.generic]
    compression: str  # the type alone: reading needs no parameters

    @property
    def shape(self) -> tuple[int, ...]:
        """Slowest axis first."""
        return self.dimensions[::-1]

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Slowest axis first."""
        return self.block_size[::-1]


def parse_attributes(content: bytes, path: str) -> dict[str, Any]:
    """The attributes in the content of such a file; path names it in errors. Raises CorruptDataset."""
    value = parse_json(content, path)
    if not isinstance(value, dict):
        raise CorruptDataset(f"holds {type(value).__name__}, expected a JSON object", path=path)
    return value


def is_dataset(attributes: Mapping[str, Any] | None) -> bool:
    """Return True if these are the attributes of an array, right or wrong."""
    return attributes is not None and all(key in attributes for key in _MANDATORY)


def parse_dataset(attributes: Mapping[str, Any], path: str) -> DatasetAttributes:
    """The mandatory attributes, checked; path names their file in errors.

    Raises CorruptDataset, and UnsupportedFeature for what is not an image.
    """
    dimensions = _integers(attributes, "dimensions", 0, path)
    block_size = _integers(attributes, "blockSize", 1, path)
    if len(dimensions) != len(block_size):
        text = f"{len(dimensions)} dimensions, but a blockSize of {len(block_size)}"
        raise CorruptDataset(text, path=path)
    dtype = _dtype(attributes["dataType"], path)
    size = dtype.itemsize
    for extent in block_size:
        size *= extent
    if size > MAX_BLOCK_BYTES:
        raise CorruptDataset(f"a block of {size} bytes, at most {MAX_BLOCK_BYTES} are allowed", path=path)
    return DatasetAttributes(dimensions, block_size, dtype, _compression_type(attributes, path))


def dtype_name(dtype: np.dtype[np.generic]) -> str | None:
    """The `dataType` of items of this dtype; None if there is none."""
    return dtype.name if dtype.name in _DTYPES else None


def to_json(attributes: Mapping[str, Any]) -> bytes:
    """The content of an attributes.json."""
    return json.dumps(attributes, ensure_ascii=False, allow_nan=False).encode()


def _integers(attributes: Mapping[str, Any], key: str, least: int, path: str) -> tuple[int, ...]:
    fields = Fields(attributes, error=partial(CorruptDataset, path=path))
    found = fields.integers(key, minimum=least)
    if not 1 <= len(found) <= _MAX_DIMENSIONS:
        raise fields.wrong(key, f"a list of 1 to {_MAX_DIMENSIONS} integers")
    return found


def _dtype(name: object, path: str) -> np.dtype[np.generic]:
    if isinstance(name, str) and name in _DTYPES:
        return _DTYPES[name]
    if name in _OTHER_TYPES:
        raise UnsupportedFeature(f"{path}: dataType {name} is not a pixel type, expected one of {', '.join(_DTYPES)}")
    raise CorruptDataset(f"dataType is {name!r:.80}, expected one of {', '.join(_DTYPES)}", path=path)


def _compression_type(attributes: Mapping[str, Any], path: str) -> str:
    found = attributes.get("compression")
    # Before 1.0.0 the type stood by itself under another key.
    name = found.get("type") if isinstance(found, dict) else attributes.get("compressionType")
    if not isinstance(name, str):
        text = f"compression is {found!r:.80}, expected an object with a type"
        raise CorruptDataset(text, path=path)
    if name not in N5_COMPRESSION.kinds:
        known = ", ".join(N5_COMPRESSION.kinds)
        raise UnsupportedFeature(f"{path}: unknown compression {name!r:.80}, expected one of {known}")
    return name


Attributes = Mapping[str, Any]

_SPATIAL = ("x", "y", "z")  # of an array that does not name its axes, N5 order


@dataclass(frozen=True, slots=True)
class Space:
    """As the fields of ArraySpec: an item per axis, slowest axis first."""

    axes: tuple[str, ...]
    factors: tuple[int, ...]
    scale: tuple[float, ...]
    units: tuple[str, ...]
    translation: tuple[float, ...]


def read_space(own: Attributes, groups: Sequence[Attributes], ndim: int, level: int) -> Space:
    """Space of a dataset of `ndim` dimensions; groups are the attributes of the folders above it, nearest first."""
    axes = _axes(own, groups, ndim)
    factors = _factors(own, groups, ndim, level)
    moved = _transform(own.get("transform"), axes, factors, ndim)
    if moved is not None:
        return moved
    nothing = ("",) * ndim
    scale = _numbers(own.get("resolution"), ndim)
    if scale is not None:  # that of this level
        full = tuple(size / factor for size, factor in zip(scale, factors, strict=True))
        return Space(axes, factors, scale, _texts(own.get("units"), ndim) or nothing, centres(full, factors))
    base, units = _base(own, groups, ndim)
    if base is None:
        return Space(axes, factors, tuple(map(float, factors)), nothing, centres((1.0,) * ndim, factors))
    scale = tuple(size * factor for size, factor in zip(base, factors, strict=True))
    return Space(axes, factors, scale, units or nothing, centres(base, factors))


def _axes(own: Attributes, groups: Sequence[Attributes], ndim: int) -> tuple[str, ...]:
    for attributes in (own, *groups):
        names = _texts(attributes.get("axes"), ndim)
        if names is not None and len(set(names)) == ndim and all(names):
            return names
    return tuple(_SPATIAL[axis] if axis < len(_SPATIAL) else f"dim{axis}" for axis in reversed(range(ndim)))


def _factors(own: Attributes, groups: Sequence[Attributes], ndim: int, level: int) -> tuple[int, ...]:
    found = _numbers(own.get("downsamplingFactors"), ndim)
    for attributes in groups:
        for key in ("downsamplingFactors", "scales"):
            listed = attributes.get(key)
            if found is None and isinstance(listed, list) and 0 <= level < len(listed):
                found = _numbers(listed[level], ndim)
    if found is None or any(factor < 1 or factor % 1 for factor in found):
        return (2 ** min(level, 30),) * ndim
    return tuple(map(int, found))


def _base(
    own: Attributes, groups: Sequence[Attributes], ndim: int
) -> tuple[tuple[float, ...] | None, tuple[str, ...] | None]:
    """Pixel size of the full resolution and its units."""
    for attributes in (own, *groups):
        given = attributes.get("pixelResolution")
        unit = given.get("unit") if isinstance(given, dict) else None
        size = _numbers(given.get("dimensions") if isinstance(given, dict) else given, ndim)
        if size is not None:
            listed = next((found for group in groups if (found := _texts(group.get("units"), ndim))), None)
            return size, listed or ((unit,) * ndim if isinstance(unit, str) else None)  # listed: one for each axis
    for attributes in groups:
        size = _numbers(attributes.get("resolution"), ndim)
        if size is not None:
            return size, _texts(attributes.get("units"), ndim)
    return None, None


def _transform(given: object, axes: tuple[str, ...], factors: tuple[int, ...], ndim: int) -> Space | None:
    """COSEM: slowest axis first unless it says otherwise; scale is that of this level."""
    if not isinstance(given, dict):
        return None
    is_reversed = given.get("ordering") != "F"
    scale = _numbers(given.get("scale"), ndim, is_reversed=is_reversed)
    if scale is None:
        return None
    names = _texts(given.get("axes"), ndim, is_reversed=is_reversed)
    units = _texts(given.get("units"), ndim, is_reversed=is_reversed)
    place = _numbers(given.get("translate"), ndim, is_reversed=is_reversed, may_be_negative=True)
    named = names if names is not None and len(set(names)) == ndim and all(names) else axes
    return Space(named, factors, scale, units or ("",) * ndim, place or (0.0,) * ndim)


def centres(base: Sequence[float], factors: Sequence[int]) -> tuple[float, ...]:
    """Centre of the first item, as levels are means of blocks of items."""
    return tuple((factor - 1) / 2 * size for size, factor in zip(base, factors, strict=True))


def _numbers(
    given: object, ndim: int, *, is_reversed: bool = False, may_be_negative: bool = False
) -> tuple[float, ...] | None:
    """`ndim` finite numbers, slowest axis first; given in N5 order unless is_reversed. None if they are not that."""
    if not isinstance(given, list) or len(given) != ndim:
        return None
    numbers: list[float] = []
    for value in given:
        number = finite_number(value)
        if number is None or (number <= 0 and not may_be_negative):
            return None
        numbers.append(number)
    return tuple(numbers if is_reversed else reversed(numbers))


def _texts(given: object, ndim: int, *, is_reversed: bool = False) -> tuple[str, ...] | None:
    if not isinstance(given, list) or len(given) != ndim or not all(isinstance(value, str) for value in given):
        return None
    return tuple(given if is_reversed else reversed(given))


def cosem_transform(spec: ArraySpec) -> dict[str, Any]:
    """The `transform` of a level, slowest axis first."""
    return {
        "axes": [*spec.axes],
        "scale": [*spec.scale],
        "translate": [*spec.translation],
        "units": [*spec.units],
    }


KEY = "acqstream"
_MAX_AXES = 32
_SEPARATORS = frozenset("/\\\0")  # names of axes are parts of folder names
_MAX_EXTENT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """full: the array at its full resolution, whose dtype stands elsewhere. numbering is that of setups (layouts)."""

    full: ArraySpec
    layout: Layout
    complete: bool
    numbering: Numbering = "rows"

    @property
    def axes(self) -> tuple[str, ...]:
        return self.full.axes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.full.shape

    def group(self, member: Sequence[int]) -> tuple[str, ...]:
        """The folders of the group that holds the levels of a member."""
        return group_folder(self.layout, self.axes, self.shape, member, self.numbering)


def notes_to_json(notes: Notes) -> dict[str, Any]:
    """As it stands in attributes.json."""
    level, array = note_of_level(notes.full), note_of_array(notes.full)
    return {
        "layout": notes.layout,
        "complete": notes.complete,
        "axes": array["axes"],
        "shape": level["shape"],
        "scale": level["scale"],
        "units": array["units"],
        "translation": level["translation"],
        **array,
        **({"numbering": notes.numbering} if notes.layout == "bdv" else {}),
    }


def parse_notes(attributes: Mapping[str, Any] | None) -> Notes | None:
    """From the attributes of a container; None if it has none, or something else stands there."""
    given = (attributes or {}).get(KEY)
    if not isinstance(given, dict) or given.get("layout") not in get_args(Layout):
        return None
    labels, user = given.get("labels"), given.get("attributes")  # these only describe: what is damaged is left out
    texts = labels.items() if isinstance(labels, dict) else ()
    described = {
        "labels": {name: own for name, own in texts if isinstance(own, list) and all(isinstance(a, str) for a in own)},
        "attributes": user if isinstance(user, dict) else {},
    }
    fields = Fields({**given, **described}, error=CorruptDataset, max_integer=_MAX_EXTENT)
    try:
        axes = fields.texts("axes")
        full = read_level(fields, read_array(fields, axes, np.dtype(np.uint8)))
    except CorruptDataset:
        return None
    has_folders = all(_SEPARATORS.isdisjoint(axis) for axis in axes)
    if not 3 <= len(axes) <= _MAX_AXES or len(set(axes)) < len(axes) or not has_folders:
        return None
    if has_too_many(given["layout"], axes, full.shape):
        return None
    return Notes(
        full=full,
        layout=given["layout"],
        complete=given.get("complete") is True,
        numbering="bits" if given.get("numbering") == "bits" else "rows",
    )


@dataclass(frozen=True, slots=True)
class MemberDocuments:
    """The attributes in the folders of a member.

    datasets has those of each level, group those of the folder that holds the levels, setup those of the folder above
    it; b"" where the layout has no such folder.
    """

    datasets: tuple[bytes, ...]
    group: bytes
    setup: bytes

    def of_group(self, folders: Sequence[str]) -> dict[str, bytes]:
        """By key; the levels come last, so that a reader finds them complete."""
        documents = {attributes_key(folders[:1]): self.setup} if self.setup else {}
        if folders:
            documents[attributes_key(folders)] = self.group
        for level, content in enumerate(self.datasets):
            documents[attributes_key((*folders, level_folder(level)))] = content
        return documents


def attributes_key(folders: Sequence[str]) -> str:
    """The document with the attributes of a folder."""
    return "/".join((*folders, ATTRIBUTES_NAME))


def member_documents(levels: Sequence[ArraySpec], options: N5Options) -> MemberDocuments:
    """Those of a container, or of a member, with these levels."""
    parts, group = _parts(levels, options), _group(levels, options)
    setup = {"downsamplingFactors": group["downsamplingFactors"], "dataType": dtype_name(levels[0].dtype)}
    return MemberDocuments(
        tuple(to_json(_dataset(part, parts[0], options)) for part in parts),
        to_json(group),
        to_json(setup) if options.layout == "bdv" else b"",
    )


def container_document(
    levels: Sequence[ArraySpec], options: N5Options, numbering: Numbering, *, complete: bool
) -> bytes:
    """The attributes of the container itself."""
    layout, full = options.layout, levels[0]
    root: dict[str, Any] = {
        VERSION_KEY: VERSION,
        KEY: notes_to_json(Notes(full=full, layout=layout, numbering=numbering, complete=complete)),
    }
    if not group_folder(layout, full.axes, full.shape, (0,) * folder_axes(layout, full.axes)):
        root |= _group(levels, options)
    return to_json(root)


def _parts(levels: Sequence[ArraySpec], options: N5Options) -> list[ArraySpec]:
    leading = folder_axes(options.layout, levels[0].axes)
    return [member_part(level, leading) for level in levels]


def _group(levels: Sequence[ArraySpec], options: N5Options) -> dict[str, Any]:
    """Attributes for neuroglancer and Paintera on the group of these levels; for COSEM with layout multiscale."""
    parts = _parts(levels, options)
    full = parts[0]
    group: dict[str, Any] = {
        "downsamplingFactors": [[*reversed(part.factors)] for part in parts],
        "resolution": [*reversed(full.scale)],
        "units": [*reversed(full.units)],
        "axes": [*reversed(full.axes)],
        "multiScale": True,
    }
    if options.layout == "multiscale":
        datasets = [{"path": level_folder(at), "transform": cosem_transform(part)} for at, part in enumerate(parts)]
        group["multiscales"] = [{"datasets": datasets}]
    return group


def _dataset(part: ArraySpec, full: ArraySpec, options: N5Options) -> dict[str, Any]:
    """Attributes of a level of `full`."""
    attributes = {
        "dimensions": [*reversed(part.shape)],
        "blockSize": [*reversed(part.chunk_shape)],
        "dataType": dtype_name(part.dtype),
        "compression": options.compression.to_json(),
    }
    factors = [*reversed(part.factors)]
    if options.layout == "array":  # tensorstore reads these on a dataset of any rank
        axes, units = [*reversed(part.axes)], [*reversed(part.units)]
        space = {"axes": axes, "resolution": [*reversed(part.scale)], "units": units}
        return {**attributes, **space, "downsamplingFactors": factors}
    # For n5-viewer, Fiji and neuroglancer.
    resolution = {"unit": full.units[-1], "dimensions": [*reversed(full.scale)]}
    attributes |= {"downsamplingFactors": factors, "pixelResolution": resolution}
    if options.layout == "multiscale":
        attributes["transform"] = cosem_transform(part)
    return attributes
