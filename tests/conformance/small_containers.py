"""Small containers of every chunk format, written by the contract alone: chunk by chunk, without a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.registry import ENTRY_POINTS, chunk_format
from acqstream.mirrors.mirror_container import open_publisher
from acqstream.mirrors.publisher import Publisher
from acqstream.storage.files.disk import Disk
from tests.formats.blocks import in_blocks
from tests.storage.unforced_disk import UnforcedDisk


@dataclass(frozen=True)
class Case:
    """An array that a format can hold, and options for small chunks: several along each axis, and edges.

    growing is the axis along which it gets longer; "" for one that is as long as was declared. is_described: with names
    of channels and an attribute.
    """

    options: dict[str, object]
    axes: tuple[str, ...] = ("time", "channel", "z", "y", "x")
    shape: tuple[int, ...] = (2, 2, 10, 40, 50)
    growing: str = "time"
    is_described: bool = False


CASES = {
    "hsds": Case({"pixels": "copy", "chunks": [4, 16, 16], "levels": 2}),
    "hsds one level": Case({"pixels": "copy", "chunks": [4, 16, 16], "levels": 1}),
    "hsds zlib": Case({"pixels": "copy", "chunks": [4, 16, 16], "levels": 2, "compression": "zlib"}),
    "hsds none": Case({"pixels": "copy", "chunks": [4, 16, 16], "levels": 2, "compression": "none"}),
    "n5": Case({"blocks": [4, 16, 16], "levels": 2, "compression": "gzip"}),
    "npy": Case({"depth": 4}),
    "ome-zarr": Case({"chunks": [4, 16, 16], "levels": 2, "compression": "gzip"}),
    "precomputed": Case({"chunks": [4, 16, 16], "levels": 2}),
    "precomputed volume": Case({"chunks": [4, 16, 16], "levels": 2}, ("z", "y", "x"), (10, 40, 50), ""),
    "ome-zarr fields": Case(
        {"chunks": [4, 16, 16], "levels": 1}, ("position", "z", "y", "x"), (2, 10, 40, 50), "position"
    ),
    "precomputed shards": Case({"chunks": [4, 16, 16], "levels": 2, "shards": {"data_encoding": "gzip"}}),
    "wkw": Case({"cube": 32, "levels": 2}, ("channel", "z", "y", "x"), (2, 70, 40, 50), "z"),
}


PLUG_INS = (EntryPoint("npy", "tests.mirrors.npy_format:FORMAT", ENTRY_POINTS),)
"""Formats of other packages, as these announce them."""


@dataclass
class Made:
    """A container under construction: the array in the order of the levels' axes, and who writes it."""

    format: ChunkFormat[Any]
    case: Case
    folder: Path
    options: Any
    plan: Plan
    array: NDArray[Any]
    writer: Publisher
    disk: Disk

    @property
    def levels(self) -> tuple[ArraySpec, ...]:
        return self.plan.levels

    def part(self, level: int) -> NDArray[Any]:
        """What a level holds: every n-th item, for it does not matter how it was reduced."""
        spec = self.levels[level]
        picked = self.array[tuple(slice(None, None, factor) for factor in spec.factors)]
        return picked[tuple(slice(0, size) for size in spec.shape)]

    def chunk(self, level: int, position: Position) -> NDArray[Any]:
        spec = self.levels[level]
        chunk = np.zeros(spec.chunk_shape, spec.dtype)
        part = self.part(level)[spec.region(position)]
        chunk[tuple(slice(0, size) for size in part.shape)] = part
        return in_blocks(chunk, spec.block_shape)

    def store(self, level: int, position: Position) -> None:
        self.writer.store(level, position, self.writer.encode(level, position, self.chunk(level, position)))

    def store_all(self) -> None:
        for level, spec in enumerate(self.levels):
            for position in np.ndindex(*spec.grid_shape):
                self.store(level, position)

    def again(self, levels: Sequence[ArraySpec] | None = None) -> None:
        """As after a restart."""
        self.writer = self.open(levels or self.levels)

    def open(self, levels: Sequence[ArraySpec]) -> Publisher:
        return open_publisher(self.format, self.folder, self.plan.with_levels(levels), self.options, self.disk)


def make(name: str, parent: Path, *, disk: Disk | None = None, case: Case | None = None) -> Made:
    """An opened container, without chunks. The format is the first word of the name; the case defaults to its own."""
    case, format_name = case or CASES[name], name.partition(" ")[0]
    plug_in = next((entry for entry in PLUG_INS if entry.name == format_name), None)
    found = chunk_format(format_name) if plug_in is None else plug_in.load()
    array = np.random.default_rng(7).integers(1, 60_000, case.shape).astype("uint16")
    units = tuple("um" if axis in ("z", "y", "x") else "" for axis in case.axes)
    channels = case.shape[case.axes.index("channel")] if "channel" in case.axes else 0
    described: dict[str, Any] = {
        "labels": {"channel": tuple("ab"[:channels])} if channels else {},
        "attributes": {"n": 1},
    }
    spec = ArraySpec(
        axes=case.axes,
        shape=case.shape,
        dtype=array.dtype,
        units=units,
        **(described if case.is_described else {}),
    )
    options = found.parse_options(case.options)
    plan = found.plan(spec, options)
    order = [case.axes.index(axis) for axis in plan.full.axes if axis in case.axes]
    moved = array.transpose(order).reshape(plan.full.shape)
    folder, disk = parent / f"cells{found.suffix}", disk or UnforcedDisk()
    return Made(found, case, folder, options, plan, moved, open_publisher(found, folder, plan, options, disk), disk)
