"""Reads and checks a container of ours whose pixels stay in the stacks of a dataset beside it.

The dataset is found by our note, and only one with the same id is read. No link of the bucket is followed.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xxhash
from numpy.typing import NDArray

from acqstream.arrays.array_spec import Position
from acqstream.errors import CorruptDataset, DatasetError, UnsupportedFeature
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.chunk_reader import Damage, StoredLevel, require_document
from acqstream.formats.container_check import check_documents
from acqstream.formats.hsds.dataset_chunks import ChunkTable, Rows
from acqstream.formats.hsds.layout import NOTE_NAME
from acqstream.formats.hsds.reference_layout import ReferenceLayout, ReferenceNote, parse_reference_note
from acqstream.storage.files.boundary import requested_links
from acqstream.storage.files.small_file import MAX_FILE_BYTES, parse_fields
from acqstream.storage.stores.data_path import DataPath
from acqstream.storage.stores.store import Store

STATE_NAME = "acqstream.json"  # of a dataset that acqstream has written
_SLACK_BYTES = 1024  # of a compressed chunk that cannot be compressed
_MAX_TABLE_BYTES = 64 * 2**20  # of a chunk of the table; ours take 1 MiB
_BESIDE = re.compile(r"\.\./(?!\.{1,2}$)[^/\\]+")
# The begin of a stack file: NDTiff specification, "Header". TIFF's mark, NDTiff's (483729), that of the summary.
_HEAD = struct.Struct("<4s4xI8xI")
_STACK_HEAD = (b"II*\0", 483729, 2355492)


class StackStore:
    """The stacks of the dataset that a container refers to. From any thread.

    Methods raise DatasetError if the dataset is missing or another one, CorruptDataset for a missing or cut stack.
    """

    def __init__(self, container: DataPath, note: ReferenceNote, *, follows_links: bool) -> None:
        if not follows_links and not _BESIDE.fullmatch(note.dataset):
            text = f"its pixels lie in {note.dataset!r:.200}, which is no dataset in the folder of this container"
            raise UnsupportedFeature(f"{container}: {text}; if you trust it, open it with follow_links=True")
        self.place = container.beside(note.dataset)  # it moves together with the container
        self._container = container
        self._note = note
        self._is_trusted = follows_links
        self._store: Store = self.place.store(follows_links=follows_links)
        self._is_checked = False

    def check(self) -> None:
        """Compare the dataset with the note, once."""
        if self._is_checked:
            return
        note = self._note
        state = self._store.get(STATE_NAME, 0, MAX_FILE_BYTES)
        header = self._store.get(note.stack_path(note.stacks[0]), 0, max(note.header_bytes, _HEAD.size))
        if state is None and header is None:
            raise DatasetError(
                f"{self._container}: its pixels lie in the dataset {self.place}, where neither {STATE_NAME} nor "
                f"{note.stacks[0]} exists; move both together, or make the mirror with pixels=copy"
            )
        found = "" if state is None else parse_fields(state, f"{self._store.url}/{STATE_NAME}").text("dataset_id", "")
        if state is not None and found != note.dataset_id:
            raise DatasetError(
                f"{self.place} is not the dataset of {self._container}: its id is {found!r}, expected "
                f"{note.dataset_id!r}"
            )
        # A note from a stranger may name any file: only a stack file of this dataset is read.
        is_stack = header is not None and len(header) >= _HEAD.size and _HEAD.unpack_from(header) == _STACK_HEAD
        if not self._is_trusted and (state is None or (header is not None and not is_stack)):
            what = f"it has no {STATE_NAME}" if state is None else f"{note.stacks[0]} is no stack file of NDTiff"
            text = f"{self.place} is not the dataset of {self._container}: {what}"
            raise UnsupportedFeature(f"{text}; if you trust it, open it with follow_links=True")
        if header is not None and xxhash.xxh3_64_hexdigest(header[: note.header_bytes]) != note.header_sum:
            raise DatasetError(
                f"{self.place} is not the dataset of {self._container}: the header of {note.stacks[0]} is another one"
            )
        self._is_checked = True

    def read(self, stack: str, offset: int, length: int) -> bytes:
        """Bytes of a stack file."""
        self.check()
        key = self._note.stack_path(stack)
        data = self._store.get(key, offset, length)
        where = f"{self._store.url}/{key}"
        if data is None:
            raise CorruptDataset(f"this stack is missing; {self._container} has no pixels of its own", path=where)
        if len(data) != length:
            text = f"pixels of {length} bytes end beyond the end of the file, expected by {self._container}"
            raise CorruptDataset(text, path=where, offset=offset)
        return data

    def size(self, stack: str) -> int | None:
        """Bytes of a stack file; None if it is missing."""
        self.check()
        return self._store.size(self._note.stack_path(stack))


class ReferenceLevel:
    """A StoredLevel: the array of frames of a container. Raises DatasetError if the dataset is missing or another one.

    Entries of the table that were read are kept; a new object reads them again.
    """

    def __init__(self, container: DataPath, *, follows_links: bool) -> None:
        self.container = container
        self.layout = ReferenceLayout(note=read_reference_note(container.store(follows_links=False)))
        note = self.layout.note
        self.complete = note.complete
        self.spec = replace(note.spec, dtype=note.spec.dtype.newbyteorder("="))
        self._follows_links = follows_links
        self._store = container.store(follows_links=False)
        self.table = ChunkTable(note.steps, self.layout.record, self._read_rows, may_change=False)
        self._lock = threading.Lock()  # for the stacks
        self._stacks: StackStore | None = None

    @property
    def stacks(self) -> StackStore:
        """The stacks of the dataset."""
        with self._lock:
            if self._stacks is None:
                self._stacks = StackStore(self.container, self.layout.note, follows_links=self._follows_links)
            return self._stacks

    def read(self, position: Position) -> NDArray[np.generic] | None:
        """See StoredLevel."""
        spec, note = self.spec, self.layout.note
        # The table has an entry per frame: y and x (and c) of the grid have one chunk.
        outer = position[: len(note.steps)]
        entry = self.table.row(outer)
        if entry is None:
            return None
        where, size, offset = self.table_where(outer), int(entry["size"]), int(entry["offset"])
        if size != spec.chunk_bytes or offset < 0:
            text = f"a frame at {outer} has {size} bytes at {offset}, expected {spec.chunk_bytes}"
            raise CorruptDataset(text, path=where)
        data = self.stacks.read(self.stack_of(entry, where), offset, spec.chunk_bytes)
        return np.frombuffer(data, note.spec.dtype).reshape(spec.chunk_shape).astype(spec.dtype)

    def table_chunks(self) -> Iterator[Position]:
        """The chunks of the table inside the array."""
        note = self.layout.note
        sizes = zip(note.spec.shape, note.steps, strict=False)
        yield from itertools.product(*(range(-(-size // step)) for size, step in sizes))

    def stack_of(self, entry: np.void, where: str) -> str:
        """The stack file of an entry of the table. Raises CorruptDataset."""
        uri = bytes(entry["file_uri"]).decode(errors="replace")
        stack = self.layout.note.stack_of(uri)
        if stack is None:
            start = self.layout.note.uri_start
            raise CorruptDataset(f"a frame lies in {uri!r:.200}, expected a stack of {start}", path=where)
        return stack

    def table_where(self, outer: Position) -> str:
        """The file with the entry of a frame, for messages."""
        return f"{self._store.url}/{self.layout.table_key(self.table.chunk_of(outer))}"

    def place(self, position: Position) -> str:
        """See StoredLevel: the file with the entry of a frame."""
        return self.table_where(position[: len(self.layout.note.steps)])

    def positions(self, on_damage: Damage) -> Iterator[Position]:
        """See StoredLevel: places with a frame."""
        del on_damage
        note = self.layout.note
        picture = (0,) * (len(note.spec.axes) - len(note.steps))
        return ((*outer, *picture) for outer in self.table.positions(self.table_chunks()))

    def _read_rows(self, chunk: Position) -> Rows | None:
        layout = self.layout
        key, record = layout.table_key(chunk), layout.record
        # Zeros end a compressed chunk early, so a file that is longer than plain entries is damage.
        expected = math.prod(layout.note.steps) * record.itemsize
        if expected > _MAX_TABLE_BYTES:
            text = f"chunks of the table have {expected} bytes by the note; at most {_MAX_TABLE_BYTES} are read"
            raise CorruptDataset(text, path=f"{self._store.url}/{key}")
        content = self._store.get(key, 0, expected + expected // 64 + _SLACK_BYTES)
        if content is None:
            return None
        try:
            data = zlib.decompressobj().decompress(content, expected + 1)
        except zlib.error as error:
            # The server reads such a chunk as an error, too.
            raise CorruptDataset(f"does not decompress: {error}", path=f"{self._store.url}/{key}") from error
        if len(data) != expected:
            text = f"decompresses to {len(data)} bytes or more, expected {expected}"
            raise CorruptDataset(text, path=f"{self._store.url}/{key}")
        return np.frombuffer(data, record).reshape(layout.note.steps)


def read_reference_note(store: Store) -> ReferenceNote:
    """The note of a container. Raises DatasetError, CorruptDataset, StorageError."""
    return parse_reference_note(require_document(store, NOTE_NAME), f"{store.url}/{NOTE_NAME}")


def find_references(container: DataPath) -> Sequence[Callable[[], StoredLevel]]:
    """The one level of a container of ours, with the links that the enclosing `following_links` allows."""
    return [partial(ReferenceLevel, container, follows_links=requested_links() is True)]


def check_references(container: DataPath, report: CheckReport) -> ChunkCounts:
    """Check every entry of the table: its stack exists, and has the bytes. Pixels are not read.

    payload_bytes are those of the frames that it refers to.
    """
    try:
        level = ReferenceLevel(container, follows_links=False)
        level.stacks.check()
    except CorruptDataset as error:
        report.add_error(error)
        return ChunkCounts(0, 0, 0, 0)
    except DatasetError as error:
        report.add_problem(str(container), str(error))
        return ChunkCounts(0, 0, 0, 0)
    note, frames = level.layout.note, 0
    sizes: dict[str, int | None] = {}  # of stacks
    chunks = list(level.table_chunks())
    for done, chunk in enumerate(chunks):
        report.on_progress("checking the chunk table", done, len(chunks))
        try:
            records = level.table.rows(chunk)
        except CorruptDataset as error:
            report.add_error(error)
            continue
        frames += int(np.count_nonzero(records["size"]))
        _check_entries(level, chunk, records, sizes, report)
    if note.complete:
        missing, other = "is missing; HSDS servers need it", "differs from what our note states"
        check_documents(container.store(follows_links=False), dict(level.layout.documents()), report, missing, other)
    places = math.prod(note.spec.shape[: len(note.steps)])
    return ChunkCounts(1, frames, places - frames, frames * note.spec.chunk_bytes)


def _check_entries(
    level: ReferenceLevel, chunk: Position, records: Rows, sizes: dict[str, int | None], report: CheckReport
) -> None:
    note = level.layout.note
    where = level.table_where(tuple(n * step for n, step in zip(chunk, note.steps, strict=True)))
    present = records[records["size"] != 0]
    if (present["size"] != note.spec.chunk_bytes).any() or (present["offset"] < 0).any():
        report.add_problem(where, f"has frames of another size, expected {note.spec.chunk_bytes} bytes")
        return
    for uri in np.unique(present["file_uri"]):
        ends = present["offset"][present["file_uri"] == uri] + note.spec.chunk_bytes
        try:
            stack = level.stack_of(present[present["file_uri"] == uri][0], where)
        except CorruptDataset as error:
            report.add_error(error)
            continue
        if stack not in sizes:
            sizes[stack] = level.stacks.size(stack)
            if sizes[stack] is None:
                report.add_problem(f"{level.stacks.place}/{note.stack_path(stack)}", "this stack is missing")
        size = sizes[stack]
        if size is not None and int(ends.max()) > size:
            text = f"has a frame that ends at {int(ends.max())} in {stack}, which has {size} bytes"
            report.add_problem(where, text)
