"""The file whose content a `shutdown` request must have: only users who may read it may end the daemon."""

from __future__ import annotations

import contextlib
import hmac
import logging
from pathlib import Path

from acqstream.errors import ConfigError
from acqstream.protocol.requests import new_shutdown_key
from acqstream.storage.files.atomic_file import write_private
from acqstream.storage.platform import FILES

logger = logging.getLogger("acqstream.daemon")


class ShutdownFile:
    """A key of this daemon's own in a file that its user alone can read, until `close`. docs/decisions/037.

    Raises ConfigError if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key = new_shutdown_key()
        try:
            write_private(path, self._key.encode("ascii") + b"\n")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error}; name another folder as `runtime`") from error

    def restore(self) -> None:
        """Write the file again if it was removed. Raises OSError."""
        if not self.path.exists():
            write_private(self.path, self._key.encode("ascii") + b"\n")

    def has_key(self, key: str) -> bool:
        """Return True if the key is that of the file, in a time that does not depend on the key."""
        return hmac.compare_digest(key.encode("utf-8"), self._key.encode("ascii"))

    def close(self) -> None:
        """Remove the file. Without it the key is of no use to the next daemon, which makes its own."""
        try:
            with contextlib.suppress(FileNotFoundError):
                FILES.unlink(str(self.path))  # also if `acqstream shutdown` is reading it, on Windows
        except OSError as error:
            logger.warning("cannot remove %s: %s", self.path, error)
