"""The layout of a format whose chunks become readable a row at a time, up to a watermark.

Chunks that are written in place may be half old and half new, and a format may state how much of each part of a member
is there. A row is all chunks of one part of a member, at one level and at one place along the depth.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from acqstream.arrays.array_spec import Position
from acqstream.formats.chunk_layout import ChunkLayout

Rows = Mapping[tuple[int, int], int]
"""By (level, part) of a member: how many rows, from the first on, are complete or were never begun."""

Extent = tuple[int, int, int]
"""(depth, y, x) in items of the full resolution."""

NOTHING: Extent = (0, 0, 0)


class ChunkPlace(NamedTuple):
    """Place of a chunk: its member, the part of the member, its row and the (y, x) of its column."""

    member: Position
    part: int
    row: int
    column: tuple[int, int]


class WatermarkLayout(ChunkLayout):
    """A ChunkLayout with two watermarks for each member: `progress` for our readers, `listing` for other software."""

    @abstractmethod
    def place(self, position: Position) -> ChunkPlace:
        """The place of a chunk."""

    @abstractmethod
    def row_chunks(self, level: int) -> int:
        """Number of chunks in a row of a level. 1 where the picture has no known end: there a row is readable as soon
        as one of its chunks is stored.
        """

    @abstractmethod
    def part_document(self, level: int, member: Position, part: int) -> tuple[str, bytes]:
        """Key and content of the document that is put before the first chunk of a part at this level."""

    @abstractmethod
    def progress_key(self, member: Position) -> str:
        """Key of the document that says which rows are there; it is removed when the container is complete."""

    @abstractmethod
    def progress(self, rows: Rows) -> bytes:
        """The document at `progress_key`."""

    @abstractmethod
    def parse_progress(self, content: bytes, where: str) -> Rows:
        """The inverse of `progress`. Raises CorruptDataset that names `where`."""

    @abstractmethod
    def all_rows(self) -> Rows:
        """The complete rows of a member."""

    @abstractmethod
    def visible_members(self) -> Sequence[Position]:
        """Members that exist in every level."""

    @abstractmethod
    def visible_extents(self, member: Position, rows: Rows) -> tuple[Extent, ...]:
        """The extent of each part that is stored in every level, as `listing` states it, with these rows.

        NOTHING for a part of which nothing is stored. Empty for a member outside the shape.
        """

    @abstractmethod
    def listing_key(self, member: Position) -> str:
        """Key of the document that describes a member to other software."""

    @abstractmethod
    def listing(self, member: Position, extents: Sequence[Extent], container_name: str) -> bytes:
        """The document at `listing_key`, for `visible_extents`."""
