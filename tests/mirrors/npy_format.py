"""The smallest chunk format: a file of numpy's for each chunk, and one JSON file. An example for other packages."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, CorruptDataset, DatasetExists
from acqstream.formats.base import CheckReport
from acqstream.formats.chunk_format import ChunkCounts, ChunkFormat
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, Plan

NOTE = "npy-array.json"


def parse_options(given: Mapping[str, object]) -> int:
    """How many z a chunk has."""
    depth = given.get("depth", 4)
    if given.keys() - {"depth"} or not isinstance(depth, int) or depth < 1:
        raise ConfigError(f"npy has one option, depth, a positive integer; not {dict(given)!r:.80}")
    return depth


def plan(array: ArraySpec, depth: int) -> Plan:
    """One level, as it is, in chunks of whole planes."""
    sizes = {name: size for name, size in zip(array.axes, array.shape, strict=True) if name in ("y", "x", "c")}
    shape = tuple(sizes.get(name, depth if name == "z" else 1) for name in array.axes)
    return Plan(levels=(replace(array, chunk_shape=shape),))


@dataclass(frozen=True)
class NpyLayout(ChunkLayout):
    """A file for each chunk, and one document."""

    def key(self, level: int, position: Position) -> str:
        return ".".join(map(str, position)) + ".npy"

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        found = re.fullmatch(r"((0|[1-9]\d*)(\.(0|[1-9]\d*))*)\.npy", key)
        return None if found is None else (0, tuple(map(int, found[1].split("."))))

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        buffer = io.BytesIO()
        np.save(buffer, chunk.astype(chunk.dtype.newbyteorder("<")))
        return [buffer.getvalue()]

    def decode(self, level: int, position: Position, data: bytes) -> NDArray[np.generic]:
        return decode(data, self.key(level, position)).astype(self.plan.full.dtype)

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        spec = self.plan.full
        note = {"axes": spec.axes, "shape": spec.shape, "chunk": spec.chunk_shape, "dtype": spec.dtype.str}
        return {NOTE: json.dumps({**note, "complete": complete}).encode()}

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        note, spec = json.loads(documents[NOTE]), self.plan.full
        if (note["axes"], note["chunk"], note["dtype"]) != ([*spec.axes], [*spec.chunk_shape], spec.dtype.str):
            raise DatasetExists(f"{where} holds another array")
        shape = tuple(note["shape"] if note["complete"] else map(max, note["shape"], spec.shape))
        return replace(self, plan=self.plan.with_shapes([shape])), note["complete"]


def decode(data: bytes, where: str) -> NDArray[np.generic]:
    try:
        chunk: NDArray[np.generic] = np.load(io.BytesIO(data))
    except (ValueError, EOFError) as error:
        raise CorruptDataset(str(error), path=where) from error
    return chunk


class NpyReader:
    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.refresh()

    def refresh(self) -> None:
        note = json.loads((self.path / NOTE).read_bytes())
        self.complete = bool(note["complete"])
        self.spec = ArraySpec(
            axes=tuple(note["axes"]),
            shape=tuple(note["shape"]),
            dtype=np.dtype(note["dtype"]),
            chunk_shape=tuple(note["chunk"]),
        )

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        path = self.path / (".".join(map(str, position)) + ".npy")
        try:
            chunk = decode(path.read_bytes(), str(path)).astype(self.spec.dtype)
        except FileNotFoundError:
            return None
        return chunk[tuple(slice(0, part.stop - part.start) for part in self.spec.region(position))]

    def stored(self) -> Iterator[Position]:
        for path in self.path.glob("*.npy"):
            yield tuple(map(int, path.name.removesuffix(".npy").split(".")))

    def close(self) -> None:
        pass


def check(folder: Path, report: CheckReport) -> ChunkCounts:
    """Read every chunk."""
    reader, count, size = NpyReader(folder), 0, 0
    for position in reader.stored():
        try:
            chunk = reader.read_chunk(position)
        except CorruptDataset as error:
            report.add_error(error)
            continue
        count, size = count + 1, size + (0 if chunk is None else chunk.nbytes)
    return ChunkCounts(1, count, int(np.prod(reader.spec.grid_shape)) - count, size)


FORMAT: ChunkFormat[int] = ChunkFormat(
    name="npy",
    suffix=".npys",
    looked_for=NOTE,
    byte_order="<",
    grows=True,
    detect=lambda path: (path / NOTE).is_file(),
    folder=lambda path: path,
    open=lambda path: [NpyReader(path)],
    parse_options=parse_options,
    plan=plan,
    layout=lambda plan, _: NpyLayout(plan),
    max_encode_memory=lambda spec, _: 2 * spec.chunk_bytes,
    check=check,
)
