"""Compares the receipt with the frames that the producer sent and skipped."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

from acqstream.model.receipt import Receipt
from acqstream.model.units import count_text

_MAX_SHOWN = 5


class DeclaredGaps:
    """Frame numbers that the producer declared with `skip`."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []  # (first, end), ascending

    def add(self, first: int, count: int) -> None:
        """Declare numbers first .. first + count - 1, all above those declared before."""
        if not count:
            return
        if self._ranges and self._ranges[-1][1] == first:
            self._ranges[-1] = (self._ranges[-1][0], first + count)
        else:
            self._ranges.append((first, first + count))

    @property
    def count(self) -> int:
        return sum(end - first for first, end in self._ranges)

    def without(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of first .. end - 1 that were not declared, as (first, end)."""
        parts = []
        # A run may have hundreds of thousands, so skip the ranges on either side.
        for position in range(bisect_right(self._ranges, first, key=itemgetter(1)), len(self._ranges)):
            declared_first, declared_end = self._ranges[position]
            if declared_first >= end:
                break
            if first < declared_first:
                parts.append((first, declared_first))
            first = declared_end
        return [*parts, (first, end)] if first < end else parts


def describe_missing(receipt: Receipt, declared: DeclaredGaps, sent: int, refused: int = 0) -> str:
    """Text about the frames that a completed run lacks, empty if none. sent is the number of frame numbers in use.

    refused frames are known to be missing.
    """
    complaints = []
    if receipt.status != "completed":
        complaints.append(f"it ended as {receipt.status!r}" + (f": {receipt.reason}" if receipt.reason else ""))
    gaps = [
        (*part, entry.reason)
        for entry in receipt.missing
        for part in declared.without(entry.first, entry.first + entry.count)
    ]
    count = sum(end - first for first, end, _ in gaps)
    if count > refused:
        shown = ", ".join(_numbers(first, end, reason) for first, end, reason in gaps[:_MAX_SHOWN])
        more = f" and {len(gaps) - _MAX_SHOWN} more gaps" if len(gaps) > _MAX_SHOWN else ""
        complaints.append(f"{count} of {count_text(sent, 'frame', 'are')} missing: {shown}{more}")
    else:
        # Numbers of an earlier producer count as declared, though most are stored: the receipt distinguishes them.
        absent = max(receipt.skipped + receipt.refused, sum(entry.count for entry in receipt.missing))
        skipped = min(declared.count + refused, absent)
        if (lost := sent - receipt.stored - skipped) > 0:
            missing = f"{lost} of {count_text(sent, 'frame', 'are')} missing"
            complaints.append(f"{missing}: {receipt.stored} are stored, {skipped} skipped")
    return "; ".join(complaints)


def _numbers(first: int, end: int, reason: str) -> str:
    numbers = str(first) if end == first + 1 else f"{first} to {end - 1}"
    return f"{numbers} ({reason})" if reason else numbers
