"""NDTiff: frames as pages of TIFF stack files, found through an index of their axes.

Specification: NDTiff 3.3 (github.com/micro-manager/NDTiffStorage), with the index as in versions 2 and 3.
Read: versions 0 to 3.3, flat and tiled, pixel types 0 to 6, uncompressed or zlib, finished or growing. Not read: other
compressions. Publish point: a complete entry in `NDTiff.index`; in versions 0 and 1, an entry of a stack's index map.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from acqstream.formats.check_report import CheckReport, FrameColumns
from acqstream.formats.ndtiff.folders import container_of, is_ndtiff
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers


class NDTiffFormat:
    """Entry of the registry. The log keeps each frame as it came, in this format alone."""

    name = "ndtiff"
    looked_for = "NDTiff.index, a folder 'Full resolution', or an NDTiff stack file (*.tif)"

    def detect(self, path: Path) -> bool:
        """Return True if `path` is a container, a level, or a file in it. Cheap."""
        return is_ndtiff(path)

    def open(self, path: Path) -> list[NDTiffReader]:
        """Readers of all levels, the full resolution first. Raises as `open_readers`."""
        return open_readers(path)

    def folder(self, path: Path) -> Path:
        """The container of the dataset at `path`."""
        return container_of(path)

    def check(
        self, container: Path, report: CheckReport, growing: bool, most_rows: int | None = None
    ) -> Iterator[FrameColumns]:
        """Report whatever breaks the format, in all levels; the frames of the full resolution, see `check_dataset`.

        While the dataset is growing, its unfinished end is not a problem.
        """
        from acqstream.formats.ndtiff.check import check_dataset  # not needed to read or write

        return check_dataset(container, report, growing, most_rows)


FORMAT = NDTiffFormat()
