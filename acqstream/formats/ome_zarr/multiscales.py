"""The OME metadata of an image: axes, levels and channels. Pure.

Sources: OME-NGFF 0.1 to 0.5, "multiscales" and "omero".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from acqstream.errors import UnsupportedFeature
from acqstream.formats.ome_zarr.node import Node, node_path
from acqstream.model.fields import Fields
from acqstream.model.metadata import finite_number

_DISTANCE = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|)\s*(.*?)\s*", re.DOTALL)
_VERSION = re.compile(r"0\.[1-5](\D.*)?")
_OLD_AXES = ("t", "c", "z", "y", "x")  # of versions that name none
_KINDS = MappingProxyType({"t": "time", "c": "channel"})
_PREFIXES: Mapping[str, float] = MappingProxyType(
    {
        "": 1.0,
        "pico": 1e-12,
        "nano": 1e-9,
        "micro": 1e-6,
        "milli": 1e-3,
        "centi": 1e-2,
        "deci": 1e-1,
        "kilo": 1e3,
    }
)
_UNITS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        **{f"{prefix}meter": ("um", value / 1e-6) for prefix, value in _PREFIXES.items()},
        **{f"{prefix}second": ("s", value) for prefix, value in _PREFIXES.items()},
        "micrometer": ("um", 1.0),
        "nanometer": ("um", 1e-3),
        "millimeter": ("um", 1e3),
        "angstrom": ("um", 1e-4),
        "inch": ("um", 25400.0),
        "um": ("um", 1.0),
        "\u00b5m": ("um", 1.0),
        "\u03bcm": ("um", 1.0),
        "nm": ("um", 1e-3),
        "mm": ("um", 1e3),
        "s": ("s", 1.0),
        "ms": ("s", 1e-3),
        "minute": ("s", 60.0),
        "hour": ("s", 3600.0),
        "day": ("s", 86400.0),
    }
)


@dataclass(frozen=True, slots=True)
class LevelEntry:
    """One level: path below the group; scale and translation in the units of the axes."""

    path: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Multiscales:
    """An image. axes are our names, slowest first; units "um", "s", others as they stand, "" for none.

    has_scales: False if no level states one; they are 1 then. channels are the labels of omero, () without.
    """

    name: str
    axes: tuple[str, ...]
    units: tuple[str, ...]
    levels: tuple[LevelEntry, ...]
    has_scales: bool
    channels: tuple[str, ...]


def parse_multiscales(node: Node) -> Multiscales:
    """The first image of a group. Raises CorruptDataset, UnsupportedFeature."""
    entries = list(node.fields.children("multiscales"))
    if not entries:
        raise node.fields.wrong("multiscales", "a list with an image")
    entry = entries[0]
    version = node.ome.get("version", entry.values.get("version"))
    if version is not None and not (isinstance(version, str) and _VERSION.fullmatch(version)):
        raise UnsupportedFeature(f"{node.where}: OME-Zarr version {version!r:.60}, expected 0.1 to 0.5")
    axes, given_units = _axes(entry, version)
    units, factors = zip(*(_UNITS.get(unit, (unit, 1.0)) for unit in given_units), strict=True) if axes else ((), ())
    levels, has_scales = _levels(entry, factors, node.where)
    name = entry.values.get("name")
    return Multiscales(
        name if isinstance(name, str) else "", axes, units, levels, has_scales, _channels(node.ome.get("omero"))
    )


def dimension_units(given: object, ndim: int) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Distances and units of axes, as tensorstore stores them in an array: "0.5 um", "nm", [4, "nm"] or null."""
    found = [(1.0, "")] * ndim
    for axis, one in enumerate(given if isinstance(given, list) and len(given) == ndim else ()):
        parts = _DISTANCE.fullmatch(one).groups() if isinstance(one, str) else one  # type: ignore[union-attr]
        if isinstance(parts, tuple | list) and len(parts) == 2 and isinstance(parts[1], str):
            unit, factor = _UNITS.get(parts[1], (parts[1], 1.0))
            number = finite_number(float(parts[0] or 1) if isinstance(parts[0], str) else parts[0])
            found[axis] = (number * factor, unit) if number and number > 0 else (1.0, "")
    return tuple(size for size, _ in found), tuple(unit for _, unit in found)


