"""Metadata as JSON: ASCII only, no NaN, bounded depth; and finite numbers of JSON that any program may have written.

Plain ASCII with escapes is immune to every platform-charset fault of the existing NDTiff readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from acqstream.model.axes import Axes, axes_json

LARGEST = 1e100  # nothing physical is that large, and integers in JSON may be larger than any float


def finite_number(value: object) -> float | None:
    """`value` as a float; None if it is not a number, a boolean, NaN, or not between -1e100 and 1e100."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST:
        return float(value)
    return None


MAX_DEPTH = 100  # of what is stored: readers take more
AXES_KEY, TIME_KEY = "Axes", "time_ns"
_TIME_KEY_TEXT = TIME_KEY.encode("ascii")
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


def encode_given(metadata: Mapping[str, Any], time_ns: int | None) -> tuple[bytes, int | None]:
    """Metadata of a frame as a JSON object, without the keys that `frame_text` adds, and the capture time.

    The frame's own axes replace `Axes`. Without time_ns an integer under TIME_KEY is the capture time. Raises
    ValueError, TypeError or RecursionError for what cannot be stored.
    """
    if AXES_KEY in metadata or TIME_KEY in metadata:
        time_ns = capture_time(metadata) if time_ns is None else time_ns
        dropped = (AXES_KEY,) if time_ns is None else (AXES_KEY, TIME_KEY)
        metadata = {key: value for key, value in metadata.items() if key not in dropped}
    if not metadata:
        return b"", time_ns
    text = dump_ascii(metadata)
    check_depth(metadata, text)
    return text, time_ns


def check_given(text: bytes, time_ns: int | None) -> None:
    """Raise ValueError for metadata, encoded by a producer, that are not as `encode_given` makes them."""
    if not text.isascii() or text[:1] != b"{" or text[-1:] != b"}":
        raise ValueError("encoded metadata must be a JSON object in ASCII, without blanks around it")
    values = json.loads(text)
    if dump_ascii(values) != text:  # another program's: a key may occur twice, which readers take for damage
        strict_json(text.decode("ascii"))
    has_time = TIME_KEY in values and (time_ns is not None or capture_time(values) is not None)
    if not values or AXES_KEY in values or has_time:
        raise ValueError(f"encoded metadata must have keys, and neither {AXES_KEY!r} nor a capture time {TIME_KEY!r}")
    check_depth(values, text)


def frame_text(given: bytes, axes_text: bytes, time_ns: int | None) -> bytes:
    """The stored metadata of a frame: what was given (or nothing), its capture time, and its axes.

    The axes are the only way to rebuild a lost index. axes_text is `axes_json` of them.
    """
    start = given[:-1] + b"," if given else b"{"
    time_text = b"" if time_ns is None else b'"%b":%d,' % (_TIME_KEY_TEXT, time_ns)
    return start + time_text + b'"Axes":' + axes_text + b"}"


def frame_metadata(metadata: Mapping[str, Any] | None, axes: Axes, time_ns: int | None = None) -> bytes:
    """As `frame_text`, from a mapping. Raises as `encode_given`."""
    given, time_ns = encode_given(metadata or {}, time_ns)
    return frame_text(given, axes_json(axes), time_ns)


def capture_time(metadata: Mapping[str, Any]) -> int | None:
    """The capture time in a frame's metadata, ns since 1970; None without one."""
    value = metadata.get(TIME_KEY)
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def time_in_text(text: bytes) -> int | None:
    """As `capture_time`, in stored metadata; None also where they are damaged."""
    if b'"%b"' % _TIME_KEY_TEXT not in text:
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return capture_time(values) if isinstance(values, dict) else None


def strict_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for NaN, infinities and a key that occurs twice."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; send null")


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
