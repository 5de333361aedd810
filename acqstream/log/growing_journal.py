"""The journal as a growing file, with a header that has its version and a mark of its close."""

from __future__ import annotations

from acqstream.log.journal import encode_journal_header
from acqstream.storage.files.append_file import AppendFile
from acqstream.storage.files.disk import Disk


class GrowingJournal(AppendFile):
    """The journal of one dataset; see `journal`."""

    def __init__(self, disk: Disk, path: str, *, create: bool, end: int = 0) -> None:
        super().__init__(disk, path, create=create, end=end)
        self.dataset_id = ""

    def mark(self, *, clean: bool) -> None:
        """Write the header, of the newest version: records of older ones are valid there. Raises StorageError."""
        self.rewrite(0, encode_journal_header(self.dataset_id, clean=clean))
