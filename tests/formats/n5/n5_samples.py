"""N5 containers for the tests: golden ones, and ones made by our writer or by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.n5 import FORMAT
from acqstream.formats.n5.member_folders import folder_axes
from acqstream.grid.block_sizes import reduced_shape
from acqstream.mirrors.mirror_container import open_publisher
from acqstream.mirrors.publisher import Publisher
from acqstream.storage.files.disk import Disk
from tests.storage.unforced_disk import UnforcedDisk

GOLDEN = Path(__file__).parents[2] / "golden" / "n5"
EXPECTED = {entry["path"]: entry for entry in json.loads((GOLDEN / "expected.json").read_text())["datasets"]}


def samples(shape: Sequence[int], dtype: str, seed: int = 1121) -> NDArray[Any]:
    """Any values of the dtype, the largest and the smallest among them."""
    randomness = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return randomness.normal(size=shape).astype(kind)
    limits = np.iinfo(kind)
    values = randomness.integers(limits.min, limits.max, size=shape, dtype=kind, endpoint=True)
    values.flat[0], values.flat[-1] = limits.min, limits.max
    return values


def spec_of(array: NDArray[Any], axes: Sequence[str], **fields: Any) -> ArraySpec:
    return ArraySpec(axes=tuple(axes), shape=array.shape, dtype=array.dtype, **fields)


def plan_levels(array: ArraySpec, options: Any) -> tuple[ArraySpec, ...]:
    return FORMAT.plan(array, options).levels


def create(folder: Path, levels: Sequence[ArraySpec], options: Any, disk: Disk) -> Publisher:
    """The publisher of a new or existing container."""
    axes = levels[0].axes
    plan = Plan(levels=tuple(levels), member_axes=axes[: folder_axes(options.layout, axes)])
    return open_publisher(FORMAT, folder, plan, options, disk)


def write_levels(folder: Path, arrays: Sequence[NDArray[Any]], levels: Sequence[ArraySpec], options: Any) -> Publisher:
    """All chunks of all levels; not finished. The arrays are in the order of the levels' axes."""
    writer = create(folder, levels, options, UnforcedDisk())
    for number, (array, level) in enumerate(zip(arrays, levels, strict=True)):
        for position in np.ndindex(*level.grid_shape):
            writer.store(number, position, writer.encode(number, position, chunk_of(array, level, position)))
    return writer


def chunk_of(array: NDArray[Any], level: ArraySpec, position: tuple[int, ...]) -> NDArray[Any]:
    """In full size, as an engine hands it over: zeros beyond the array."""
    chunk = np.zeros(level.chunk_shape, level.dtype)
    part = array[level.region(position)]
    chunk[tuple(slice(0, size) for size in part.shape)] = part
    return chunk


def write_array(folder: Path, array: NDArray[Any], axes: Sequence[str], **given: Any) -> Path:
    """An array with one level, whole and finished; given are options of the format. Gives the dataset's folder."""
    options = FORMAT.parse_options({"layout": "array", "levels": 1, **given})
    (level,) = plan_levels(spec_of(array, axes), options)
    writer = write_levels(folder, [array.reshape(level.shape)], [level], options)
    writer.finish([level])
    return folder / "s0"


def reduced(array: NDArray[Any], level: ArraySpec) -> NDArray[Any]:
    """Every n-th item: what a level holds does not matter here, only that it is its own."""
    picked = array[tuple(slice(None, None, factor) for factor in level.factors)]
    return picked[tuple(slice(0, size) for size in level.shape)]


def write_pyramid(
    folder: Path, array: NDArray[Any], axes: Sequence[str], *, is_finished: bool = True, **given: Any
) -> Publisher:
    """An array in `axes` with the levels that the format plans; given are options, or fields of the spec."""
    names = ("scale", "units", "translation", "labels", "attributes")
    fields = {name: given.pop(name) for name in names if name in given}
    options = FORMAT.parse_options(given)
    levels = plan_levels(spec_of(array, axes, **fields), options)
    full = array.reshape(levels[0].shape)
    writer = write_levels(folder, [reduced(full, level) for level in levels], levels, options)
    if is_finished:
        writer.finish(levels)
    return writer


def make_dataset(folder: Path, size: Sequence[int], block_size: Sequence[int], **others: Any) -> Path:
    """A dataset without blocks, by hand: uint16, raw. All in N5 order."""
    folder.mkdir(parents=True, exist_ok=True)
    attributes = {
        "dimensions": [*size],
        "blockSize": [*block_size],
        "dataType": "uint16",
        "compression": {"type": "raw"},
        **others,
    }
    (folder / "attributes.json").write_text(json.dumps(attributes))
    return folder


def put_block(folder: Path, position: Sequence[int], content: bytes) -> Path:
    """A block file at a position, x first."""
    path = folder.joinpath(*map(str, position))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def block(extents: Sequence[int], values: Sequence[int] | NDArray[Any], mode: int = 0, extra: bytes = b"") -> bytes:
    """A block of uint16, raw; extents are x first."""
    head = struct.pack(f">HH{len(extents)}I", mode, len(extents), *extents)
    return head + extra + np.asarray(values).astype(">u2").tobytes()


def attributes_of(folder: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((folder / "attributes.json").read_text())
    return found


def with_shape(levels: Sequence[ArraySpec], shape: tuple[int, ...]) -> list[ArraySpec]:
    """The same levels for another shape of the full resolution."""
    return [replace(level, shape=reduced_shape(shape, level.factors)) for level in levels]
