"""Reads one level of an NDTiff dataset, finished or growing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.axis_index import KeyColumn
from acqstream.errors import DatasetError, FrameNotFound, StorageError
from acqstream.formats.ndtiff.completion import (
    LevelsFile,
    LevelsState,
    StateFile,
    declared_axes,
    declared_order,
    read_request,
)
from acqstream.formats.ndtiff.folders import (
    find_folders,
    has_ndtiff_mark,
    level_name,
    level_of,
    overlap_in,
    read_display_settings,
    read_notes,
    stack_paths,
)
from acqstream.formats.ndtiff.frame_lookup import RowHistory, RowLookup
from acqstream.formats.ndtiff.frame_table import FrameTable
from acqstream.formats.ndtiff.index_block import MISSING
from acqstream.formats.ndtiff.index_entries import INDEX_NAME, plain_name
from acqstream.formats.ndtiff.index_file import IndexFile
from acqstream.formats.ndtiff.index_maps import IndexMaps
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES, StoredFrame, is_raw, payload_bytes
from acqstream.formats.ndtiff.read_ahead import PIECE_BYTES, piece_memory, read_ahead, read_together
from acqstream.formats.ndtiff.stack_files import FrameBytes, StackFiles
from acqstream.formats.ndtiff.stack_header import ByteOrder, parse_json_object
from acqstream.model.axes import Axes, AxisValue
from acqstream.model.run_note import RunNote
from acqstream.model.state import AcquisitionState
from acqstream.storage.files.boundary import Boundary, requested_links
from acqstream.storage.files.read_file import BlockMemory, ReadFile

logger = logging.getLogger("acqstream.reader")

_MUCH_BYTES = 2**28  # of one array
_FEW_BYTES = 2**20  # read one by one: threads would take longer to start
_FIRST_KEYS, _MAX_KEYS = 16, 4096  # made at once: the first one comes soon


def open_readers(path: Path) -> list[NDTiffReader]:
    """Readers of all levels of the dataset at `path`, full resolution first. Errors as `find_folders`."""
    folders = find_folders(path)
    readers: list[NDTiffReader] = []
    try:
        for folder in folders.levels:
            with _boundary_of(folders.container).inside():
                index = IndexMaps(folder, folders.container) if folders.is_old else IndexFile(folder)
            readers.append(NDTiffReader(folder, folders.container, index))
    except BaseException:
        for reader in readers:
            reader.close()
        raise
    return readers


def _boundary_of(container: Path) -> Boundary:
    """Around a dataset that `acqstream.open` opens; `verify` and the views go by checksums, and note links."""
    return Boundary(container, follows=requested_links() is not False)


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """Entries of an index, for views that take frames without their pixels.

    numbers have dtype NUMBERS; stacks are the position in stack_names of each frame's file.
    """

    numbers: NDArray[np.void]
    stacks: NDArray[np.int32]
    stack_names: Sequence[str]

    def are_like(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
        """Entries whose frames have this shape and dtype."""
        sides: NDArray[np.bool_] = (self.numbers["height"] == shape[0]) & (self.numbers["width"] == shape[1])
        kind = dtype, 3 if len(shape) > 2 else 1
        alike = [code for code, one in PIXEL_TYPES.items() if (one.numpy_dtype, one.samples) == kind]
        sides &= np.isin(self.numbers["pixel_type"], alike)
        return sides

    @property
    def is_plain(self) -> NDArray[np.bool_]:
        """Entries whose pixels are stored uncompressed."""
        return is_raw(self.numbers["pixel_compression"])

    @property
    def payload_bytes(self) -> NDArray[np.int64]:
        """Bytes of the pixels of each frame; -1 for an unknown pixel type."""
        return payload_bytes(self.numbers)


class NDTiffReader:
    """One folder with stack files, and `NDTiff.index` or whatever else tells of its frames. Thread safe.

    A row is the position of a frame's entry among the entries kept, in order of arrival. Where the same axes were
    written twice, `row` gives the later frame and `keys` has the key once. `history`: as it was with fewer rows.
    """

    def __init__(self, folder: Path, container: Path, index: IndexFile | IndexMaps | None = None) -> None:
        self.path = folder
        self.level = level_of(folder)
        self.container = container
        self._boundary = _boundary_of(container)
        with self._boundary.inside():
            self._index = index if index is not None else IndexFile(folder)
        self._lock = threading.RLock()
        self._table = FrameTable(str(self._index.path))
        self._lookup = RowLookup(self._table)
        self._stacks = StackFiles(folder, self._index.check_in_place, self._boundary)
        self.history = RowHistory(self._table, self._lookup, self._lock)
        self._frames = FrameBytes(self._table, self._stacks, self._index.path)
        self._state = StateFile(container)  # of its own: it must be as old as the index read
        self._levels = LevelsFile(container) if folder != container else None
        self._summary: dict[str, Any] | None = None
        self._request: tuple[dict[str, Any] | None] | None = None  # None before it was read
        self._closed = False
        self._memory: BlockMemory | None = None  # of `read_together`, kept: new pages cost as much as the reads
        self.refresh()

    def __len__(self) -> int:
        return len(self._table)

    def notes(self) -> tuple[RunNote, ...]:
        """The notes on the run, as its folder has them now. Raises as `read_notes`, UnsupportedFeature for a link."""
        with self._boundary.inside():
            notes, trouble = read_notes(self.container)
        if trouble:
            logger.warning("%s", trouble)
        return notes

    def refresh(self) -> range:
        """Look for newly published frames; their rows, in order of arrival.

        Raises CorruptDataset at the first entry that is none; the frames before it stay readable.
        """
        with self._lock:
            self._check_open()
            self._state.refresh()  # before the index: a frame published before the final state is never missed
            if self._levels is not None:
                self._levels.refresh()
            first = len(self._table)
            doubts = not first and not self.level and self._state.is_there
            self._index.read_into(self._table, partial(_names_axes, self.path, self._boundary) if doubts else None)
            return range(first, len(self._table))

    def key(self, row: int) -> dict[str, AxisValue]:
        """The axes of the frame in this row."""
        with self._lock:
            return self._table.key(row)

    def keys(self, rows: range | None = None) -> Iterator[dict[str, AxisValue]]:
        """The keys that first arrived in `rows` (default: all so far), each once, in order of arrival."""
        rows = range(len(self)) if rows is None else rows
        with self._lock:
            new = np.flatnonzero(~self._lookup.repeats(rows.start, rows.stop)) + rows.start
        yield from self.keys_at(new)

    def keys_at(self, rows: NDArray[np.int64]) -> Iterator[dict[str, AxisValue]]:
        """The axes of the frames in these rows, each a new dictionary."""
        at, count = 0, _FIRST_KEYS
        while at < len(rows):
            with self._lock:
                keys = self._table.keys(rows[at : at + count])
            yield from keys
            at, count = at + count, min(2 * count, _MAX_KEYS)

    def find(self, axes: Axes) -> int | None:
        """The row of the latest frame with exactly these axes; None if there is none."""
        with self._lock:
            return self._lookup.find(axes)

    def row(self, axes: Axes) -> int:
        """As `find`. Raises FrameNotFound."""
        row = self.find(axes)
        if row is None:
            wanted_axes = ", ".join(f"{name}={value!r}" for name, value in axes.items()) or "no axes"
            raise FrameNotFound(f"{self.path}: no frame with {wanted_axes}; {_describe_axes(self.axis_values())}")
        return row

    def count_full_keys(self) -> int:
        """Number of distinct keys that have a value on every axis seen so far."""
        with self._lock:
            counted = ~self._lookup.repeats(0, len(self._table))
            for column in self._table.axes.values():
                counted &= column.codes.values != MISSING
            return int(counted.sum())

    def axis_values(self) -> dict[str, list[AxisValue]]:
        """Values seen so far by axis, axes as they appeared; integers ascending, strings as they appeared."""
        with self._lock:
            return {name: column.distinct() for name, column in self._table.axes.items()}

    def key_kinds(self) -> list[tuple[str, ...]]:
        """Return the sets of axes that frames have, each once."""
        with self._lock:
            return self._table.key_kinds()

    def frame_shape(self, row: int) -> tuple[int, ...]:
        """(Y, X), or (Y, X, 3) for RGB."""
        return self._frames.locate(row).shape

    def frame_dtype(self, row: int) -> np.dtype[np.generic]:
        """uint8 or little-endian uint16."""
        return self._frames.locate(row).pixel_type.numpy_dtype

    def read_pixels(self, row: int) -> NDArray[Any]:
        """The frame as a new array (Y, X), or (Y, X, 3) for RGB. Raises CorruptDataset if bytes are missing."""
        self._check_open()
        return self._frames.read_pixels(row)

    def read_rows(self, row: int, first: int, stop: int) -> NDArray[Any]:
        """The rows first .. stop - 1 of a frame's pixels; reads no others unless they are compressed."""
        self._check_open()
        return self._frames.read_rows(row, first, stop)

    def latest_rows(self) -> NDArray[np.int64]:
        """The current rows in order of arrival; of rows with equal axes the latest."""
        with self._lock:
            return self._lookup.latest_rows()

    def read_frames(
        self, rows: NDArray[np.int64], memory: BlockMemory | None = None
    ) -> Generator[tuple[int, NDArray[Any]]]:
        """These rows with their frames, see `read_ahead`; closing it ends the reads."""
        self._check_open()
        with self._lock:
            numbers, stacks = self._table.all_numbers, self._table.all_stacks
        return read_ahead(self, rows, numbers, stacks, memory)

    def read_together(
        self, rows: NDArray[np.int64], out: NDArray[Any] | None = None, *, is_cached: bool = False
    ) -> NDArray[Any]:
        """The frames of these rows as a new array (N, Y, X), or (N, Y, X, 3) for RGB; or in `out`.

        is_cached: through the page cache of the system, for frames that are read more than once.

        Raises DatasetError for one unlike the first of them, and as `read_pixels`.
        """
        self._check_open()
        first, columns = self._frames.locate(int(rows[0]) if len(rows) else 0), self.entry_columns(rows)
        unlike = np.flatnonzero(~columns.are_like(first.shape, first.pixel_type.numpy_dtype))
        if len(unlike):
            other = self._frames.locate(int(rows[unlike[0]]))
            raise DatasetError(
                f"{self.path}: frame {self.key(int(rows[unlike[0]]))} has shape {other.shape} and dtype "
                f"{other.pixel_type.numpy_dtype}, the first one {first.shape} and {first.pixel_type.numpy_dtype}: read "
                "it by itself"
            )
        shape, dtype = (len(rows), *first.shape), first.pixel_type.numpy_dtype
        if out is not None and not (out.shape == shape and out.dtype == dtype and out.flags.carray):
            raise ValueError(f"out must be a C-contiguous array {shape} of {dtype}, not {out.shape} of {out.dtype}")
        if out is None and len(rows) * first.payload_bytes > _MUCH_BYTES:
            self.read_pixels(int(rows[0]))  # before all of it is allocated: a damaged index may promise any shape
        target: NDArray[Any] = np.empty(shape, dtype) if out is None else out
        if target.nbytes <= _FEW_BYTES:
            for place, row in enumerate(rows.tolist()):
                target[place] = self.read_pixels(row)
        else:
            memory = self._memory = self._memory or piece_memory(2)
            if first.payload_bytes > PIECE_BYTES:
                memory = piece_memory(2)  # pieces as large as these frames are not kept
            read_together(self, rows, (columns.numbers, columns.stacks), target, memory, is_cached=is_cached)
        return target

    def stored_frame(self, row: int) -> tuple[str, StoredFrame]:
        """Name of the stack file that holds the frame, and where and how it lies there."""
        return self._frames.stack_name(row), self._frames.locate(row)

    def key_columns(self, rows: range) -> dict[str, KeyColumn]:
        """The axes of consecutive rows, as columns."""
        with self._lock:
            columns = self._table.axes.items()
            return {name: KeyColumn(*column.numbered(rows.start, rows.stop)) for name, column in columns}

    def entry_columns(self, rows: range | NDArray[np.int64]) -> EntryColumns:
        """Places of the frames in these rows, as columns; a copy."""
        chosen = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        with self._lock:
            numbers: NDArray[np.void] = self._table.all_numbers[chosen].copy()
            return EntryColumns(numbers, self._table.all_stacks[chosen].copy(), tuple(self._table.stack_names))

    def stack_file(self, name: str) -> tuple[ReadFile, ByteOrder]:
        """A stack file and its byte order. Raises CorruptDataset if it is missing or no TIFF file."""
        self._check_open()
        return self._stacks.get(name)

    def read_metadata(self, row: int) -> dict[str, Any]:
        """The frame's metadata, empty if it has none. Raises CorruptDataset if bytes are missing or no JSON."""
        self._check_open()
        return self._frames.read_metadata(row)

    def metadata_bytes(self, row: int) -> bytes:
        """The frame's metadata as it is stored. Raises CorruptDataset if bytes are missing."""
        self._check_open()
        return self._frames.metadata_bytes(row)

    def next_level(self) -> NDTiffReader | None:
        """The next lower level of a dataset with levels, once it exists."""
        self._check_open()
        folder = self.container / level_name(self.level + 1)
        if self.path == self.container or not (folder / INDEX_NAME).is_file():
            return None
        return NDTiffReader(folder, self.container)

    @property
    def declared_axes(self) -> list[dict[str, Any]]:
        """The axes that the producer declared at the opening, as in `acqstream.json`; empty where it did not."""
        return declared_axes(self._read_request())

    @property
    def declared_order(self) -> tuple[str, ...]:
        """The order of axes that the producer asked for, slowest first; empty where it asked for none."""
        return declared_order(self._read_request(), self.summary_metadata)

    @property
    def display_settings(self) -> dict[str, Any]:
        """Display settings of the channels in the file now; empty without a file."""
        with self._boundary.inside():
            return read_display_settings(self.container)

    @property
    def tile_overlap(self) -> tuple[int, int] | None:
        """Overlap (y, x) of the tiles of a tiled dataset in pixels, (0, 0) in lower levels; None in a flat dataset."""
        overlap = overlap_in(self.summary_metadata)
        return (0, 0) if overlap is not None and self.level else overlap

    @property
    def summary_metadata(self) -> Mapping[str, Any]:
        """From the first stack file that has a header; empty while there is none."""
        if self._summary is None:
            self._check_open()
            self._summary = _read_summary(self._table.stack_names, self.path, self._stacks, self._index)
        return self._summary or {}

    @property
    def complete(self) -> bool:
        """True when no frame will be added; as of the last `refresh` where `acqstream.json` says so."""
        with self._lock:  # a refresh in another thread ends before its state counts
            state = self._state.state
            return self._looks_finished() if state is None else state.final

    @property
    def state(self) -> AcquisitionState | None:
        """State file of our own writer, as of the last `refresh`; None in a dataset of another writer."""
        with self._lock:
            return self._state.state

    @property
    def writing(self) -> bool:
        """True while frames may come; neither this nor `complete` when the acquisition is interrupted."""
        with self._lock:
            return self._state.state is not AcquisitionState.INTERRUPTED and not self.complete

    @property
    def making_levels(self) -> bool:
        """True while lower levels may get more tiles although all frames are there: our own writer makes them later.

        As of the last `refresh`: tiles published before are found by refreshing the lower level after this one.
        """
        state = self.state
        return state is not None and state.final and self.levels_state.is_under_way

    @property
    def levels_state(self) -> LevelsState:
        """State of the lower levels, as of the last `refresh`. In an interrupted run they may stay unfinished."""
        with self._lock:
            return self._levels.state if self._levels is not None else LevelsState()

    def close(self) -> None:
        """Close all files; again is harmless."""
        with self._lock:
            self._closed, self._memory = True, None
            self._index.close()
            self._stacks.close()

    def _read_request(self) -> dict[str, Any] | None:
        if self._request is None:
            self._request = (read_request(self.container),)
        return self._request[0]

    def _looks_finished(self) -> bool:
        self._check_open()
        return len(self._table) > 0 and self._index.is_finished(self._table, self._stacks)

    def _check_open(self) -> None:
        if self._closed:
            raise DatasetError(f"{self.path}: the dataset is closed")


