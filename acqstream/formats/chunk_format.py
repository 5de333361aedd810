"""The registry entry of a chunk format, and the reader of one of its levels.

A chunk format (N5, WKW, ...) keeps arrays cut into chunks, in one or more resolution levels. It defines the layout of a
container and reads one. Collecting frames into chunks, levels, threads, memory, restarting and the life of a container
are written once for all formats, in `acqstream.mirrors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_layout import ChunkLayout, Plan
from acqstream.storage.stores.data_path import DataPath


class ChunkArrayReader(Protocol):
    """Reads one level of an array, finished or growing; from any thread."""

    @property
    def path(self) -> DataPath: ...
    @property
    def spec(self) -> ArraySpec:
        """As last read: at opening or by `refresh`. chunk_shape is the unit of `read_chunk`."""

    @property
    def complete(self) -> bool:
        """False while its writer, one of ours, has noted that chunks may come. As last read."""

    def read_chunk(self, position: Position) -> NDArray[np.generic] | None:
        """The chunk, a new array of dtype `spec.dtype`, in C order, cropped to the array; None if it is missing.

        Raises CorruptDataset with the file, the offset and what was expected, UnsupportedFeature, StorageError. That a
        chunk is not there is never remembered.
        """

    def stored(self) -> Iterator[Position]:
        """Positions in the grid of all stored chunks, without reading them; in any order."""

    def refresh(self) -> None:
        """Read the metadata again: the array may have grown."""

    def close(self) -> None: ...


class SpaceWriter(Protocol):
    """Announces distances, places and values of an array."""

    def set_space(self, levels: Sequence[ArraySpec]) -> None: ...


OptionsT = TypeVar("OptionsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFormat(Generic[OptionsT]):
    """Registry entry of a chunk format. ChunkLayout has what a mirror needs besides.

    suffix makes the name of a mirror's folder beside the dataset. detect, looked_for and folder are as in NDTiffFormat.
    byte_order is that of the items in the files: chunks in this order need no copy. head_bytes: before the first item
    in a file of raw chunks. Memory that lies as far behind a boundary is copied to the file faster.
    grows: the shape need not be known beforehand.

    open returns the readers of all levels, the full resolution first. parse_options takes what the user wrote
    (`mirrors=[{"format": "n5", ...}]` without "format") and raises ConfigError. plan cuts an array (a spec without
    chunk_shape) into chunks and chooses the levels; its axes may come in another order, and one of size 1 may be added.
    A size of 0 is not known yet. It raises ConfigError for an array that the format cannot keep. layout is that of a
    new container. max_encode_memory is how many bytes encoding a chunk of a level takes at most, with the result and
    without the chunk. check reads all chunks and reports what breaks the format. needs_distances: the files state a
    distance along z, y and x even where none is known; users are warned then. announces_indices: a mirror's shape
    names no index of the axis that it grows along before its frames are stored. names_picture: names or bytes of
    objects depend on the size of y and x, so a picture is announced as a whole. grows_picture: a container can grow
    along y and x. is_lossy: chunks give back other pixels than they got. names_inside: paths inside a container need
    not exist as files or folders; `detect` gets them, too.
    is_by_reference: the pixels stay in the stacks, so a view of its own makes the mirror. options_of_copies: of a copy
    of an array, unless the user names others. resume_options: those of an existing container, where the user left
    them open.
    """

    name: str
    suffix: str
    looked_for: str
    byte_order: Literal["<", ">"]
    head_bytes: int = 0
    grows: bool
    detect: Callable[[DataPath], bool]
    folder: Callable[[DataPath], DataPath]
    open: Callable[[DataPath], Sequence[ChunkArrayReader]]
    parse_options: Callable[[Mapping[str, object]], OptionsT]
    plan: Callable[[ArraySpec, OptionsT], Plan]
    layout: Callable[[Plan, OptionsT], ChunkLayout]
    max_encode_memory: Callable[[ArraySpec, OptionsT], int]
    check: Callable[[DataPath, CheckReport], ChunkCounts]
    needs_distances: Callable[[OptionsT], bool] = lambda _options: False
    announces_indices: bool = False
    names_picture: bool = False
    grows_picture: bool = False
    is_lossy: Callable[[OptionsT], bool] = lambda _options: False
    names_inside: bool = False
    is_by_reference: Callable[[OptionsT], bool] = lambda _options: False
    options_of_copies: Mapping[str, object] = field(default_factory=dict)
    resume_options: Callable[[OptionsT, DataPath], OptionsT] = lambda options, _container: options


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """Counts of a check: arrays (all levels), chunks present and missing, and bytes decoded."""

    arrays: int
    chunks: int
    missing: int
    payload_bytes: int
