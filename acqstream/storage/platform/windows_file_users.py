"""Programs that have a file open, for the text of an error.

Source: "Restart Manager" and RM_PROCESS_INFO on learn.microsoft.com. Not tried on a real Windows: Wine names none.
"""

from __future__ import annotations

import ctypes
import logging
from ctypes import byref, c_int, c_uint, c_uint32, c_wchar, c_wchar_p
from typing import Any

from acqstream.storage.platform.windows_api import rstrtmgr
from acqstream.storage.platform.windows_paths import extended_path, plain_path

logger = logging.getLogger("acqstream.storage")

_KEY_CHARACTERS = 33  # CCH_RM_SESSION_KEY and a zero
_MAX_PROGRAMS = 8  # more would make no clearer text
_MORE_DATA = 234


class ProgramInformation(ctypes.Structure):
    """RM_PROCESS_INFO, which begins with RM_UNIQUE_PROCESS."""

    _fields_ = (
        ("process", c_uint32),
        ("start_low", c_uint32),
        ("start_high", c_uint32),
        ("name", c_wchar * 256),
        ("service", c_wchar * 64),
        ("kind", c_int),
        ("status", c_uint32),
        ("session", c_uint32),
        ("is_restartable", c_int),
    )


def file_users(path: str) -> list[str]:
    """Names and process ids of at most 8 programs that have a file open: ["Micro-Manager (4711)"].

    Empty if the system names none: for folders, files of other PCs, and where it lacks the Restart Manager.
    """
    try:
        manager = rstrtmgr()
    except OSError as error:
        logger.debug("cannot ask who uses %s: %s", path, error)
        return []
    session, key = c_uint32(), ctypes.create_unicode_buffer(_KEY_CHARACTERS)
    if manager.RmStartSession(byref(session), 0, key):
        return []
    try:
        return _users(manager, session, plain_path(extended_path(path)))
    finally:
        manager.RmEndSession(session)


def _users(manager: Any, session: c_uint32, path: str) -> list[str]:
    if manager.RmRegisterResources(session, 1, (c_wchar_p * 1)(path), 0, None, 0, None):
        return []
    programs, reasons = (ProgramInformation * _MAX_PROGRAMS)(), c_uint32()
    total, count = c_uint(), c_uint(_MAX_PROGRAMS)
    code = manager.RmGetList(session, byref(total), byref(count), programs, byref(reasons))
    if code == _MORE_DATA:
        # The answer did not fit, so it may be incomplete: ask once more with enough space.
        programs, count = (ProgramInformation * total.value)(), c_uint(total.value)
        code = manager.RmGetList(session, byref(total), byref(count), programs, byref(reasons))
    if code:
        return []
    return [f"{program.name} ({program.process})" for program in programs[: min(count.value, _MAX_PROGRAMS)]]
