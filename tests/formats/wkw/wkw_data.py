"""Arrays, and ways to write them, for the tests of WKW."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.formats.wkw import FORMAT
from acqstream.formats.wkw.codec import block_order, encode_compressed, encode_raw, raw_runs
from acqstream.formats.wkw.header import HEADER_NAME, BlockType, Header
from acqstream.formats.wkw.layout import cube_path, plan
from acqstream.formats.wkw.metadata import parse_options
from acqstream.mirrors.mirror_container import open_publisher
from acqstream.mirrors.publisher import Publisher
from acqstream.storage.files.disk import Disk
from acqstream.storage.stores.local_store import LocalStore
from tests.formats.blocks import in_blocks
from tests.storage.unforced_disk import UnforcedDisk

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "wkw"


def noise(shape: Sequence[int], dtype: Any, seed: int = 1) -> NDArray[Any]:
    """Values of all kinds, in whole bytes: floats are finite."""
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def write_cubes(folder: Path, header: Header, voxels: NDArray[Any], first: tuple[int, int, int] = (0, 0, 0)) -> None:
    """Write an array (z, y, x[, c]) into cubes from the cube `first` on, padded with zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    cubes = LocalStore(folder, UnforcedDisk())
    cubes.put(HEADER_NAME, [header.encode(0)])
    head = [header.encode(header.first_block)]
    side = header.cube_side
    order = block_order((0, 0, 0), (header.cube_blocks,) * 3)
    for step in np.ndindex(*(-(-size // side) for size in voxels.shape[:3])):
        part = voxels[tuple(slice(at * side, (at + 1) * side) for at in step)]
        cube = np.zeros((side, side, side, *voxels.shape[3:]), voxels.dtype)
        cube[tuple(slice(size) for size in part.shape)] = part
        z, y, x = (at + start for at, start in zip(step, first, strict=True))
        if header.block_type is BlockType.RAW:
            encoded = encode_raw(in_blocks(cube, header.block_shape))
            runs = raw_runs(encoded, (header.cube_blocks,) * 3, header, order)
            cubes.write(cube_path((z, y, x)), runs, head=head, length=header.raw_file_bytes)
        else:
            cubes.put(cube_path((z, y, x)), encode_compressed(in_blocks(cube, header.block_shape), header))


def planned(array: ArraySpec, **options: object) -> tuple[ArraySpec, ...]:
    return plan(array, parse_options(options)).levels


def create_writer(path: Path, levels: Sequence[ArraySpec], options: Any, disk: Disk) -> Publisher:
    """Create or resume a container of these levels, which may be shorter than planned."""
    member_axes = plan(levels[0], options).member_axes
    return open_publisher(FORMAT, path, Plan(levels=tuple(levels), member_axes=member_axes), options, disk)


def begin(path: Path, levels: Sequence[ArraySpec], /, **options: object) -> Publisher:
    return create_writer(path, levels, parse_options(options), UnforcedDisk())


def store(writer: Publisher, level: int, spec: ArraySpec, array: NDArray[Any], skip: Sequence[Any] = ()) -> None:
    """Hand all chunks of a level to the writer as the engine does: whole, with zeros beyond the array."""
    for position in np.ndindex(*spec.grid_shape):
        if position not in skip:
            part = array[spec.region(position)]
            chunk = np.zeros(spec.chunk_shape, spec.dtype)
            chunk[tuple(slice(size) for size in part.shape)] = part
            writer.store(level, [(position, writer.encode(level, position, in_blocks(chunk, spec.block_shape)))])


def write_array(path: Path, spec: ArraySpec, **options: object) -> list[NDArray[Any]]:
    """Write noise of the shape of every level; what was written, by level."""
    levels = planned(spec, **options)
    writer = begin(path, levels, **options)
    arrays = [noise(level.shape, level.dtype, seed) for seed, level in enumerate(levels)]
    for number, (level, array) in enumerate(zip(levels, arrays, strict=True)):
        store(writer, number, level, array)
    writer.finish(levels)
    return arrays


def read_all(reader: ChunkReader) -> NDArray[Any]:
    """The whole array, zeros where chunks are not there."""
    spec = reader.spec
    array = np.zeros(spec.shape, spec.dtype)
    for position in np.ndindex(*spec.grid_shape):
        chunk = reader.read_chunk(position)
        if chunk is not None:
            assert chunk.dtype == spec.dtype
            assert chunk.flags.c_contiguous
            array[spec.region(position)] = chunk
    return array
