"""Identity of this machine since its start, on macOS. No person has run it."""

from __future__ import annotations

import ctypes

_NAME = b"kern.bootsessionuuid"  # bsd/kern/kern_sysctl.c of XNU: a UUID, new at each start
_MAX_BYTES = 64


def boot_id() -> str:
    """An id that differs between machines, and between two starts of one; empty if the system has none."""
    read = getattr(ctypes.CDLL(None), "sysctlbyname", None)  # sysctl(3)
    if read is None:
        return ""
    value, size = ctypes.create_string_buffer(_MAX_BYTES), ctypes.c_size_t(_MAX_BYTES)
    is_read = read(_NAME, value, ctypes.byref(size), None, ctypes.c_size_t(0)) == 0
    return value.value.decode("ascii", "replace") if is_read else ""
