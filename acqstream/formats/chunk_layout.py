"""The pure part of a chunk format: how an array is cut, which documents describe it, and how a chunk becomes bytes.

A layout opens no file and makes no system call. Keys are names below the container, "/" between their parts. A key that
begins with `BESIDE` lies beside the container. The same layout serves a mirror on a disk, an object store and a viewer.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.storage.files.disk import Run
from acqstream.storage.stores.shard_index import ShardIndex
from acqstream.storage.stores.store import Capability

Encoded = Sequence[bytes | memoryview]
"""The bytes of a chunk in pieces, in their order."""

BESIDE = "../"


class InPlace(NamedTuple):
    """Arguments of `Store.write`: runs of bytes, and how a missing object begins, how long it is and how it ends."""

    runs: Iterable[Run]
    head: Encoded
    length: int
    tail: Encoded = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The levels of an array, the full resolution first, and its members.

    A member is one of several arrays that a container holds in place of one: a position along `member_axes` each.
    name: the dataset's, for viewers.
    """

    levels: tuple[ArraySpec, ...]
    member_axes: tuple[str, ...] = ()
    name: str = "image"

    @property
    def full(self) -> ArraySpec:
        return self.levels[0]

    def with_levels(self, levels: Sequence[ArraySpec]) -> Plan:
        return replace(self, levels=tuple(levels))

    def resumed(self, levels: Sequence[ArraySpec], *, complete: bool) -> Plan:
        """The plan with the shapes of an existing container, which may be behind this plan unless it was complete."""
        pairs = zip(self.levels, levels, strict=True)
        return self.with_shapes(
            [found.shape if complete else tuple(map(max, found.shape, own.shape)) for own, found in pairs]
        )

    def with_shapes(self, shapes: Sequence[tuple[int, ...]]) -> Plan:
        return self.with_levels([replace(spec, shape=shape) for spec, shape in zip(self.levels, shapes, strict=True)])

    def sizes(self) -> tuple[int, int]:
        """Bytes of all items, and of all shards as if they were full. A size that is not known yet is that of one."""
        items = shards = 0
        for spec in self.levels:
            pairs = [*zip(spec.shape, spec.shard_shape or spec.chunk_shape, strict=True)]
            items += math.prod(size or side for size, side in pairs) * spec.dtype.itemsize
            shards += math.prod(-(-size // side) * side or side for size, side in pairs) * spec.dtype.itemsize
        return items, shards

    def member(self, position: Sequence[int]) -> Position:
        """The member that an item, or a chunk, at this position belongs to."""
        axes = self.full.axes
        return tuple(position[axes.index(name)] for name in self.member_axes)

    def member_levels(self, member: Position) -> list[ArraySpec]:
        """The levels with distances and place of a member."""
        at = dict(zip(self.member_axes, member, strict=True))
        return [level.of_image(at) for level in self.levels]

    def members(self) -> Iterator[Position]:
        """All members inside the shape of the full resolution."""
        return itertools.product(*map(range, self.member(self.full.shape)))


@dataclass(frozen=True)
class ChunkLayout(ABC):
    """The layout of one container: where its chunks lie, how they become bytes, and the documents that describe it.

    It is immutable; methods may be called from any thread. Documents come in the order in which they must be put. They
    describe the shapes of `plan`, so they are put after the chunks inside these shapes; `with_levels` gives the layout
    of a container that has grown. The defaults are those of a container with one array and one document.
    """

    plan: Plan

    byte_order: ClassVar[Literal["<", ">"]] = "<"
    """Byte order of the items in the files: chunks in this order need no copy."""

    head_bytes: ClassVar[int] = 0
    """Bytes before the first item in a file of raw chunks: memory as far behind a boundary is copied faster."""

    announces_indices: ClassVar[bool] = False
    """A mirror's shape names no index of the axis that it grows along before the frames of this index are stored."""

    names_picture: ClassVar[bool] = False
    """Names or bytes of objects depend on the size of y and x, so a picture is announced as a whole."""

    @property
    def needs_distances(self) -> bool:
        """The files state a distance along z, y and x even where none is known; users are warned then."""
        return False

    def max_encode_memory(self, spec: ArraySpec) -> int:
        """Bytes that encoding a chunk of this level takes at most, with the result and without the chunk."""
        return 2 * spec.chunk_bytes

    @property
    def needs(self) -> Capability:
        """The needs of the layout for its store. "append": many chunks share an object, a shard."""
        return "whole"

    @property
    def joined_layers(self) -> int:
        """How many chunks along z make longer runs of a file together, as their bytes alternate in it."""
        return 1

    @property
    def temporary_folder(self) -> str:
        """The folder of the container for files that a store has not completed; "" for the folder of each file."""
        return ""

    def with_levels(self, levels: Sequence[ArraySpec]) -> Self:
        """The same container with other shapes, space, labels or attributes."""
        return replace(self, plan=self.plan.with_levels(levels))

    def with_members(self, members: Collection[Position]) -> Self:
        """The same container; the documents of these members exist."""
        del members
        return self

    @abstractmethod
    def key(self, level: int, position: Position) -> str:
        """The object that holds the chunk at this position."""

    @abstractmethod
    def parse_key(self, key: str) -> tuple[int, Position] | None:
        """The inverse of `key`; None if the key is not that of a chunk."""

    @abstractmethod
    def encode(self, level: int, position: Position, chunk: NDArray[np.generic]) -> Encoded:
        """The bytes of a chunk.

        chunk has the level's memory_shape, in C order, in the byte order of this machine or of the format; items
        beyond the array are zeros. The result may refer to the memory of `chunk`, which stays valid until it is stored.
        Raises ValueError for another shape.
        """

    def check_chunk(self, level: int, position: Position, chunk: NDArray[np.generic]) -> None:
        """Raise ValueError for a chunk of another shape than the level's memory_shape."""
        expected = self.plan.levels[level].memory_shape
        if chunk.shape != expected:
            raise ValueError(f"a chunk of shape {chunk.shape} at {position} of level {level}, not {expected}")

    def in_place(self, level: int, position: Position, encoded: Encoded) -> InPlace:
        """Write an encoded chunk into the object at its `key`, for a layout that needs "in_place"."""
        raise NotImplementedError(f"{type(self).__name__} puts complete objects")

    def slot(self, level: int, position: Position) -> int:
        """The slot of a chunk in the shard at its `key`, for a layout that needs "append"."""
        raise NotImplementedError(f"{type(self).__name__} has no shards")

    def shard_index(self, key: str) -> ShardIndex:
        """The index of the shard at a key."""
        raise NotImplementedError(f"{type(self).__name__} has no shards")

    def shard_level(self, key: str) -> int | None:
        """The level of the shard at a key; None if the key is not that of a shard."""
        raise NotImplementedError(f"{type(self).__name__} has no shards")

    def slot_position(self, key: str, slot: int) -> Position | None:
        """The inverse of `key` and `slot`; None for a slot without a chunk in the grid."""
        raise NotImplementedError(f"{type(self).__name__} has no shards")

    def encode_present(
        self, level: int, position: Position, chunk: NDArray[np.generic], present: NDArray[np.bool_]
    ) -> Encoded:
        """As `encode`. present: the items that frames have, of one item along y, x and c; chunk has zeros elsewhere.

        A layout that leaves out zeros overrides it: a black frame is stored, so that it is not missing.
        """
        del present
        return self.encode(level, position, chunk)

    @abstractmethod
    def decode(self, level: int, position: Position, data: bytes, where: str) -> NDArray[np.generic]:
        """The inverse of `encode`: a new array of the level's memory_shape.

        where names the object in errors. Raises CorruptDataset, UnsupportedFeature.
        """

    def raw_head(self, level: int, position: Position) -> bytes | None:
        """The bytes before the items of an object that is a header and then the items of its chunk as they are.

        They are in C order, in the byte order of the format. None for an object that is encoded in another way, has
        several chunks, or is cut at the end of the array.
        """
        del level, position
        return None

    def member_of(self, key: str) -> Position | None:
        """The member that a document at this key would belong to; None for keys of no member."""
        del key
        return None if self.plan.member_axes else ()

    def max_chunk_bytes(self, level: int) -> int | None:
        """More than an encoded chunk of this level takes: readers refuse what is longer. None: not bounded."""
        del level
        return None

    @abstractmethod
    def documents(self, *, complete: bool) -> Mapping[str, bytes]:
        """Documents of the container; complete: nothing more will come."""

    def resume_keys(self) -> Sequence[str]:
        """Documents of an earlier container that `resume` reads; the first one tells whether it exists."""
        return [*self.documents(complete=False)]

    @abstractmethod
    def resume(self, documents: Mapping[str, bytes], where: str) -> tuple[Self, bool]:
        """The layout of an earlier container with its shapes, and whether it was complete.

        documents has those of `resume_keys` that exist; where names the container in errors. Raises DatasetExists if it
        is not ours, or was laid out in another way; CorruptDataset.
        """

    def check_growth(self, shape: Sequence[int]) -> None:  # noqa: B027 - most layouts can grow to any shape
        """Raise ConfigError if level 0 cannot grow to this shape."""

    def member_documents(self, member: Position) -> Mapping[str, bytes]:
        """Documents that must exist before the first chunk of a member; the last one shows that it exists."""
        del member
        return {}

    @property
    def member_version(self) -> Hashable:
        """While it is the same, the documents of every member are, too."""
        return None

    def shown_documents(
        self, before: ChunkLayout | None, container_name: str
    ) -> Iterator[tuple[Position, Mapping[str, bytes]]]:
        """Documents of members inside the shape that show them to other software, where they differ from `before`.

        A member that was shown stays so: its frames were stored before.
        """
        del before, container_name
        return iter(())

    def listings(self, container_name: str) -> Mapping[str, bytes]:
        """Documents that list all members, for viewers that need this; they may be late."""
        del container_name
        return {}
