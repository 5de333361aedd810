"""Spans of frames in the stacks of an NDTiff dataset, as other software can read them; and blocks of arrays."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acqstream.arrays.level_layout import LevelLayout, LevelSource
from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.frames.frame_region import FrameLevel
from acqstream.storage.files.url_path import is_remote

Box = tuple[range, ...]
"""The positions of a block along each axis."""


def block_shape(shape: Sequence[int], chunk: Sequence[int], max_items: int) -> tuple[int, ...]:
    """The largest block of at most `max_items` items that is made of complete chunks, the last axes filled first.

    A block has at least one chunk, which may be larger than max_items. Sides are those of chunks, of several chunks, or
    of the array.
    """
    sides = [min(side, size) for side, size in zip(chunk, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        others = math.prod(side for at, side in enumerate(sides) if at != axis)
        if others * shape[axis] <= max_items:
            sides[axis] = shape[axis]
            continue
        if sides[axis]:
            fitting = max_items // others // sides[axis]
            sides[axis] *= max(1, fitting)
        break
    return tuple(sides)


def cut(shape: Sequence[int], sides: Sequence[int]) -> Iterator[Box]:
    """The blocks with these sides that cover an array of `shape`, last axis fastest; at the end they are smaller."""
    if not all(shape):
        return
    starts = (range(0, size, side) for size, side in zip(shape, sides, strict=True))
    for corner in itertools.product(*starts):
        yield tuple(
            range(start, min(start + side, size)) for start, side, size in zip(corner, sides, shape, strict=True)
        )


USE_COPY = "export it with --copy"


@dataclass(frozen=True, slots=True)
class Segment:
    """The pixels of one frame: `count` bytes from byte `offset` of the file `path`, which is absolute."""

    path: Path
    offset: int
    count: int


class FrameReferences:
    """The stored frames of a layout by position along its outer axes. dtype is theirs in the stacks."""

    def __init__(self, reader: NDTiffReader, layout: LevelLayout, rows: Mapping[tuple[int, ...], int]) -> None:
        self._reader = reader
        self._shape = layout.shape[len(layout.outer) :]
        self.dtype = layout.dtype
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def positions(self, box: Box) -> list[tuple[int, ...]]:
        """The positions in a box that have a frame, last axis fastest."""
        corner = tuple(side.start for side in box)
        sides = tuple(len(side) for side in box)
        steps = (tuple(int(n) + c for n, c in zip(at, corner, strict=True)) for at in np.ndindex(*sides))
        return [position for position in steps if position in self._rows]

    def segment(self, position: tuple[int, ...]) -> Segment:
        """The bytes of a frame in its stack.

        Raises UnsupportedFeature where they are not plain pixels, CorruptDataset if bytes or the stack are missing.
        """
        reader, row = self._reader, self._rows[position]
        name, frame = reader.stored_frame(row)
        file, order = reader.stack_file(name)
        where = f"{file.path}: frame {reader.key(row)}"
        if not frame.is_plain:
            raise UnsupportedFeature(f"{where} is compressed and cannot be referenced: {USE_COPY}")
        if order == ">" and self.dtype.itemsize > 1:
            raise UnsupportedFeature(f"{where} is big endian and cannot be referenced: {USE_COPY}")
        if frame.shape != self._shape or frame.pixel_type.numpy_dtype != self.dtype:
            text = f"{frame.shape} {frame.pixel_type.numpy_dtype}, the array frames of {self._shape} {self.dtype}"
            raise UnsupportedFeature(f"{where} has {text}: it cannot be referenced")
        if not file.reaches(frame.pixels + frame.payload_bytes):
            text = f"pixels of frame {reader.key(row)} end beyond the end of the file: repair the dataset first"
            raise CorruptDataset(text, path=str(file.path), offset=frame.pixels)
        return Segment(Path(os.path.abspath(file.path)), frame.pixels, frame.payload_bytes)


def frame_references(source: LevelSource, layout: LevelLayout) -> FrameReferences:
    """References to the frames that `layout`, a part of the layout of `source`, shows.

    Raises UnsupportedFeature for arrays whose bytes do not lie in files as complete frames: mosaics, chunks, datasets
    on web servers, a part of the picture.
    """
    if not isinstance(source, FrameLevel):
        raise UnsupportedFeature(f"{source.path}: only frames of NDTiff can be referenced, not chunks: {USE_COPY}")
    if is_remote(source.path):
        raise UnsupportedFeature(f"{source.path}: files of a web server cannot be referenced: {USE_COPY}")
    if layout.is_stitched:
        raise UnsupportedFeature(f"{source.path}: a picture put together from tiles has no references: {USE_COPY}")
    array = source.frame_array()
    if layout.shape[len(layout.outer) :] != (layout.frame_shape or array.frame_shape):
        raise UnsupportedFeature(f"{source.path}: a part of the picture cannot be referenced: {USE_COPY}")
    return FrameReferences(source.reader, layout, source.frame_rows(layout))


def runs(positions: list[tuple[int, ...]]) -> list[tuple[tuple[int, ...], int]]:
    """Runs of positions that follow each other along the last axis: the first of each, and their number."""
    found: list[tuple[tuple[int, ...], int]] = []
    for position in positions:
        if found:
            first, count = found[-1]
            if position[:-1] == first[:-1] and position[-1:] == tuple(last + count for last in first[-1:]) and position:
                found[-1] = (first, count + 1)
                continue
        found.append((position, 1))
    return found
