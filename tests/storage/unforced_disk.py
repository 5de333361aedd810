"""A disk that forces nothing: for tests that are about bytes, not about power cuts."""

from __future__ import annotations

from acqstream.storage.files.disk import LocalDisk


class UnforcedDisk(LocalDisk):
    """Everything else is as it is."""

    def fdatasync(self, fd: int) -> None:
        return

    def sync_directory(self, path: str) -> None:
        return
