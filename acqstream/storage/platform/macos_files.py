"""Files of macOS."""

from __future__ import annotations

from acqstream.storage.platform.posix_files import PosixFiles


class MacFiles(PosixFiles):
    """See `PosixFiles`."""
