"""Paths of Windows in the form that has no limit of 260 characters, and back."""

from __future__ import annotations

import ctypes
import functools
import ntpath
import os

from acqstream.storage.platform.windows_api import WIN_CTYPES

_EXTENDED = "\\\\?\\"
_DEVICE = "\\\\.\\"
_SHARE = "\\\\?\\UNC\\"


def extended_path(path: str, absolute: str | None = None) -> str:
    r"""`path` as an absolute extended path: `\\?\C:\data`, `\\?\UNC\server\share\data`. Paths of devices stay.

    The system takes an extended path as it is, so `.`, `..` and slashes are resolved here. absolute: the absolute path
    if it is known, for tests. Source: "Maximum Path Length Limitation", "Naming Files, Paths, and Namespaces".
    """
    if path.startswith((_EXTENDED, _DEVICE)):
        return path
    full = ntpath.abspath(path) if absolute is None else absolute
    if full.startswith((_EXTENDED, _DEVICE)):  # abspath makes a device of NUL and its like
        return full
    return _SHARE + full[2:] if full.startswith("\\\\") else _EXTENDED + full


def plain_path(path: str) -> str:
    r"""The reverse of `extended_path`, as os.path.realpath gives it: without `\\?\`."""
    if path.startswith(_SHARE):
        return "\\\\" + path[len(_SHARE) :]
    return path.removeprefix(_EXTENDED)


def volume_of(path: str) -> str:
    """The drive or share of a path, in lower case; empty for a relative one."""
    return ntpath.splitdrive(plain_path(os.fspath(path)))[0].lower()


@functools.cache
def has_long_paths() -> bool:
    """Return True if calls of Python itself see files whose path has more than 259 characters.

    They do if LongPathsEnabled is set in the registry and the program is marked as longPathAware, as python.exe is
    ("Maximum Path Length Limitation"). Microsoft's reference lacks RtlAreLongPathsEnabled, which CPython's tests name
    (test_os.py). Wine lacks the function, and the limit.
    """
    ask = getattr(WIN_CTYPES.WinDLL("ntdll"), "RtlAreLongPathsEnabled", None)
    if ask is None:
        return True
    ask.restype = ctypes.c_uint8  # BOOLEAN: the other bits of the register may have any value
    return bool(ask())
