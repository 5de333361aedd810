"""The data directory: one lock, plain names, datasets of an earlier run recovered before anybody asks."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from acqstream.errors import AcquisitionRefused, ConfigError, DatasetExists
from acqstream.storage.lock import DirectoryLock

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def check_name(name: str) -> None:
    """Raise AcquisitionRefused (bad_name) unless `name` is a plain folder name on every system."""
    if not _NAME.fullmatch(name) or name.endswith(".") or _DEVICE_NAME.fullmatch(name):
        raise AcquisitionRefused(
            f"dataset name {name!r:.120} is not allowed: 1 to 100 letters, digits, '.', '_' or '-', starting with a "
            "letter, digit or '_', not ending with '.', and no device name",
            code="bad_name",
        )


class DataDirectory:
    """Where the datasets go; held against other daemons while open.

    Raises ConfigError if it is no writable folder, DatasetLocked if another daemon has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        if not self.path.is_dir():
            raise ConfigError(f"data directory {self.path} does not exist; create it or name another one with --data")
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise ConfigError(f"data directory {self.path} is not writable by this user")
        if _is_not_unicode(str(self.path)):  # no message, receipt or state file could name what is in it
            shown = os.fsencode(self.path).decode("utf-8", "backslashreplace")
            raise ConfigError(f"data directory {shown} has a name that is not UTF-8; use another one")
        self._lock = DirectoryLock(str(self.path))

    def close(self) -> None:
        self._lock.close()

    def folders(self) -> Iterator[Path]:
        """Folders that may be datasets, links left out."""
        for entry in sorted(os.scandir(self.path), key=lambda one: one.name):
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)

    def choose(self, name: str, *, number_if_taken: bool, in_use: set[str]) -> Path:
        """The folder for a new dataset; it does not exist yet. Names are compared without regard to case.

        An empty folder of this name is removed: a daemon that was killed between making it and its first file leaves
        it, and its producer asks for the name again. Raises AcquisitionRefused (bad_name) or DatasetExists.
        """
        check_name(name)
        if name.lower() not in {one.lower() for one in in_use}:
            with contextlib.suppress(OSError):  # it is missing, has content, or is no folder
                (self.path / name).rmdir()
        taken = {entry.name.lower() for entry in os.scandir(self.path)} | {one.lower() for one in in_use}
        if name.lower() not in taken:
            return self.path / name
        if not number_if_taken:
            raise DatasetExists(f'{self.path / name} exists already; choose another name or on_exists="number"')
        number = 1
        while f"{name}_{number}".lower() in taken:
            number += 1
        numbered = f"{name}_{number}"
        check_name(numbered)
        return self.path / numbered


def _is_not_unicode(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
