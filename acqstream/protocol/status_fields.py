"""Fields of a `status` message, from and to the objects of `acqstream.model.status`. docs/protocol.md, "status"."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, Field, asdict, fields
from typing import Any, TypeVar

from acqstream.model.fields import Fields, check_integer, check_list, check_number, check_text
from acqstream.model.receipt import MissingFrames
from acqstream.model.status import (
    AcquisitionStatus,
    DaemonStatus,
    DaemonTotals,
    EndedStatus,
    LatencyHistogram,
    LoadStatus,
    UnfinishedViewStatus,
    ViewProcessStatus,
    ViewStatus,
)

MAX_STATUS_BYTES = 15 * 2**16
"""Limit for the lists of a daemon's status, as JSON; the complete status must fit into one header part."""
_WIRE_NAMES = {"dataset_id": "ds"}
_NUMBERS = (int, float)

_Status = TypeVar(
    "_Status",
    DaemonStatus,
    DaemonTotals,
    LatencyHistogram,
    LoadStatus,
    AcquisitionStatus,
    EndedStatus,
    ViewProcessStatus,
    ViewStatus,
    UnfinishedViewStatus,
)


def acquisition_fields(status: AcquisitionStatus) -> dict[str, Any]:
    """Return the fields of one acquisition."""
    mirrors = {name: _plain_fields(view) for name, view in status.mirrors.items()}
    lists = {"warnings": list(map(list, status.warnings)), "gaps": list(map(asdict, status.gaps))}
    return {**_plain_fields(status), **lists, "mirrors": mirrors}


def daemon_fields(status: DaemonStatus) -> dict[str, Any]:
    """Return the fields of a daemon; entries that do not fit into one message are left out, and counted in `left_out`.

    The first acquisitions, the first mirrors and the latest warnings are kept.
    """
    values = _plain_fields(status)
    del values["endpoint"], values["left_out"]
    values["endpoints"] = list(status.endpoints)
    values["load"] = _plain_fields(status.load)
    values["totals"] = _totals_fields(status.totals)
    mirrors = [_plain_fields(view) for view in status.views.mirrors]
    values["views"] = {**_plain_fields(status.views), "mirrors": mirrors}
    values["ended"] = list(map(_plain_fields, status.ended))
    values["acquisitions"] = [acquisition_fields(one) for one in status.acquisitions]
    return values if _json_bytes(values) <= MAX_STATUS_BYTES else _shortened(values)


def parse_acquisition(values: Fields) -> AcquisitionStatus:
    """Parse the fields of one acquisition; unknown ones are ignored, absent ones have their defaults.

    Raises FieldError naming a field of another type. So do the functions below.
    """
    warnings = tuple(map(_warning, values.items("warnings"))) if "warnings" in values else ()
    mirrors = _child(values, "mirrors")
    views = {name: _parse(ViewStatus, mirrors.child(name)) for name in mirrors.values}
    gaps = tuple(map(MissingFrames.of, _children(values, "gaps")))
    return _parse(AcquisitionStatus, values, warnings=warnings, gaps=gaps, mirrors=views)


def parse_daemon(values: Fields) -> DaemonStatus:
    """Parse the fields of a daemon."""
    views = _child(values, "views")
    left_out = _child(values, "left_out")
    mirrors = tuple(_parse(UnfinishedViewStatus, view) for view in _children(views, "mirrors"))
    return _parse(
        DaemonStatus,
        values,
        endpoints=values.texts("endpoints") if "endpoints" in values else (),
        load=_parse(LoadStatus, _child(values, "load")),
        totals=_parse_totals(_child(values, "totals")),
        views=_parse(ViewProcessStatus, views, mirrors=mirrors),
        acquisitions=tuple(map(parse_acquisition, _children(values, "acquisitions"))),
        ended=tuple(_parse(EndedStatus, one) for one in _children(values, "ended")),
        left_out={kind: left_out.integer(kind) for kind in left_out.values},
    )


def _totals_fields(totals: DaemonTotals) -> dict[str, Any]:
    values = _plain_fields(totals)
    for name in ("publish_latency", "durable_latency"):
        latency: LatencyHistogram = values[name]
        values[name] = {"bounds_s": [*latency.bounds_s], "counts": [*latency.counts], "sum_s": latency.sum_s}
    return {**values, "warnings": dict(totals.warnings), "ended": dict(totals.ended)}


def _parse_totals(values: Fields) -> DaemonTotals:
    def counts(name: str) -> dict[str, int]:
        child = _child(values, name)
        return {key: child.integer(key) for key in child.values}

    def latency(name: str) -> LatencyHistogram:
        return _parse_latency(values.child(name)) if name in values else LatencyHistogram()

    return _parse(
        DaemonTotals,
        values,
        warnings=counts("warnings"),
        ended=counts("ended"),
        publish_latency=latency("publish_latency"),
        durable_latency=latency("durable_latency"),
    )


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


def _child(values: Fields, name: str) -> Fields:
    return values.child(name) if name in values else Fields({})


def _children(values: Fields, name: str) -> Iterable[Fields]:
    return values.children(name) if name in values else ()


def _plain_fields(status: _Status) -> dict[str, Any]:
    """Return all fields of an object, nested ones as they are."""
    return {_WIRE_NAMES.get(one.name, one.name): getattr(status, one.name) for one in fields(status)}


def _parse(kind: type[_Status], values: Fields, **nested: Any) -> _Status:
    """Make an object of the plain fields in `values` and of the nested ones, which are parsed already."""
    plain = dict(nested)
    for one in fields(kind):
        wire_name = _WIRE_NAMES.get(one.name, one.name)
        if one.name not in nested and wire_name in values:
            plain[one.name] = _checked(one, wire_name, values)
    return kind(**plain)


def _checked(one: Field[Any], name: str, values: Fields) -> Any:
    """Return a value of the type that the field's default has; None stands for a number that may be unknown."""
    default = None if one.default is MISSING else one.default
    if default is None and values.values[name] is None:
        return None
    if default is None or type(default) in _NUMBERS:
        values.number(name)
        return values.values[name]  # integers stay integers
    return values.text(name)


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
