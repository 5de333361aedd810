"""`display_settings.txt`: how viewers showed the channels.

Source: files of Micro-Manager. One JSON object of no fixed form, beside the stacks of flat datasets and at the top of
tiled ones. Some Java writers leave the end of an older, longer file after it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acqstream.formats.ndtiff.layout import DISPLAY_SETTINGS_NAME
from acqstream.formats.ndtiff.stack_header import decode_text
from acqstream.storage.files.read_file import ReadFile

_MAX_BYTES = 16 * 1024 * 1024


def read_display_settings(container: Path) -> dict[str, Any]:
    """The JSON object in the file; empty if the file is missing or damaged: a dataset is readable without colours.

    Raises StorageError where the disk fails.
    """
    path = container / DISPLAY_SETTINGS_NAME
    if not path.is_file():
        return {}
    file = ReadFile(path)
    text = decode_text(file.read(0, _MAX_BYTES)).lstrip()
    file.close()
    try:
        settings, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}
