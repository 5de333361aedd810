"""The display settings beside the stacks: the last ones count, and trouble with them harms no frame."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from acqstream.formats.ndtiff.layout import DISPLAY_SETTINGS_NAME, display_settings_bytes
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.disk import Disk


class DisplayFile:
    """attempt does what may fail, see `Finalizer`."""

    def __init__(self, disk: Disk, folder: str, attempt: Callable[[Callable[[], None]], None]) -> None:
        self._disk = disk
        self._path = os.path.join(folder, DISPLAY_SETTINGS_NAME)
        self._attempt = attempt
        self._content: bytes | None = None

    def set(self, settings: Mapping[str, Any]) -> None:
        """Set the settings that `write` writes. Raises ProtocolError if it cannot be JSON."""
        self._content = display_settings_bytes(settings)

    def write(self) -> None:
        """Replace the file, if there is something to write."""
        if (content := self._content) is not None:
            self._attempt(lambda: replace_file(self._disk, self._path, content))
