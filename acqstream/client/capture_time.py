"""Parses the time at which the core received a frame, from Micro-Manager's metadata."""

from __future__ import annotations

from datetime import datetime


def parse_received_ns(text: object) -> int | None:
    """`TimeReceivedByCore`, local time in microseconds, as ns since 1970; None where it is missing or invalid."""
    if not isinstance(text, str):
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e6) * 1000
    except ValueError:
        return None
