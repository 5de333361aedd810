"""Metadata as JSON: ASCII only, no NaN, bounded depth.

Plain ASCII with escapes is immune to every platform-charset fault of the existing NDTiff readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from acqstream.model.axes import Axes, axes_json

MAX_DEPTH = 100  # of what is stored: readers take more
MAX_JSON_BYTES = 64 * 2**20
"""Limit of readers for one JSON text, as a summary, one frame's metadata, a note: a sparse file must not make them
allocate gigabytes."""
MAX_JSON_ITEMS = 2_200_000  # an empty list takes 20 times the memory of its text, so a bound on bytes is not enough
MAX_SUMMARY_BYTES = MAX_JSON_BYTES // 4  # as JSON: notes hold it beside other things, and the loop parses it
MAX_SUMMARY_ITEMS = 1_000_000

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def dump_ascii(value: object) -> bytes:
    """`value` as compact ASCII JSON.

    Raises ValueError for NaN, Infinity and half surrogates, TypeError for foreign types.
    """
    text = _encode(value)
    if "\\ud" in text:  # perhaps half a surrogate pair, which no other reader of the file takes
        json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")
    return text.encode("ascii")


def summary_json(summary: Mapping[str, Any]) -> bytes:
    """A summary as JSON. Raises ValueError for one that readers would not read back."""
    text = dump_ascii(summary)
    items = sum(text.count(mark) for mark in (b"[", b"{", b","))
    if len(text) > MAX_SUMMARY_BYTES or items > MAX_SUMMARY_ITEMS:
        raise ValueError(
            f"the summary takes {len(text)} bytes with {items} values as JSON; at most {MAX_SUMMARY_BYTES} bytes and "
            f"{MAX_SUMMARY_ITEMS} values are stored. Leave entries out, or put them into a file and its path here"
        )
    check_depth(summary, text)
    return text


def frame_metadata(metadata: Mapping[str, Any] | None, axes: Axes, axes_text: bytes = b"") -> bytes:
    """A frame's metadata as JSON bytes, with its axes under `Axes`: the only way to rebuild a lost index.

    axes_text is `axes_json(axes)`, where it was made already.
    """
    if not metadata:
        return b'{"Axes":' + (axes_text or axes_json(axes)) + b"}"
    text = dump_ascii({**metadata, "Axes": dict(axes)})
    check_depth(metadata, text)
    return text


def check_depth(value: Mapping[str, Any], text: bytes) -> None:
    """Raise ValueError for metadata that is nested too deeply for readers; text is its JSON."""
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and is_deeper_than(MAX_DEPTH, value):
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")


def is_deeper_than(levels: int, value: Any) -> bool:
    """True if lists and maps are nested in more than this many levels."""
    level = [value] if isinstance(value, Mapping | list | tuple) else []
    for _ in range(levels):
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, Mapping) else one)
            if isinstance(child, Mapping | list | tuple)
        ]
        if not level:
            return False
    return True
