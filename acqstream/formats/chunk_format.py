"""The registry entry of a chunk format.

A chunk format (N5, WKW, ...) keeps arrays cut into chunks, in one or more resolution levels. It defines the layout of a
container and reads one. Collecting frames into chunks, levels, threads, memory, restarting and the life of a container
are written once for all formats, in `acqstream.mirrors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from acqstream.arrays.array_spec import ArraySpec
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_layout import ChunkLayout, Plan
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.storage.stores.data_path import DataPath


class SpaceWriter(Protocol):
    """Announces distances, places and values of an array."""

    def set_space(self, levels: Sequence[ArraySpec]) -> None: ...


OptionsT = TypeVar("OptionsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFormat(Generic[OptionsT]):
    """Registry entry of a chunk format. ChunkLayout has what a mirror needs besides.

    detect, looked_for and folder are as in NDTiffFormat. open returns the readers of all levels, the full resolution
    first. parse_options takes what the user wrote (`mirrors=[{"format": "n5", ...}]` without "format") and raises
    ConfigError. plan cuts an array (a spec without chunk_shape) into chunks and chooses the levels; its axes may come
    in another order, and one of size 1 may be added. A size of 0 is not known yet. It raises ConfigError for an array
    that the format cannot keep. layout is that of a new container. check reads all chunks and reports what breaks the
    format.

    grows_picture: a container can grow along y and x. is_lossy: chunks give back other pixels than they got.
    names_inside: paths inside a container need not exist as files or folders; `detect` gets them, too.
    is_by_reference: the pixels stay in the stacks, so a view of its own makes the mirror. options_of_copies: of a copy
    of an array, unless the user names others.
    """

    name: str
    looked_for: str
    detect: Callable[[DataPath], bool]
    folder: Callable[[DataPath], DataPath]
    open: Callable[[DataPath], Sequence[ChunkReader]]
    parse_options: Callable[[Mapping[str, object]], OptionsT]
    plan: Callable[[ArraySpec, OptionsT], Plan]
    layout: Callable[[Plan, OptionsT], ChunkLayout]
    check: Callable[[DataPath, CheckReport], ChunkCounts]
    grows_picture: bool = False
    is_lossy: Callable[[OptionsT], bool] = lambda _options: False
    names_inside: bool = False
    is_by_reference: Callable[[OptionsT], bool] = lambda _options: False
    options_of_copies: Mapping[str, object] = field(default_factory=dict)

    @property
    def suffix(self) -> str:
        """The end of the name of a mirror's folder, beside its dataset."""
        return "." + self.name.replace("-", ".")


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """Counts of a check: arrays (all levels), chunks present and missing, and bytes decoded."""

    arrays: int
    chunks: int
    missing: int
    payload_bytes: int
