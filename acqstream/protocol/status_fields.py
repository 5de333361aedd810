"""Fields of a `status` message, from and to the objects of `acqstream.model.status`. docs/protocol.md, "status"."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from acqstream.model.fields import Fields, check_integer, check_list, check_number, check_text
from acqstream.model.receipt import MissingFrames
from acqstream.model.status import AcquisitionStatus, DaemonStatus, LatencyHistogram

MAX_STATUS_BYTES = 15 * 2**16
"""Limit for the lists of a daemon's status, as JSON; the complete status must fit into one header part."""
_WIRE_NAMES = {"dataset_id": "ds"}

_Status = TypeVar("_Status")


def acquisition_fields(status: AcquisitionStatus) -> dict[str, Any]:
    """Return the fields of one acquisition."""
    values: dict[str, Any] = _plain(status)
    return values


def daemon_fields(status: DaemonStatus) -> dict[str, Any]:
    """Return the fields of a daemon; entries that do not fit into one message are left out, and counted in `left_out`.

    The first acquisitions, the first mirrors and the latest warnings are kept.
    """
    values: dict[str, Any] = _plain(status)
    del values["endpoint"], values["left_out"]
    return values if _json_bytes(values) <= MAX_STATUS_BYTES else _shortened(values)


def parse_acquisition(values: Fields) -> AcquisitionStatus:
    """Parse the fields of one acquisition; unknown ones are ignored, absent ones have their defaults.

    Raises FieldError naming a field of another type. So does the function below.
    """
    return _parse(AcquisitionStatus, values)


def parse_daemon(values: Fields) -> DaemonStatus:
    """Parse the fields of a daemon."""
    return _parse(DaemonStatus, values)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: an object is a map of its fields by their names on the wire."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if is_dataclass(value):
        return {_WIRE_NAMES.get(one.name, one.name): _plain(getattr(value, one.name)) for one in fields(value)}
    return value


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _parse(kind: type[_Status], values: Fields) -> _Status:
    """Make an object of the fields in `values`, each of the type that the object declares."""
    hints = {name: (_WIRE_NAMES.get(name, name), hint) for name, hint in _hints(kind).items()}  # type: ignore[arg-type]
    return kind(**{name: _read(hint, key, values) for name, (key, hint) in hints.items() if key in values})


def _read(hint: Any, name: str, values: Fields) -> Any:
    """Return the value under `name`, if it is of this type; None stands for a number that may be unknown."""
    origin, (item, *_) = get_origin(hint), (*get_args(hint), None)
    if hint is LatencyHistogram:
        return _parse_latency(values.child(name))
    if is_dataclass(hint):
        return _parse(hint, values.child(name))  # type: ignore[arg-type]  # it is a class
    if origin is tuple and item is MissingFrames:
        return tuple(map(MissingFrames.of, values.children(name)))
    if origin is tuple and is_dataclass(item):
        return tuple(_parse(item, one) for one in values.children(name))  # type: ignore[arg-type]
    if origin is tuple:
        return values.texts(name) if item is str else tuple(map(_warning, values.items(name)))
    if origin is Mapping:
        child, of_each = values.child(name), get_args(hint)[1]
        return {key: child.integer(key) if of_each is int else _read(of_each, key, child) for key in child.values}
    if hint is str:
        return values.text(name)
    if NoneType in get_args(hint) and values.values[name] is None:
        return None
    values.number(name)
    return values.values[name]  # integers stay integers


def _parse_latency(values: Fields) -> LatencyHistogram:
    """Parse a histogram; its bounds may be those of another version."""
    bounds = tuple(check_number(one, "bounds_s[]") for one in check_list(values.values.get("bounds_s"), "bounds_s"))
    counts = check_list(values.values.get("counts"), "counts", len(bounds) + 1)
    return LatencyHistogram(
        bounds_s=bounds,
        counts=tuple(check_integer(one, "counts[]") for one in counts),
        sum_s=values.number("sum_s"),
    )


def _warning(value: object) -> tuple[str, str, str]:
    code, text, time, *_ = (*check_list(value, "warnings"), None, None, None)
    return check_text(code, "warnings[][0]"), check_text(text, "warnings[][1]"), check_text(time, "warnings[][2]")


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    acquisitions, mirrors = values["acquisitions"], values["views"]["mirrors"]
    kept, capacity = _first_of(({**one, "warnings": []} for one in acquisitions), MAX_STATUS_BYTES)
    kept_mirrors, capacity = _first_of(mirrors, capacity)
    left_out = {"acquisitions": len(acquisitions) - len(kept), "mirrors": len(mirrors) - len(kept_mirrors)}
    left_out["warnings"] = 0
    for short, complete in zip(kept, acquisitions, strict=False):
        latest, _ = _first_of(reversed(complete["warnings"]), capacity // len(kept))
        short["warnings"] = latest[::-1]
        left_out["warnings"] += len(complete["warnings"]) - len(latest)
    return {**values, "acquisitions": kept, "views": {**values["views"], "mirrors": kept_mirrors}, "left_out": left_out}


def _first_of(entries: Iterable[Any], capacity: int) -> tuple[list[Any], int]:
    """Return the first entries that fit into `capacity` bytes, and the bytes that remain."""
    kept: list[Any] = []
    for entry in entries:
        size = _json_bytes(entry)
        if size > capacity:
            break
        kept.append(entry)
        capacity -= size
    return kept, capacity


def _json_bytes(entry: object) -> int:
    return len(json.dumps(entry)) + 2  # and a comma
