"""The journal as a growing file, with a header that has its version and a mark of its close."""

from __future__ import annotations

from acqstream.log.journal import encode_journal_header
from acqstream.storage.append_file import AppendFile
from acqstream.storage.disk import Disk


class GrowingJournal(AppendFile):
    """version is that of the header as it stands; see `journal`."""

    def __init__(self, disk: Disk, path: str, *, create: bool, end: int = 0) -> None:
        super().__init__(disk, path, create=create, end=end)
        self.version = 1
        self.dataset_id = ""

    def mark(self, *, clean: bool) -> None:
        """Write the header. Raises StorageError."""
        self.rewrite(0, encode_journal_header(self.dataset_id, clean=clean, version=self.version))

    def upgrade(self) -> None:
        """Before the first record that stands for many numbers: an older acqstream must refuse it, not cut it off.

        On return the header is forced. Raises StorageError.
        """
        if self.version < 2:
            self.rewrite(0, encode_journal_header(self.dataset_id, clean=False, version=2))
            self.sync()
            self.version = 2
