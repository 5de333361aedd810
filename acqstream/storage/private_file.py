"""Files that hold a secret: only their owner can read them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def write_private(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 in place of any file of this name. Raises OSError.

    The folder must be one where no other user may create files.
    """
    path.unlink(missing_ok=True)  # a new file: an old one may be open in another process, or be a link
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
