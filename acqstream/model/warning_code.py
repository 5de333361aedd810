"""The codes of warnings about an acquisition, as in `warn` messages and in counts of warnings."""

from __future__ import annotations

from enum import StrEnum


class WarningCode(StrEnum):
    """A closed list, so that counts by code have a fixed number of series. docs/protocol.md, "warn", explains each."""

    DISK_LOW = "disk_low"
    DISK_FULL = "disk_full"
    DISK_SPACE = "disk_space"
    DISK_STALLED = "disk_stalled"
    IO_ERROR = "io_error"
    SHAPE_CHANGED = "shape_changed"
    OVERLAP_ONE_WAY = "overlap_one_way"
    NO_LEVELS = "no_levels"
    NO_MIRROR = "no_mirror"
    MIRROR_LEFT_OUT = "mirror_left_out"
    MIRROR_WAITS = "mirror_waits"
    MIRROR_RESTARTS = "mirror_restarts"
    MIRROR_HELD = "mirror_held"
    UNCALIBRATED = "uncalibrated"
    FRAME_REFUSED = "frame_refused"
    FOLDER_MOVED = "folder_moved"
    NAMES_UNFORCED = "names_unforced"
    NOT_UNDERSTOOD = "not_understood"
    NOTHING_TO_RESUME = "nothing_to_resume"
    RESUME_KEEPS = "resume_keeps"
    THIN_RGB = "thin_rgb"
    OTHER = "other"  # counts codes that this version does not know


_KNOWN = frozenset(WarningCode)


def counted_code(code: str) -> str:
    """Return the code under which a warning is counted."""
    return code if code in _KNOWN else WarningCode.OTHER
