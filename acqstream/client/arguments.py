"""Checks the arguments of `create`, and makes of them the settings of a run and the fields of `hello` and `open`.

Checks raise ConfigError with the name, the expected and the given value.
"""

from __future__ import annotations

import math
import operator
import os
import platform
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from acqstream.client.keys import CurveKeys
from acqstream.client.plain_values import Changes, plain_metadata, plain_scalar
from acqstream.errors import AcqStreamError, ConfigError, ProtocolError
from acqstream.model.acquisition_spec import AxisSpec, TileSpec
from acqstream.model.frame_header import pixel_type_of
from acqstream.model.metadata import MAX_SUMMARY_BYTES, dump_ascii, summary_json
from acqstream.protocol.frame_batch import encode_request
from acqstream.protocol.requests import PROTOCOL_VERSION

_MAX_COUNT = 2**63 - 1
_MAX_DURABILITY_S = 3600
_SHOWN_CHARACTERS = 60
CLIENT_NAME = "acqstream"
_AXIS_KEYS = ("name", "size", "unit", "scale", "labels", "start")
_MAX_INLINE_BYTES = 256 * 2**10  # of JSON, which a header of 1 MiB holds in either encoding
SILENCE_S = 3.0
"""A daemon that is silent for this time, or for a third of the patience if that is less, is contacted again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The way to the daemon and the request to it. request has the fields of `open`, without id and epoch.

    relocates: `locate` is asked again after a lost contact. release: ends what `locate` keeps. log: the daemon's log
    file, empty if not known; log_advice: the end of an error message, with its last lines.
    """

    endpoint: str
    transport: str
    name: str
    dataset_id: str
    request: Mapping[str, Any]
    patience_s: float
    on_error: Callable[[AcqStreamError], None] | None
    keys: CurveKeys | None = None
    locate: Callable[[], str] | None = None  # for a caller that named no endpoint
    relocates: bool = False
    release: Callable[[], object] = bool
    log: str = ""
    log_advice: Callable[[], str] = str

    @property
    def silence_s(self) -> float:
        return min(SILENCE_S, self.patience_s / 3)


def refuse(name: str, value: object, expected: str) -> NoReturn:
    """Raise the ConfigError."""
    raise ConfigError(f"{name}={_shown(value)} must be {expected}; its type is {type(value).__name__}")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an object that cannot even be shown
        return "..."
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def checked_text(name: str, value: object, expected: str = "text") -> str:
    """A str; of subclasses, such as those of enumerations, the plain text."""
    if not isinstance(value, str):
        refuse(name, value, expected)
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as in file names that are not Unicode
        refuse(name, value, f"{expected} without surrogates")
    return text


def checked_choice(name: str, value: object, choices: Sequence[str | None]) -> Any:
    """One of `choices`, as plain text or None."""
    if value is None or isinstance(value, str):
        text = None if value is None else str.__str__(value)
        if text in choices:
            return text
    refuse(name, value, "one of " + ", ".join(map(repr, choices)))


def checked_flag(name: str, value: object) -> bool:
    """True or False, also from numpy; 0 and 1 stand for them."""
    if isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1)):
        return bool(value)
    refuse(name, value, "True or False")


def checked_number(name: str, value: object, expected: str, *, below: float = math.inf) -> float:
    """A finite number above 0 and below `below`."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        refuse(name, value, expected)
    try:
        number = float(value)
    except OverflowError:  # an int of hundreds of digits
        refuse(name, value, expected)
    if not 0 < number < below:  # neither is NaN
        refuse(name, value, expected)
    return number


def checked_count(name: str, value: object) -> int | None:
    """A count, or None."""
    if value is None:
        return None
    expected = "None or an integer, 0 or more"
    if isinstance(value, bool | np.bool_):
        refuse(name, value, expected)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        refuse(name, value, expected)
    if not 0 <= count <= _MAX_COUNT:
        refuse(name, value, expected)
    return count


def checked_metadata(name: str, value: object) -> tuple[dict[str, Any], Changes]:
    """As `plain_metadata` of a summary; an empty map for None."""
    if value is None:
        return {}, Changes()
    if not isinstance(value, Mapping):
        refuse(name, value, "a mapping")
    try:
        return plain_metadata(value, MAX_SUMMARY_BYTES)
    except ProtocolError as error:
        raise ConfigError(f"{name}: {error}") from error


def checked_options(name: str, value: Mapping[Any, Any]) -> dict[str, Any]:
    """A map of settings, as plain values; one that would become null or another text is refused."""
    plain, changes = checked_metadata(name, value)
    for _, text in changes.warnings(name):
        refuse(name, value, f"a map of text, finite numbers, lists and maps ({text.partition(';')[0]})")
    return plain


def checked_list(name: str, value: object, expected: str) -> list[Any]:
    """The items of a list or another iterable; texts and mappings are refused."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        refuse(name, value, expected)
    try:
        return list(value)
    except TypeError:  # an array without axes
        refuse(name, value, expected)


def checked_durability(value: object) -> str | float | None:
    """The argument `durability`; None for the default."""
    expected = f"'close', 'batch' or a number of seconds above 0, at most {_MAX_DURABILITY_S}"
    if value is None:
        return None
    if isinstance(value, str):
        text = str.__str__(value)
        return text if text in ("close", "batch") else refuse("durability", value, expected)
    seconds = checked_number("durability", value, expected)
    return seconds if seconds <= _MAX_DURABILITY_S else refuse("durability", value, expected)


def checked_path(name: str, value: object) -> str | None:
    """A path, or a key as text, or None."""
    if value is None:
        return None
    text = checked_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value, "a path or None")
    return refuse(name, value, "a path without NUL") if "\0" in text else text


def checked_callback(name: str, value: object) -> None:
    """A function, or None."""
    if value is not None and not callable(value):
        refuse(name, value, "a function or None")


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


def patch_parts(dataset_id: str, kind: str, values: dict[str, Any]) -> tuple[bytes, bytes]:
    """Header and second part of a `patch`; the latter is empty for values that fit into the header.

    Raises ConfigError for what cannot be stored.
    """
    try:
        text = summary_json(values)
    except ValueError as error:
        raise ConfigError(f"{kind}: {error}") from error
    if len(text) <= _MAX_INLINE_BYTES:
        return encode_request("patch", ds=dataset_id, **{kind: values}), b""
    return encode_request("patch", ds=dataset_id), b'{"%b":%b}' % (kind.encode(), text)


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
