"""NDTiff: frames as pages of TIFF stack files, found through an index of their axes.

Specification: NDTiff 3.3 (github.com/micro-manager/NDTiffStorage), with the index as in versions 2 and 3.
Read: versions 0 to 3.3, flat and tiled, pixel types 0 to 6, uncompressed or zlib, finished or growing. Not read: other
compressions. Publish point: a complete entry in `NDTiff.index`; in versions 0 and 1, an entry of a stack's index map.
"""

from __future__ import annotations

from pathlib import Path

from acqstream.formats.base import FrameFormat
from acqstream.formats.check_report import CheckReport, FrameColumns
from acqstream.formats.ndtiff.folders import container_of, is_ndtiff
from acqstream.formats.ndtiff.reader import open_readers


def _check(container: Path, report: CheckReport, growing: bool) -> FrameColumns:
    from acqstream.formats.ndtiff.check import check_dataset  # nobody who reads or writes needs it

    return check_dataset(container, report, growing)


FORMAT = FrameFormat(
    name="ndtiff",
    detect=is_ndtiff,
    looked_for="NDTiff.index, a folder 'Full resolution', or an NDTiff stack file (*.tif)",
    open=open_readers,
    folder=container_of,
    check=_check,
)
