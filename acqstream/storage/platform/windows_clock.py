"""The time of day on Windows, in steps below 1 us.

time.time_ns has steps of 15.6 ms before Python 3.13, longer than many exposures. Source:
GetSystemTimePreciseAsFileTime and FILETIME on learn.microsoft.com.
"""

from __future__ import annotations

from ctypes import byref, c_uint64

from acqstream.storage.platform.windows_api import kernel32

_1601_TO_1970 = 116_444_736_000_000_000  # in steps of 100 ns


def file_time() -> int:
    """Return the time as a FILETIME: 100 ns since 1601, UTC."""
    now = c_uint64()
    kernel32().GetSystemTimePreciseAsFileTime(byref(now))
    return now.value


def nanoseconds_of(time: int) -> int:
    """A FILETIME in ns since 1970, UTC."""
    return (time - _1601_TO_1970) * 100


def wall_clock_ns() -> int:
    """Return the time in ns since 1970, UTC. On other systems this is `time.time_ns`."""
    return nanoseconds_of(file_time())
