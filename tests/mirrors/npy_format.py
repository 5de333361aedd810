"""The smallest chunk format: a file of numpy's for each chunk, and one JSON file. An example for other packages."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import ConfigError, CorruptDataset, DatasetExists, FileMissing
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.formats.chunk_layout import ChunkLayout, Encoded, Plan
from acqstream.formats.chunk_reader import open_layout
from acqstream.formats.container_check import check_layout
from acqstream.storage.stores.store import Store

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


class NpyLayout(ChunkLayout):
    """Where chunks lie, how they become bytes, and the document that describes them."""

    def key(self, level: int, position: Position) -> str:
        return ".".join(map(str, position)) + ".npy"

    def parse_key(self, key: str) -> tuple[int, Position] | None:
        found = re.fullmatch(r"((0|[1-9]\d*)(\.(0|[1-9]\d*))*)\.npy", key)
        return None if found is None else (0, tuple(map(int, found[1].split("."))))

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        buffer = io.BytesIO()
        np.save(buffer, chunk.astype(chunk.dtype.newbyteorder("<")))
        return [buffer.getvalue()]

    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        try:
            chunk: NDArray[np.generic] = np.load(io.BytesIO(data))
        except (ValueError, EOFError) as error:
            raise CorruptDataset(str(error), path=where) from error
        return chunk.astype(self.plan.full.dtype)

    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        spec = self.plan.full
        note = {"axes": spec.axes, "shape": spec.shape, "chunk": spec.chunk_shape, "dtype": spec.dtype.str}
        return {NOTE: json.dumps({**note, "complete": complete}).encode()}

    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        (found,), complete = parse_note(documents[NOTE])
        (own,) = self.plan.levels
        if (found.axes, found.chunk_shape, found.dtype) != (own.axes, own.chunk_shape, own.dtype):
            raise DatasetExists(f"{where} holds another array")
        shape = found.shape if complete else tuple(map(max, found.shape, own.shape))
        return self.with_levels([replace(own, shape=shape)]), complete


def parse_note(content: bytes) -> tuple[tuple[ArraySpec, ...], bool]:
    """The levels in the document, and whether they are complete."""
    note = json.loads(content)
    spec = ArraySpec(
        axes=tuple(note["axes"]),
        shape=tuple(note["shape"]),
        dtype=np.dtype(note["dtype"]),
        chunk_shape=tuple(note["chunk"]),
    )
    return (spec,), note["complete"]


def read_layout(store: Store) -> tuple[NpyLayout, bool]:
    """The layout of an existing container."""
    content = store.get(NOTE)
    if content is None:
        raise FileMissing(FileNotFoundError(), f"{store.url}/{NOTE}", "read")
    levels, complete = parse_note(content)
    return NpyLayout(Plan(levels=levels)), complete


FORMAT: ChunkFormat[int] = ChunkFormat(
    name="npy",
    looked_for=NOTE,
    detect=lambda path: (path / NOTE).is_object(),
    folder=lambda path: path,
    open=lambda path: open_layout(path, read_layout),
    parse_options=parse_options,
    plan=plan,
    layout=lambda plan, _: NpyLayout(plan),
    check=lambda path, report: check_layout(path, read_layout, report),
)
