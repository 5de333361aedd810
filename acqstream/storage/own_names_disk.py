"""A disk for one of several processes that write into the same folders, each its own files, and some the same."""

from __future__ import annotations

import os
import secrets

from acqstream.errors import StorageError
from acqstream.storage.atomic import TEMPORARY_SUFFIX
from acqstream.storage.disk import Disk, LocalDisk


class OwnNamesDisk(LocalDisk):
    """Temporary files get names that no other process has: what two of them put in one place is there whole.

    A process that is killed leaves some behind; `remove_temporaries` finds them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ending = f".{os.getpid():x}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        return super().open(self._own(path), create=create, direct=direct)

    def replace(self, source: str, target: str) -> None:
        super().replace(self._own(source), self._own(target))

    def unlink(self, path: str) -> None:
        super().unlink(self._own(path))

    def _own(self, path: str) -> str:
        return path.removesuffix(TEMPORARY_SUFFIX) + self._ending if path.endswith(TEMPORARY_SUFFIX) else path


def remove_temporaries(disk: Disk, path: str) -> None:
    """Remove what killed processes have left in a folder and below it; nobody may write there. Raises StorageError."""
    for folder, _, names in os.walk(path):
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                try:
                    disk.unlink(f"{folder}/{name}")
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise StorageError.wrap(error, f"{folder}/{name}", "cannot remove") from error
