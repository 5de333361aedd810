"""Identity of this machine since its start, on Windows."""

from __future__ import annotations

import ctypes
import platform

from acqstream.storage.platform.windows_api import advapi32

_HKEY_LOCAL_MACHINE = 0x80000002
_READ_TEXT, _READ_NUMBER = 0x02, 0x10  # RRF_RT_REG_SZ, RRF_RT_REG_DWORD
_64_BIT_VIEW = 0x00010000  # RRF_SUBKEY_WOW6464KEY
_MAX_BYTES = 512
_MACHINE = r"SOFTWARE\Microsoft\Cryptography", "MachineGuid"
_BOOT = r"SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management\PrefetchParameters", "BootId"


def boot_id() -> str:
    """An id that differs between machines, and between two starts of one; empty if the system has none.

    The GUID of the installation, the computer's name (copies of one disk image have the same GUID), and the number of
    starts, which Windows counts for its prefetcher. The time of the start would not do: it moves with the clock.
    """
    machine = _read(*_MACHINE, _READ_TEXT).decode("utf-16-le", "replace").rstrip("\0")
    if not machine:
        return ""
    starts = int.from_bytes(_read(*_BOOT, _READ_NUMBER), "little")
    return f"{machine}-{platform.node()}-{starts}"


def _read(key: str, value: str, kind: int) -> bytes:
    """The bytes of a registry value (RegGetValueW); none if it is missing."""
    data, size = ctypes.create_string_buffer(_MAX_BYTES), ctypes.c_uint32(_MAX_BYTES)
    flags = kind | _64_BIT_VIEW
    code = advapi32().RegGetValueW(_HKEY_LOCAL_MACHINE, key, value, flags, None, data, ctypes.byref(size))
    return data.raw[: size.value] if code == 0 else b""