def _names_axes(folder: Path, boundary: Boundary, name: bytes, numbers: np.void, axes: Mapping[str, Any]) -> bool:
    """Whether the metadata of an entry name its axes, as those of our writer do."""
    try:
        path = folder / plain_name(name, str(folder / INDEX_NAME), 0)
        with boundary.inside(), closing(ReadFile(path)) as file:  # opens no stack file for good
            text = file.read(int(numbers["metadata_offset"]), int(numbers["metadata_length"]))
        return parse_json_object(text, str(path), 0).get("Axes") == axes
    except (DatasetError, StorageError):
        return False


def _read_summary(
    known: Sequence[str], folder: Path, stacks: StackFiles, index: IndexFile | IndexMaps
) -> dict[str, Any] | None:
    """The summary in a stack file, of those that the index names or, before its first entry, of those in the folder."""
    errors: list[DatasetError] = []
    for name in known or [path.name for path in stack_paths(folder) if has_ndtiff_mark(path)]:
        try:
            file, _ = stacks.get(name)
            return index.summary_of(file)
        except DatasetError as error:  # every stack file has the same summary
            errors.append(error)
    if errors:
        raise errors[0]
    return None


def _describe_axes(axis_values: Mapping[str, Sequence[AxisValue]]) -> str:
    parts = []
    for name, values in axis_values.items():
        shown = [repr(value) for value in values]
        parts.append(f"{name} ({', '.join(shown if len(shown) <= 5 else [*shown[:4], '...', shown[-1]])})")
    return f"its axes are {', '.join(parts)}" if parts else "there are no frames yet"
