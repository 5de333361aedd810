"""The smallest chunk format: a file of numpy's for each chunk, and one JSON file. An example for other packages."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, CorruptDataset
from acqstream.formats.base import CheckReport
from acqstream.formats.chunk_format import ChunkCounts, ChunkFormat, Encoded
from acqstream.storage.disk import Disk
from acqstream.storage.folder_tree import FolderTree

NOTE = "npy-array.json"


def parse_options(given: Mapping[str, object]) -> int:
    """How many z a chunk has."""
    depth = given.get("depth", 4)
    if given.keys() - {"depth"} or not isinstance(depth, int) or depth < 1:
        raise ConfigError(f"npy has one option, depth, a positive integer; not {dict(given)!r:.80}")
    return depth


def plan(array: ArraySpec, depth: int) -> tuple[ArraySpec, ...]:
    """One level, as it is, in chunks of whole planes."""
    sizes = {name: size for name, size in zip(array.axes, array.shape, strict=True) if name in ("y", "x", "c")}
    return (replace(array, chunk_shape=tuple(sizes.get(name, depth if name == "z" else 1) for name in array.axes)),)


class NpyWriter:
    def __init__(self, folder: Path, levels: Sequence[ArraySpec], disk: Disk) -> None:
        self._tree = FolderTree(str(folder), disk)
        self._spec = levels[0]
        self._note(complete=False)

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        del level, position
        buffer = io.BytesIO()
        np.save(buffer, chunk)
        return [buffer.getvalue()]

    def store(self, level: int, position: Position, encoded: Encoded) -> None:
        del level
        self._tree.put(self._tree.folder(()), ".".join(map(str, position)) + ".npy", encoded)

    def grow(self, level: int, shape: tuple[int, ...]) -> None:
        del level
        self._spec = replace(self._spec, shape=shape)
        self._note(complete=False)

    def sync(self) -> None:
        self._tree.sync()

    def finish(self, levels: Sequence[ArraySpec]) -> None:
        self._spec = levels[0]
        self._note(complete=True)
        self.sync()

    def close(self) -> None:
        pass

    def _note(self, *, complete: bool) -> None:
        spec = self._spec
        note = {"axes": spec.axes, "shape": spec.shape, "chunk": spec.chunk_shape, "dtype": spec.dtype.str}
        content = json.dumps({**note, "complete": complete}).encode()
        self._tree.put(self._tree.folder(()), NOTE, [content])


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
            chunk: NDArray[np.generic] = np.load(path).astype(self.spec.dtype)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CorruptDataset(str(error), path=str(path)) from error
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


def make(folder: Path, levels: Sequence[ArraySpec], options: int, disk: Disk) -> Any:
    del options
    return NpyWriter(folder, levels, disk)


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
    encode_bytes=lambda spec, _: 2 * spec.chunk_bytes,
    create=make,
    check=check,
)
