"""The array that the frames of a reader make up now."""

from __future__ import annotations

from acqstream.arrays.axis_values import axis_plans
from acqstream.arrays.frame_array import FrameArray, frame_array
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader


def array_of(reader: NDTiffReader, *, is_stitched: bool = True) -> FrameArray:
    """Return the array of all frames published so far. It takes time in proportion to the values of the axes.

    is_stitched: tiles make up one picture; else row and column are axes.

    Raises DatasetError while the dataset has no frame.
    """
    if not len(reader):
        raise DatasetError(f"{reader.path}: holds no frame yet, so shape and dtype are not known")
    return frame_array(
        reader.axis_values(),
        reader.frame_shape(0),
        order=reader.declared_order,
        plans=axis_plans(reader.declared_axes),
        kinds=reader.key_kinds(),
        overlap=reader.tile_overlap if is_stitched else None,
    )


def tile_step(reader: NDTiffReader) -> tuple[int, int]:
    """Return the distance (y, x) of neighbouring tiles in pixels."""
    (height, width, *_), overlap = reader.frame_shape(0), reader.tile_overlap or (0, 0)
    return height - overlap[0], width - overlap[1]
