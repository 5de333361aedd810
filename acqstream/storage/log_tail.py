"""The end of a text file that another process writes."""

from __future__ import annotations

from pathlib import Path

from acqstream.storage.platform import FILES

_MAX_BYTES = 2**14


def last_lines(path: Path, count: int) -> list[str]:
    """Return up to `count` lines from the end; none if the file cannot be read."""
    try:
        fd = FILES.open_for_reading(str(path))
    except OSError:
        return []
    try:
        start = max(0, FILES.size(fd) - _MAX_BYTES)
        text = FILES.pread(fd, _MAX_BYTES, start).decode("utf-8", "replace")
    except OSError:
        return []
    finally:
        FILES.close(fd)
    return text.splitlines()[-count:]
