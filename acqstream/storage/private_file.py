"""Files that hold a secret: only their owner can read them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from acqstream.storage.platform import FILES, create_private, open_log


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read, in place of any file of this name. Raises OSError.

    Administrators can read it on Windows, as root can everywhere. What another user puts in its place is not written.
    """
    with contextlib.suppress(FileNotFoundError):
        FILES.unlink(str(path))  # a new file: an old one may be open in another process, or be a link
    create_private(path)
    try:
        with open(open_log(path), "wb") as file:
            file.write(content)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
