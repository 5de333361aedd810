"""The receipt: what was sent, what is stored, what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["completed", "canceled", "error", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class MissingFrames:
    """Frame numbers first .. first + count - 1 have no pixels, for this reason."""

    first: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stall:
    """A disk call on a file that stalled for so many seconds. began_at is ISO 8601 in UTC."""

    call: str
    file: str
    began_at: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of an acquisition.

    sent is the producer's own count at `close` (None if it reported none); stored counts frames in the dataset; skipped
    counts frame numbers declared as never coming; missing lists all numbers without pixels. payload_bytes are pixel
    bytes stored. status is how it ended and reason why, where there is one.

    root_sha256 stands for the whole list of frames: SHA-256, in hex digits, of all journal records in their order,
    each of which has the checksum of a frame's pixels. Empty where the journal could not be kept. stalls are the times
    when the disk stalled. settings: how it was written; versions: the software that wrote it.
    """

    dataset_id: str
    path: str
    status: Status
    reason: str = ""
    sent: int | None = None
    stored: int = 0
    skipped: int = 0
    missing: tuple[MissingFrames, ...] = ()
    payload_bytes: int = 0
    without_checksum: int = 0
    started_at: str = ""
    finished_at: str = ""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    root_sha256: str = ""
    stalls: tuple[Stall, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True when the producer closed the run in order and every frame is stored or was declared as skipped."""
        undeclared = sum(gap.count for gap in self.missing) - self.skipped
        return self.status == "completed" and undeclared <= 0 and self.sent in (None, self.stored + self.skipped)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as in receipt.json and in the `closed` message."""
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Receipt:
        """The inverse of `as_dict`; unknown keys are ignored."""
        known = {name: values[name] for name in Receipt.__dataclass_fields__ if name in values}
        known["missing"] = tuple(MissingFrames(**entry) for entry in known.get("missing", ()))
        known["stalls"] = tuple(Stall(**entry) for entry in known.get("stalls", ()))
        return Receipt(**known)
