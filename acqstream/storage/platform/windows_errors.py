"""Windows' error codes as errno, and waiting for those that pass.

Python translates a code by the table of the C library, which knows 45 of them; all others become EINVAL: a full disk
(39), a quota (1295), a lost share (64), a dying disk (1117). Source of the codes: "System Error Codes" of Microsoft's
documentation (winerror.h).
"""

from __future__ import annotations

import ctypes
import errno
import time
from collections.abc import Callable, Collection
from typing import TypeVar

_T = TypeVar("_T")

UNSUPPORTED = frozenset((1, 50, 87, 120, 124, 665))
"""A file system or an older Windows without this call: invalid function, not supported, invalid parameter, not
implemented, invalid level, file system limitation (exFAT answers so to a rename with POSIX semantics)."""
IN_USE = frozenset((5, 32, 33, 303))
"""Access denied, sharing violation, lock violation, delete pending. A virus scanner, an indexer or a backup that has
just opened the file causes them for some milliseconds."""
MAPPED = frozenset((1224,))
"""A program has mapped the part of a file that is to be cut off. Virus scanners map what they read."""
FOLDER_IN_USE = IN_USE | {145}
"""As IN_USE, for a folder: the name of a removed file may stay in it until its last reader closes it."""
END_OF_FILE = frozenset((38, 109))  # of a file, of a pipe
NO_MORE_DATA = 234  # the answer did not fit; what fitted is there
LOCKED = frozenset((33, 997))  # by another handle; 997 (I/O pending) is the same answer of an asynchronous one

_CODES = {
    errno.ENOENT: (2, 3, 15, 18, 123, 161),
    errno.ENOTDIR: (267,),
    errno.EEXIST: (80, 183),
    errno.ENOTEMPTY: (145,),
    errno.EACCES: (5, 32, 33, 82, 225, 226, 303, 1920),
    errno.EPERM: (1314,),
    errno.EROFS: (19, 6009),
    errno.EBUSY: tuple(MAPPED),
    errno.EMFILE: (4,),
    errno.EBADF: (6,),
    errno.ENOMEM: (8, 14, 1450, 1455, 1816),
    errno.EXDEV: (17,),
    errno.EFBIG: (223,),
    errno.EINVAL: (87,),
    errno.ENAMETOOLONG: (111, 206),
    errno.ENOSYS: (1, 50, 120, 124),
    errno.ELOOP: (1921,),
    errno.ENOSPC: (39, 112),
    errno.EDQUOT: (1295,),
}
# All others are EIO: 21, 23, 27, 29, 30, 31, 433, 483, 1006, 1117, 1167, 1392, 1393 (the device), 51, 53, 54, 55, 59,
# 64, 67, 121, 1231, 1236 (the share), and what Microsoft adds. EINVAL would pass for "no direct I/O here".
_ERRNO = {code: number for number, codes in _CODES.items() for code in codes}

_FIRST_WAIT_S = 0.001
_MAX_WAIT_S = 0.064
PATIENCE_S = 1.0


def windows_error(code: int, path: str | None = None, detail: str = "") -> OSError:
    """The OSError for a Windows error code: FileNotFoundError, PermissionError, ... The text names the code.

    detail: what the system's text does not say.
    """
    number = _ERRNO.get(code, errno.EIO)
    describe = getattr(ctypes, "FormatError", None)  # on Windows only
    text = f"{describe(code).strip()} (Windows error {code})" if describe else f"Windows error {code}"
    text = f"{text}; {detail}" if detail else text
    # Not as the argument `winerror`: the class would then translate the code by its own table.
    return OSError(number, text, path) if path is not None else OSError(number, text)


def own_error(error: OSError) -> OSError:
    """An error of Python's own calls with the errno that `windows_error` gives its code; elsewhere as it is."""
    code = getattr(error, "winerror", None)
    return windows_error(code, error.filename) if code else error


def until_free(
    attempt: Callable[[], tuple[_T, int]],
    *,
    codes: Collection[int] = IN_USE,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[_T, int]:
    """Repeat `attempt` while its error code is one of `codes`, after 1, 2, 4 ... 64 ms, for PATIENCE_S in all.

    attempt returns a result and an error code, 0 for none; the last of them is returned.
    """
    end_s, wait_s = clock() + PATIENCE_S, _FIRST_WAIT_S
    while True:
        result, code = attempt()
        remaining_s = end_s - clock()
        if code not in codes or remaining_s <= 0:
            return result, code
        sleep(min(wait_s, remaining_s))
        wait_s = min(2 * wait_s, _MAX_WAIT_S)
