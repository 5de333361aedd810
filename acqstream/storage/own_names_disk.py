"""Disk with per-process temporary names, for concurrent writers in shared folders."""

from __future__ import annotations

import os
import secrets

from acqstream.errors import StorageError
from acqstream.storage.atomic import TEMPORARY_SUFFIX
from acqstream.storage.disk import Disk, LocalDisk
from acqstream.storage.folder_tree import walk


class OwnNamesDisk(LocalDisk):
    """Gives temporary files names that no other process uses, so two processes can put the same file safely.

    A killed process leaves its temporary files; `remove_temporaries` removes them.
    """

    def __init__(self) -> None:
        super().__init__()
        # The process id alone is not enough: hosts that share a folder may use the same number.
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
    """Remove temporary files of killed processes in a folder tree that no process writes to. Raises StorageError."""
    for folder, names in walk(path):
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                try:
                    disk.unlink(f"{folder}/{name}")
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise StorageError.wrap(error, f"{folder}/{name}", "cannot remove") from error
