"""Writes an array into an HDF5 file, with copied pixels or with references to the frames in NDTiff stacks.

By reference, `/frames/00000`, `/frames/00001` ... are datasets with external storage: the bytes of up to 2,000 frames,
each a segment of a stack. `/image` is a virtual dataset over them. Dimension scales, coordinates and metadata are as
the netCDF-4 data model has them: h5py finds scales, and xarray and netCDF tools variables and coordinates.

Sources: HDF5 File Format Specification 3.0, IV.A.2.h (External Data Files message) and VII (virtual datasets); HDF5
Dimension Scale Specification 1.0; netCDF-4 file format ("Creating netCDF-4 files with HDF5"); CF conventions, section 5
("coordinates").
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import numpy as np

from acqstream.arrays.level_layout import LevelSource
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.xarray_arrays import coordinates, dimension_names
from acqstream.export.frame_references import Box, FrameReferences, block_shape, cut, runs
from acqstream.model.metadata import TIME_KEY, capture_time
from acqstream.model.run_note import RunNote

IMAGE, METADATA, SUMMARY, FRAMES = "image", "metadata", "summary_metadata", "frames"
_OWN_NAMES = frozenset({IMAGE, METADATA, SUMMARY, FRAMES})
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. %9d"  # text of the netCDF-4 file format
_NO_TIME = np.int64(-(2**63))  # numpy's NaT
_MAX_EMPTY = 8  # positions for each frame, above which columns have an item for each frame
MAX_NOTES = 1000  # each takes 16 bytes of the object header, and its text lies elsewhere
_MAX_COLUMNS = 200  # of numbers in the metadata of frames
_MAX_ATTRIBUTE_BYTES = 32 * 1024  # an object header has at most 64 KiB


def dimension_of(name: str) -> str:
    """The name of a dimension in the file: no slash, and none of ours."""
    plain = name.replace("/", "_") or "_"
    return f"{plain}_axis" if plain in _OWN_NAMES or plain == "." else plain


def write_scales(h5py: Any, file: Any, source: LevelSource, array: LevelArray) -> str:
    """Dimensions with their coordinates: int64, float64 or texts; a unit is the attribute `units`.

    Return the names of coordinates that are no dimensions, as `attach_scales` takes them.
    """
    by_name = coordinates(source, array)
    for number, (name, size) in enumerate(zip(dimension_names(array), array.shape, strict=True)):
        dimension = dimension_of(name)
        if name in by_name:
            scale = _write_coordinate(h5py, file, dimension, by_name[name])
            scale.make_scale(dimension)
        else:
            scale = file.create_dataset(dimension, (size,), "<f4", track_times=False)
            scale.make_scale(_NO_VARIABLE % size)
        scale.attrs["_Netcdf4Dimid"] = np.int32(number)
    for name, coordinate in by_name.items():
        if name not in dimension_names(array):
            dataset = _write_coordinate(h5py, file, dimension_of(name), coordinate)
            for at, dimension in enumerate((coordinate[0],) if isinstance(coordinate[0], str) else coordinate[0]):
                dataset.dims[at].attach_scale(file[dimension_of(dimension)])
    return " ".join(dimension_of(name) for name in by_name if name not in dimension_names(array))


def attach_scales(file: Any, dataset: Any, array: LevelArray, coordinate_names: str) -> None:
    """Give `dataset`, whose first axes are those of `array`, its dimensions and coordinates."""
    dimensions = [dimension_of(name) for name in dimension_names(array)][: dataset.ndim]
    for at, dimension in enumerate(dimensions):
        dataset.dims[at].label = dimension
        dataset.dims[at].attach_scale(file[dimension])
    if coordinate_names:
        dataset.attrs["coordinates"] = coordinate_names


def write_summary(h5py: Any, file: Any, summary: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    """The summary metadata as JSON text in a dataset of its own, and its plain values as attributes of the file."""
    text = json.dumps(summary, ensure_ascii=False, default=str)
    file.create_dataset(SUMMARY, data=text.replace("\0", ""), dtype=h5py.string_dtype())
    left = _MAX_ATTRIBUTE_BYTES
    for name, value in {**summary, **attributes}.items():
        if not isinstance(value, str | int | float) or not name or "\0" in name:
            continue
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            continue
        content = value.replace("\0", "") if isinstance(value, str) else value
        left -= len(name.encode("utf-8", "replace")) + len(str(content).encode("utf-8", "replace")) + 64
        if left < 0:
            return
        file.attrs[name] = content


def write_notes(h5py: Any, file: Any, notes: Sequence[RunNote]) -> None:
    """Notes on the run as the attribute `notes` of `/image`, a text each; the first MAX_NOTES of many."""
    if notes:
        texts = np.array([note.sentence(UTC) for note in notes[:MAX_NOTES]], object)
        file[IMAGE].attrs.create("notes", texts, dtype=h5py.string_dtype())


def write_metadata(
    file: Any,
    array: LevelArray,
    coordinate_names: str,
    frames: Iterable[tuple[Sequence[int], Mapping[str, Any]]],
) -> int:
    """Numbers in the metadata of frames, a dataset per key in group `metadata`: float64, NaN where a frame has none.

    Capture times are exact: int64 with the attributes `units` and `_FillValue`, as the CF conventions have them.
    frames: position along the outer axes and metadata of each frame. The shape is that of the outer axes; where few of
    their positions have a frame, the datasets have an item for each frame, and `positions` has its indices along the
    axes. Return the number of keys; the first 200 become datasets.
    """
    shape = array.shape[: len(array.outer)]
    positions: list[tuple[int, ...]] = []
    columns: dict[str, dict[int, Any]] = {}  # values by number of the frame
    for number, (position, metadata) in enumerate(frames):
        positions.append(tuple(position))
        for key, value in metadata.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or (key == TIME_KEY and capture_time(metadata) is None):
                continue
            if key in columns or (len(columns) < _MAX_COLUMNS and key.strip(".")):
                columns.setdefault(key, {})[number] = value
    if not columns:
        return 0
    group = file.create_group(METADATA)
    is_sparse = math.prod(shape) > _MAX_EMPTY * len(positions)
    if is_sparse:
        listed = group.create_dataset("positions", data=np.array(positions, np.int64), track_times=False)
        listed.attrs["axes"] = " ".join(dimension_of(name) for name in dimension_names(array)[: len(shape)])
    for key, values in columns.items():
        column = np.full((len(positions),) if is_sparse else shape, _NO_TIME if key == TIME_KEY else np.nan)
        for number, value in values.items():
            column[number if is_sparse else positions[number]] = value
        name = key.replace("/", "_").replace("\0", "")
        dataset = group.create_dataset(f"{name}_" if name in group else name, data=column, track_times=False)
        if not is_sparse:
            attach_scales(file, dataset, array, coordinate_names)
        if key == TIME_KEY:
            dataset.attrs.update({"units": "nanoseconds since 1970-01-01", "_FillValue": _NO_TIME})
    return len(columns)


def _write_coordinate(h5py: Any, file: Any, name: str, coordinate: tuple[Any, ...]) -> Any:
    _, values, *attributes = coordinate
    values = np.asarray(values)
    if values.dtype.kind in "US":
        dataset = file.create_dataset(name, data=values.astype(object), dtype=h5py.string_dtype())
    else:
        dataset = file.create_dataset(name, data=values, track_times=False)
    for key, value in (attributes[0] if attributes else {}).items():
        dataset.attrs[key] = value
    return dataset


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
            region = tuple(slice(side.start, side.stop) for side in box)
            block = array[region]
            for inner in cut(block.shape, options.get("chunks", block.shape)) if block.any() else ():
                part = block[tuple(slice(side.start, side.stop) for side in inner)]
                if part.any():
                    starts = zip(box, inner, strict=True)
                    image[tuple(slice(a.start + b.start, a.start + b.stop) for a, b in starts)] = part
            on_progress(min(number + 1, total), total)


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
