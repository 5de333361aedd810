"""Fields of `hello` and `open`, from the arguments of `create`."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from acqstream.client.arguments import checked_list, checked_options, checked_text, refuse
from acqstream.client.plain_metadata import plain_scalar
from acqstream.errors import ConfigError
from acqstream.model.acquisition_spec import AxisSpec, TileSpec
from acqstream.model.frame_header import pixel_type_of
from acqstream.model.metadata import dump_ascii, summary_json
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.requests import PROTOCOL_VERSION

CLIENT_NAME = "acqstream"
_AXIS_KEYS = ("name", "size", "unit", "scale", "labels", "start")
_MAX_INLINE_BYTES = 256 * 2**10  # of JSON, which a header of 1 MiB holds in either encoding


def hello(version: str) -> bytes:
    client = {
        "name": CLIENT_NAME,
        "version": version,
        "lang": f"Python {platform.python_version()}",
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    return encode_request("hello", v=PROTOCOL_VERSION, client=client)


def split_summary(summary: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first entries, which fit into `open`, and the others, which a `patch` brings. Raises ConfigError."""
    try:
        size = len(summary_json(summary))
    except ValueError as error:
        raise ConfigError(f"summary: {error}") from error
    if size <= _MAX_INLINE_BYTES:
        return summary, {}
    first: dict[str, Any] = {}
    left = _MAX_INLINE_BYTES
    for key, value in summary.items():
        left -= len(dump_ascii({key: value}))
        if left < 0:
            break
        first[key] = value
    return first, {key: value for key, value in summary.items() if key not in first}


def patch_parts(dataset_id: str, kind: str, values: dict[str, Any], max_part: int) -> tuple[bytes, bytes]:
    """Header and second part of a `patch`; the latter is empty for values that fit into the header.

    Raises ConfigError for what the daemon does not take.
    """
    try:
        text = summary_json(values)
    except ValueError as error:
        raise ConfigError(f"{kind}: {error}") from error
    if len(text) <= _MAX_INLINE_BYTES:
        return encode_request("patch", ds=dataset_id, **{kind: values}), b""
    part = b'{"%b":%b}' % (kind.encode(), text)
    if len(part) > max_part:
        limit = max_part or _MAX_INLINE_BYTES
        raise ConfigError(
            f"{kind}: {len(text)} bytes as JSON; this daemon takes {limit}: update it, or leave entries out"
        )
    return encode_request("patch", ds=dataset_id), part


def frame_hint(frame: object) -> dict[str, Any] | None:
    """The field `frame` of `open` from an array, a pair (shape, dtype), or a map as on the wire.

    Raises ConfigError for a frame that no stack can store.
    """
    if frame is None:
        return None
    if isinstance(frame, Mapping):
        shape, dtype = frame.get("sh"), frame.get("dt")
    elif isinstance(frame, tuple) and len(frame) == 2:
        shape, dtype = frame
    else:
        shape, dtype = None, None
    try:
        if shape is None and dtype is None:
            array = np.asarray(frame)
            shape, dtype = array.shape, array.dtype
        sides = tuple(int(side) for side in shape)  # type: ignore[union-attr]
        pixel_type = pixel_type_of(np.dtype(dtype).newbyteorder("<").str, sides)
    except (ValueError, TypeError, OverflowError, SyntaxError) as error:  # the last of numpy's texts for dtypes
        raise ConfigError(f"frame={frame!r:.80}: {error}; pass ((Y, X), dtype)") from error
    return {"dt": pixel_type.dtype, "sh": list(sides)}


def axes_hint(axes: Sequence[AxisSpec | Mapping[str, Any] | str] | None) -> list[dict[str, Any]]:
    """The field `axes` of `open` from specs, maps as on the wire, or bare names. Raises ConfigError."""
    if axes is None:
        return []
    entries = []
    for position, axis in enumerate(checked_list("axes", axes, "a list of names, AxisSpecs or maps with 'name'")):
        place = f"axes[{position}]"
        if isinstance(axis, AxisSpec):
            labels = [plain_scalar(label) for label in checked_list(f"{place}.labels", axis.labels, "a tuple of texts")]
            options = {"size": axis.size, "unit": axis.unit, "scale": axis.scale, "labels": labels, "start": axis.start}
            entry = checked_options(place, {key: value for key, value in options.items() if value not in (None, [], 0)})
            entries.append({**entry, "name": axis.name})
        elif isinstance(axis, Mapping):
            entries.append(checked_options(place, axis))
            if unknown := entries[-1].keys() - _AXIS_KEYS:
                refuse(place, axis, f"a map of {', '.join(_AXIS_KEYS)}, without {min(unknown)!r:.60}")
        elif isinstance(axis, str):
            entries.append({"name": axis})
        else:
            refuse(place, axis, "a name, an AxisSpec or a map with 'name'")
        entries[-1]["name"] = checked_text(f"{place}: name", entries[-1].get("name"))
    return entries


def tiles_request(tiles: Mapping[str, Any] | None, levels: object) -> dict[str, Any] | None:
    """The field `tiles` of `open` from `{"overlap": (y, x), "wait_s": seconds}`, the latter optional.

    Raises ConfigError for invalid ones.
    """
    if tiles is None:
        if not (isinstance(levels, str) and levels == "auto"):
            raise ConfigError(f'levels={levels!r:.40}: only tiles have levels; pass tiles={{"overlap": (y, x)}}')
        return None
    if not isinstance(tiles, Mapping):
        refuse("tiles", tiles, 'a map such as {"overlap": (y, x)}')
    if not isinstance(levels, str | int | np.integer) or isinstance(levels, bool):
        refuse("levels", levels, "'auto' or a number of levels")
    try:
        unknown = set(tiles) - {"overlap", "wait_s"}
        if unknown:
            raise ValueError(f"unknown key {min(map(str, unknown))!r:.60}; known are 'overlap' and 'wait_s'")
        spec = TileSpec.of({**checked_options("tiles", tiles), "levels": plain_scalar(levels)})
    except (ValueError, TypeError) as error:
        raise ConfigError(f"tiles={tiles!r:.80}: {error}") from error
    return {"overlap": list(spec.overlap), "levels": spec.levels, "wait_s": spec.wait_s}


def mirrors_request(mirrors: Sequence[str | Mapping[str, Any]] | None) -> list[Any] | None:
    """The field `mirrors` of `open`. Raises ConfigError for anything but a list of names and maps."""
    if mirrors is None:
        return None
    entries = checked_list("mirrors", mirrors, "a list, of names of formats or of maps")
    plain: list[Any] = []
    for position, entry in enumerate(entries):
        place = f"mirrors[{position}]"
        if not isinstance(entry, str | Mapping):
            refuse(place, entry, "the name of a format or a map with 'format'")
        plain.append(checked_text(place, entry) if isinstance(entry, str) else checked_options(place, entry))
    return plain
