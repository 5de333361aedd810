"""Numbers out of JSON that any program may have written."""

from __future__ import annotations

LARGEST = 1e100  # nothing physical is that large, and integers in JSON may be larger than any float


def finite_number(value: object) -> float | None:
    """`value` as a float; None if it is not a number, a boolean, NaN, or not between -1e100 and 1e100."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST:
        return float(value)
    return None