def axis_name(name: str, kind: object = None) -> str:
    """Our name of an axis; kind is its type, None where it has none."""
    lower = name.lower()
    if kind in ("time", "channel"):
        return str(kind)
    if kind == "space" or (kind is None and lower in ("z", "y", "x")):
        return lower
    return _KINDS.get(lower, name) if kind is None else name


def _axes(entry: Fields, version: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and units."""
    if "axes" not in entry and (version is None or version[:3] in ("0.1", "0.2", "0.3")):
        given: Sequence[Any] = _OLD_AXES
    else:
        given = entry.items("axes")
    names: list[str] = []
    units: list[str] = []
    for at, axis in enumerate(given):
        fields = Fields({"name": axis} if isinstance(axis, str) else axis, f"axes[{at}].", entry._error)
        names.append(axis_name(fields.text("name", max_length=200), fields.values.get("type")))
        unit = fields.values.get("unit")
        units.append(unit if isinstance(unit, str) else "")
    if not names or len(names) > 32 or "" in names or len(set(names)) < len(names):
        raise entry.wrong("axes", "1 to 32 axes with different names")
    return tuple(names), tuple(units)


def _levels(entry: Fields, factors: Sequence[float], where: str) -> tuple[tuple[LevelEntry, ...], bool]:
    common, has_scales = _transformations(entry, len(factors), where)
    levels: list[LevelEntry] = []
    for dataset in entry.children("datasets"):
        own, has_own = _transformations(dataset, len(factors), where)
        has_scales |= has_own
        per_axis = list(zip(own, common, factors, strict=True))
        scale = tuple(a[0] * b[0] * factor for a, b, factor in per_axis)
        shift = tuple((a[1] * b[0] + b[1]) * factor for a, b, factor in per_axis)
        if any(finite_number(number) is None for number in (*scale, *shift)):
            raise dataset.wrong("coordinateTransformations", "finite numbers")
        levels.append(LevelEntry(node_path(dataset.values.get("path"), where), scale, shift))
    if not levels or len(levels) > 100:
        raise entry.wrong("datasets", "1 to 100 levels")
    return tuple(levels), has_scales


def _transformations(fields: Fields, ndim: int, where: str) -> tuple[list[tuple[float, float]], bool]:
    """Scale and translation of each axis, and whether a scale is stated."""
    result, has_scale = [(1.0, 0.0)] * ndim, False
    if fields.values.get("coordinateTransformations") is None:
        return result, has_scale
    for step in fields.children("coordinateTransformations"):
        kind = step.text("type")
        if kind == "identity":
            continue
        if kind not in ("scale", "translation") or "path" in step:
            what = "with a path" if "path" in step else f"of type {kind!r:.60}"
            raise UnsupportedFeature(f"{where}: a coordinate transformation {what}, expected scale and translation")
        numbers = step.numbers(kind, ndim)
        pairs = list(zip(result, numbers, strict=True))
        if kind == "scale":
            has_scale = True
            result = [(scale * number, shift * number) for (scale, shift), number in pairs]
        else:
            result = [(scale, shift + number) for (scale, shift), number in pairs]
    return result, has_scale


def _channels(omero: object) -> tuple[str, ...]:
    """Labels; () where one has none: they are for display only."""
    channels = omero.get("channels") if isinstance(omero, dict) else None
    if not isinstance(channels, list):
        return ()
    labels = [channel.get("label") if isinstance(channel, dict) else None for channel in channels]
    return tuple(str(label) for label in labels) if all(isinstance(label, str) for label in labels) else ()
