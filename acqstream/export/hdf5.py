"""Writes an array into an HDF5 file, with copied pixels or with references to the frames in NDTiff stacks.

By reference, `/frames/00000`, `/frames/00001` ... are datasets with external storage: the bytes of up to 2,000 frames,
each a segment of a stack. `/image` is a virtual dataset over them. Sources: HDF5 File Format Specification 3.0,
IV.A.2.h (External Data Files message) and VII (virtual datasets).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from acqstream.dataset.level_array import LevelArray
from acqstream.export.blocks import Box, block_shape, cut
from acqstream.export.frame_references import FrameReferences, runs
from acqstream.export.hdf5_axes import FRAMES, IMAGE, attach_scales
from acqstream.storage.files.new_file import NewFile

MAX_SEGMENTS = 2000
"""Of one external dataset: its list lies in one message of the object header, which overflows near 2,700."""

MAX_CHUNK_BYTES = 2**31  # HDF5 chunks have at most 4 GiB
Progress = Callable[[int, int], None]
"""Called with the items done and all items."""


@dataclass(frozen=True, slots=True)
class Hdf5Writer:
    """Writes `array` into an open h5py file, where `write_scales` has written its scales."""

    h5py: Any
    file: Any
    array: LevelArray
    coordinate_names: str

    def write_references(self, references: FrameReferences, on_progress: Progress) -> int:
        """`/image` by reference; positions without a frame read as 0. Return the number of external datasets."""
        array, n_outer = self.array, len(self.array.outer)
        outer, pixels = array.shape[:n_outer], array.shape[n_outer:]
        dtype = references.dtype
        group = self.file.create_group(FRAMES)
        space = self.h5py.h5s.create_simple(array.shape)
        creation = self.h5py.h5p.create(self.h5py.h5p.DATASET_CREATE)
        creation.set_fill_value(np.zeros((), dtype))
        count, done = 0, 0
        for box in cut(outer, block_shape(outer, (1,) * n_outer, MAX_SEGMENTS)):
            positions = references.positions(box)
            if not positions:
                continue
            segments = [references.segment(position) for position in positions]
            external = [(os.fsencode(one.path), one.offset, one.count) for one in segments]
            frames = group.create_dataset(f"{count:05}", (len(positions), *pixels), dtype, external=external)
            _select(self.h5py, space, box, positions, pixels)
            every = self.h5py.h5s.create_simple(frames.shape)
            creation.set_virtual(space, b".", frames.name.encode(), every)
            count += 1
            done += len(positions)
            on_progress(done, len(references))
        full = self.h5py.h5s.create_simple(array.shape)
        kind = self.h5py.h5t.py_create(dtype, logical=True)
        self.h5py.h5d.create(self.file.id, IMAGE.encode(), kind, full, dcpl=creation)
        attach_scales(self.file, self.file[IMAGE], array, self.coordinate_names)
        return count

    def write_copy(self, compression: str, max_bytes: int, on_progress: Progress) -> None:
        """`/image` in chunks: frames, or the source's own chunks. Blocks that are all zero are not stored."""
        array = self.array
        chunk = tuple(max(1, min(side, size)) for side, size in zip(array.layout.chunk_shape, array.shape, strict=True))
        itemsize = array.dtype.itemsize
        options: dict[str, Any] = {}
        if compression == "zlib":
            options = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
        if all(array.shape):
            options["chunks"] = block_shape(array.shape, (1,) * array.ndim, MAX_CHUNK_BYTES // itemsize)
            options["chunks"] = tuple(min(pair) for pair in zip(options["chunks"], chunk, strict=True))
        image = self.file.create_dataset(
            IMAGE, array.shape, array.dtype, fillvalue=np.zeros((), array.dtype), track_times=False, **options
        )
        attach_scales(self.file, image, array, self.coordinate_names)
        sides = block_shape(array.shape, chunk, max_bytes // itemsize)
        total = -(-array.size // max(1, int(np.prod(sides))))
        for number, box in enumerate(cut(array.shape, sides)):
            place = tuple(slice(side.start, side.stop) for side in box)
            block = array[place]
            for inner in cut(block.shape, options.get("chunks", block.shape)) if block.any() else ():
                part = block[tuple(slice(side.start, side.stop) for side in inner)]
                if part.any():
                    starts = zip(box, inner, strict=True)
                    image[tuple(slice(a.start + b.start, a.start + b.stop) for a, b in starts)] = part
            on_progress(min(number + 1, total), total)


def open_hdf5(h5py: Any, file: NewFile) -> Any:
    """The h5py file that writes into `file`."""
    return h5py.File(file, "w", track_order=False)


def _select(h5py: Any, space: Any, box: Box, positions: list[tuple[int, ...]], pixels: tuple[int, ...]) -> None:
    """Select the frames at `positions` in the virtual dataset; a source without gaps is one box of it."""
    corner = (0,) * len(pixels)
    if len(positions) == int(np.prod([len(side) for side in box])):
        space.select_hyperslab((*(side.start for side in box), *corner), (*map(len, box), *pixels))
        return
    space.select_none()
    for first, count in runs(positions):
        sides = (*(1 for _ in first[:-1]), count) if first else ()
        space.select_hyperslab((*first, *corner), (*sides, *pixels), op=h5py.h5s.SELECT_OR)
