"""Ranges of bytes and entity tags in requests. Pure. Sources: RFC 9110, sections 8.8.3, 13.1 and 14.1."""

from __future__ import annotations

import re

_RANGE = re.compile(r"bytes=\s*([0-9]{0,19})\s*-\s*([0-9]{0,19})\s*")
_TAG = re.compile(r'(?:W/)?("[^"]*")')


class RangeMissed(Exception):
    """The range begins behind the end of the object."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The bytes [first, stop) that a Range header asks for; None for all of an object of `size` bytes.

    None also for several ranges and other units, which a server may ignore. Raises RangeMissed.
    """
    match = None if header is None else _RANGE.fullmatch(header)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        count = min(int(match[2]), size)
        if not count:
            raise RangeMissed
        return size - count, size
    first = int(match[1])
    last = int(match[2]) if match[2] else size - 1
    if match[2] and last < first:
        return None
    if first >= size:
        raise RangeMissed
    return first, min(last + 1, size)


def matches_tag(header: str | None, tag: str) -> bool:
    """Return True if an If-None-Match header names the entity tag, which is quoted and strong."""
    if header is None:
        return False
    return header.strip() == "*" or tag in _TAG.findall(header)
