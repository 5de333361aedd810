"""What a chunk format gives to the writing side and to the reading side.

A chunk format (N5, WKW, ...) keeps arrays cut into chunks, in one or more resolution levels. Collecting frames into
chunks, resolution levels, threads, memory and restarting are not its business: it says how the array is cut, how a
chunk becomes bytes and where they go, and how to read them. What a chunk is, the format decides: the unit that it
writes at once, for a format with shards the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.base import CheckReport
from acqstream.model.finite_number import finite_number
from acqstream.model.frame_space import Place, StageAxes
from acqstream.storage.disk import Disk

Encoded = Sequence[bytes | memoryview]
"""The bytes of a chunk, to be written one behind the other."""


def read_places(note: Mapping[str, Any]) -> tuple[tuple[Place | None, ...], StageAxes]:
    """`places` and `stage_axes` of a note in JSON (keys places_um, stage_axes); what is damaged is left out."""
    given, axes = note.get("places_um"), note.get("stage_axes")
    places: list[Place | None] = []
    for entry in given if isinstance(given, list) else []:
        numbers = [finite_number(value) for value in entry] if isinstance(entry, list) else []
        z, y, x = numbers if len(numbers) == 3 else (None, None, None)
        places.append(None if z is None or y is None or x is None else (z, y, x))
    return tuple(places), "affine" if axes == "affine" else "parallel" if axes == "parallel" else ""


class ChunkArrayReader(Protocol):
    """Reads one level of an array, finished or growing; from any thread."""

    @property
    def path(self) -> Path: ...
    @property
    def spec(self) -> ArraySpec:
        """As last read: at opening or by `refresh`. chunk_shape is the unit of `read_chunk`."""

    @property
    def complete(self) -> bool:
        """False while its writer, one of ours, has noted that chunks may come. As last read."""

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """The chunk, a new array of dtype `spec.dtype`, in C order, cropped to the array; None: it is not there.

        Raises CorruptDataset with the file, the offset and what was expected, UnsupportedFeature, StorageError. That a
        chunk is not there is never remembered.
        """

    def stored(self) -> Iterator[Position]:
        """Positions inside the grid of all chunks that are there, without reading them; in any order."""

    def refresh(self) -> None:
        """Read the metadata again: the array may have grown."""

    def close(self) -> None: ...


class ChunkWriter(Protocol):
    """Writes chunks of the levels that it was created with. One per container.

    All of it may be done again with the same result: a restarted writer repeats what it is not sure of. Several
    processes may have a writer for the same levels at a time: each stores other chunks, one alone grows and finishes.
    """

    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """The bytes of a chunk. Pure: from any thread, several at a time; compression is here.

        chunk has the level's memory_shape, in C order, in the byte order of this machine or of the format; what lies
        beyond the array is zeros. The result may refer to the memory of `chunk`, which stays as it is until `store`
        has returned.
        """

    def store(self, level: int, position: Position, encoded: Encoded) -> None:
        """Write a chunk: readers see it whole or not at all, also after a power cut. From any thread.

        A format that writes in place shows it with the other chunks of its planes, and after the next `sync`.
        It may lie beyond the shape: readers look for it after `grow`. Raises StorageError.
        """

    def grow(self, level: int, shape: tuple[int, ...]) -> None:
        """The level now has this shape. After the chunks that it announces are stored.

        Nothing shrinks: a restarted writer may know of less than is there. Raises ConfigError for an axis that cannot
        grow.
        """

    def sync(self) -> None:
        """When this returns, all that was stored before survives a power cut."""

    def finish(self, levels: Sequence[ArraySpec]) -> None:
        """Note the final shapes (which may be less than before), space and attributes; nothing more will come."""

    def close(self) -> None:
        """Give up the files; without `finish` the array stays unfinished and can be gone on with."""


@runtime_checkable
class SpaceWriter(Protocol):
    """A ChunkWriter that can take the space of its levels before `finish`: frames show it as they come."""

    def set_space(self, levels: Sequence[ArraySpec]) -> None:
        """Note scale, units, translation, places and stage_axes of these levels; all else stays."""


OptionsT = TypeVar("OptionsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFormat(Generic[OptionsT]):
    """Registry entry of a chunk format.

    suffix makes the name of a mirror's folder beside the dataset. detect, looked_for and folder are as in FrameFormat.
    byte_order is that of the items in the files: who hands over chunks in it saves a copy. grows: the shape need not
    be known beforehand.

    open returns the readers of all levels, the full resolution first. parse_options takes what the user wrote
    (`mirrors=[{"format": "n5", ...}]` without "format") and raises ConfigError. plan cuts an array (a spec without
    chunk_shape) into chunks and says which levels there will be, level 0 first; its axes may come in another order, and
    there may be one of size 1 more. A size of 0 is not known yet. It raises ConfigError for an array that the format
    cannot hold. create makes the container, or goes on with the one that is there; it raises DatasetExists
    if that holds something else. encode_bytes is the most memory that `encode` takes for a chunk of this level, its
    result included and the chunk not. check reads all chunks and reports whatever breaks the format. file_shape is how
    much of a level lies in one file (None: a chunk): two processes never write chunks of the same file.
    needs_distances: the files state a distance along z, y and x even where none is known: users are warned then.
    """

    name: str
    suffix: str
    looked_for: str
    byte_order: Literal["<", ">"]
    grows: bool
    detect: Callable[[Path], bool]
    folder: Callable[[Path], Path]
    open: Callable[[Path], Sequence[ChunkArrayReader]]
    parse_options: Callable[[Mapping[str, object]], OptionsT]
    plan: Callable[[ArraySpec, OptionsT], tuple[ArraySpec, ...]]
    encode_bytes: Callable[[ArraySpec, OptionsT], int]
    create: Callable[[Path, Sequence[ArraySpec], OptionsT, Disk], ChunkWriter]
    check: Callable[[Path, CheckReport], ChunkCounts]
    file_shape: Callable[[ArraySpec, OptionsT], tuple[int, ...]] | None = None
    needs_distances: Callable[[OptionsT], bool] = lambda _options: False


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """What a check has read: arrays (all levels), chunks that were there and that were not, and bytes decoded."""

    arrays: int
    chunks: int
    missing: int
    payload_bytes: int
