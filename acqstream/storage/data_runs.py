"""The ranges of a sparse file that contain data."""

from __future__ import annotations

import os
from pathlib import Path

from acqstream.errors import StorageError
from acqstream.storage.platform import FILES


def data_runs(path: Path) -> list[tuple[int, int]]:
    """Byte ranges [start, end) with data, in order; the bytes between them are holes and read as zeros.

    The complete file is one range if the platform or file system reports no holes. Raises StorageError.
    """
    try:
        descriptor = FILES.open_for_reading(os.fspath(path))
        try:
            return FILES.data_ranges(descriptor, FILES.size(descriptor))
        finally:
            FILES.close(descriptor)
    except OSError as error:
        raise StorageError.wrap(error, str(path), "find the holes") from error
