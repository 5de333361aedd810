"""Writes the objects of a mirror by reference: chunks of table and columns, documents, the link to the stacks."""

from __future__ import annotations

import errno
import os
import re
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.errors import CorruptDataset, DatasetError, StorageError
from acqstream.formats.hsds.layout import NOTE_NAME, TEMPORARY_FOLDER
from acqstream.formats.hsds.metadata import BUCKET, DOMAIN
from acqstream.formats.hsds.reference_layout import ReferenceLayout, ReferenceNote, parse_reference_note
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.mirrors.row_table import NO_ROW, Rows, TableGrid, choose_numbers, read_numbers
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import make_folder
from acqstream.storage.files.small_file import MAX_FILE_BYTES
from acqstream.storage.platform.capabilities import has_folder_links
from acqstream.storage.stores.local_store import LocalStore
from acqstream.views.base import ViewSource

LINK = "stacks"
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)  # of the system or the file system
_BUCKET_NAME = re.compile(r"[A-Za-z0-9_.-]+")  # as HSDS takes them


@dataclass(frozen=True, slots=True)
class StackLinks:
    """bucket, folder and uri_start as in ReferenceNote. advice: how to serve it, where that is unusual; else ""."""

    bucket: str
    folder: str
    uri_start: str
    advice: str = ""


def link_stacks(disk: Disk, container: Path, dataset: Path) -> StackLinks:
    """Make the bucket of a container, with a relative link to its dataset; both may then be moved together.

    Where no link can be made, the container is the bucket itself and the folder above the root, which has the dataset
    as a second bucket. Raises DatasetError if the two are not in one folder then, StorageError.
    """
    if not has_folder_links():
        return _beside(container, dataset, "this system permits links to administrators only")
    bucket = container / BUCKET
    for folder in (container, bucket):
        make_folder(disk, os.fspath(folder), follows_links=folder is container)
    link, target = bucket / LINK, os.path.relpath(os.path.realpath(dataset), os.path.realpath(bucket))
    try:
        if link.is_symlink() and os.readlink(link) == target:
            return StackLinks(BUCKET, BUCKET, f"{BUCKET}/{LINK}/")
        if link.is_symlink():  # the mirror or the dataset was moved
            disk.unlink(os.fspath(link))
        disk.link_folder(target, os.fspath(link))
        disk.sync_directory(os.fspath(bucket))
    except OSError as error:
        if error.errno in _NO_LINKS:
            return _beside(container, dataset, f"no link can be made here ({error.strerror})")
        raise StorageError.wrap(error, os.fspath(link), "cannot make the link to the dataset") from error
    return StackLinks(BUCKET, BUCKET, f"{BUCKET}/{LINK}/")


def _beside(container: Path, dataset: Path, reason: str) -> StackLinks:
    names = container.name, dataset.name
    is_beside = os.path.realpath(container.parent) == os.path.realpath(dataset.parent)
    if not is_beside or not all(map(_BUCKET_NAME.fullmatch, names)):
        raise DatasetError(
            f"{container}: {reason}, so a server has to reach the dataset as a bucket of its own: expected both in one "
            f"folder, with names of letters, digits, '_', '.' and '-', found {dataset}; pixels=copy needs no dataset"
        )
    text = f"{container.name}: {reason}. Serve {container.parent} as the root, with the bucket {container.name}"
    return StackLinks(container.name, "", f"{dataset.name}/", text)


_BLOCK_BYTES = 4096  # of a disk: a smaller file takes one
_URI_STEP = 16  # lengths of file_uri are multiples of it
_SPARE_URI_BYTES = 8  # for the numbers of later stacks
_HEADER = struct.Struct("4xI")  # of a stack file: the offset of the first page directory, in its byte order


class ReferenceWriter:
    """The container of one dataset. spec: `level 0`, with a dtype in this machine's byte order. grid: of its table, for
    the steps of an existing one. Methods raise StorageError; the constructor CorruptDataset for damaged documents, or
    those of another dataset.

    found: shape of an existing container, and whether it was complete; None for a new one.
    """

    def __init__(
        self,
        container: Path,
        source: ViewSource,
        spec: ArraySpec,
        grid: Callable[[tuple[int, ...] | None], TableGrid],
    ) -> None:
        self._container = container
        self._source = source
        self._reader: NDTiffReader = source.reader
        self._store = LocalStore(container, source.disk, temporary_folder=TEMPORARY_FOLDER)
        self._links = link_stacks(source.disk, container, source.dataset)
        self._byte_order = self._reader.stack_file(self._reader.stored_frame(0)[0])[1]
        self._known_stacks: set[str] = set()  # whose byte order was compared
        self._scales: dict[tuple[int, int], bytes] = {}  # by axis and chunk, as they were put
        self._documents: dict[str, bytes] = {}  # as they were put, with another time
        self.stored_bytes = 0
        self.stored_chunks = 0
        self.grid = grid(None)
        self._layout = ReferenceLayout(note=self._new_note(self._typed(spec)))
        self.found = self._resume(grid)

    @property
    def advice(self) -> str:
        """How to serve the container, where that is unusual."""
        return self._links.advice

    @property
    def where(self) -> str:
        """The file with our note, for messages."""
        return f"{self._store.url}/{NOTE_NAME}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names in the metadata that have a column."""
        return self._layout.note.columns

    def put_chunk(self, chunk: Position, rows: Rows) -> None:
        """Store a chunk of the table and of all columns. rows: of the frames at its places, NO_ROW for none.

        Raises DatasetError for a stack whose frames cannot be referred to.
        """
        flat = rows.reshape(-1)
        present = np.flatnonzero(flat != NO_ROW)
        entries = self._reader.entry_columns(flat[present].astype(np.int64))
        self._check_stacks(entries.stack_names, np.unique(entries.stacks).tolist())
        layout = self._layout
        offsets, sizes = np.zeros(len(flat), np.int64), np.zeros(len(flat), np.int64)
        offsets[present], sizes[present] = entries.numbers["pixel_offset"], entries.payload_bytes
        uris = [layout.note.first_uri] * len(flat)
        for at, stack in zip(present.tolist(), entries.stacks.tolist(), strict=True):
            uris[at] = layout.note.uri(entries.stack_names[stack])
        for column, numbers in enumerate(read_numbers(self._reader, rows, layout.note.columns)):
            self._put(layout.column_key(column, chunk), np.ascontiguousarray(numbers, "<f8").tobytes())
        self._put(layout.table_key(chunk), layout.encode_table(offsets, sizes, uris))
        self.stored_chunks += 1

    def announce(self, spec: ArraySpec, announced: int, *, complete: bool) -> None:
        """Announce the shape, space and values of `level 0`. announced: the size so far along the growing axis."""
        note = replace(
            self._layout.note, spec=self._typed(spec), stacks=self._stacks(), complete=complete, modified=0.0
        )
        layout = ReferenceLayout(note=note)
        self._put_scales(layout, announced)
        timeless = dict(layout.documents())
        self._layout = ReferenceLayout(note=replace(note, modified=time.time()))
        documents = dict(self._layout.documents())
        changed = [key for key in documents if self._documents.get(key) != timeless[key] or complete]
        self._store.ensure_all({key: documents[key] for key in changed})  # and what they name is forced with them
        self._documents |= {key: timeless[key] for key in changed}

    def sync(self) -> None:
        """When this returns, everything that was stored survives a power cut."""
        self._store.sync()

    def _resume(self, grid: Callable[[tuple[int, ...] | None], TableGrid]) -> tuple[tuple[int, ...], bool] | None:
        where = self.where
        content = self._store.get(NOTE_NAME, 0, MAX_FILE_BYTES)
        if content is None:
            return None
        found, mine = parse_reference_note(content, where), self._layout.note
        if (found.dataset_id, found.uri_start, found.spec.axes) != (mine.dataset_id, mine.uri_start, mine.spec.axes):
            raise CorruptDataset("was laid out for another dataset, or in another way", path=where)
        self.grid = grid(found.steps)
        kept = replace(
            mine,
            steps=found.steps,
            uri_bytes=found.uri_bytes,
            columns=found.columns,
            named=found.named,
            created=found.created,
            stacks=tuple(dict.fromkeys((*found.stacks, *mine.stacks))),
        )
        self._layout = ReferenceLayout(note=kept)
        return found.spec.shape, found.complete

    def _put_scales(self, layout: ReferenceLayout, announced: int) -> None:
        for axis, (name, step) in enumerate(zip(layout.outer, self.grid.steps, strict=True)):
            values = layout.spec.axis_values.get(name, range(layout.spec.shape[axis]))
            first = announced // step if axis == self.grid.growing and not layout.note.complete else 0
            for number in range(first, -(-layout.spec.shape[axis] // step)):
                content = layout.encode_scale(axis, number * step, values)
                if self._scales.get((axis, number)) != content:
                    self._put(layout.scale_key(axis, number), content)
                    self._scales[axis, number] = content

    def _put(self, key: str, content: bytes) -> None:
        self._store.put_new(key, [content])
        self.stored_bytes += -(-len(content) // _BLOCK_BYTES) * _BLOCK_BYTES

    def _typed(self, spec: ArraySpec) -> ArraySpec:
        return replace(spec, dtype=spec.dtype.newbyteorder(self._byte_order))

    def _stacks(self) -> tuple[str, ...]:
        """Names of the stacks so far, that of the first frame first."""
        names = self._reader.entry_columns(range(0)).stack_names
        return tuple(dict.fromkeys((self._reader.stored_frame(0)[0], *names)))

    def _check_stacks(self, names: Sequence[str], numbers: Sequence[int]) -> None:
        note = self._layout.note
        for name in (names[number] for number in numbers):
            if name in self._known_stacks:
                continue
            uri = note.uri(name)
            if len(uri.encode()) > note.uri_bytes:
                raise DatasetError(
                    f"the name of the stack {name} is too long for the chunk table: file_uri has {note.uri_bytes} "
                    f"bytes, {uri!r} needs {len(uri.encode())}; rebuild the mirror"
                )
            order = self._reader.stack_file(name)[1]
            if order != self._byte_order:
                raise DatasetError(
                    f"{name} has the byte order {order!r}, the stacks before have {self._byte_order!r}: the frames of "
                    "a mirror by reference are stored alike; pixels=copy converts them"
                )
            self._known_stacks.add(name)

    def _new_note(self, spec: ArraySpec) -> ReferenceNote:
        reader, source = self._reader, self._source
        stacks = self._stacks()
        folder = reader.path.relative_to(reader.container).as_posix()
        count, digest = self._header_of(stacks[0])
        note = ReferenceNote(
            spec=spec,
            dataset_id=source.dataset_id,
            dataset=_relative(source.dataset, self._container),
            stack_folder="" if folder == "." else folder,
            stacks=stacks,
            header_bytes=count,
            header_sum=digest,
            bucket=self._links.bucket,
            folder=self._links.folder,
            uri_start=self._links.uri_start,
            domain=DOMAIN,
            steps=self.grid.steps,
            uri_bytes=_URI_STEP,
            columns=choose_numbers(reader, len(reader)),
            named=_named(reader.axis_values(), spec),
            created=time.time(),
        )
        longest = max(len(note.uri(name).encode()) for name in stacks) + _SPARE_URI_BYTES
        return replace(note, uri_bytes=-(-longest // _URI_STEP) * _URI_STEP)

    def _header_of(self, stack: str) -> tuple[int, str]:
        """The length of a stack's header and its XXH3-64: it has the summary, and never changes."""
        file, order = self._reader.stack_file(stack)
        head = file.read(0, _HEADER.size)
        (count,) = struct.unpack(f"{order}{_HEADER.format}", head)
        return count, xxhash.xxh3_64_hexdigest(file.read(0, count))


def _named(values: Mapping[str, Sequence[Any]], spec: ArraySpec) -> tuple[str, ...]:
    """Axes whose values are names."""
    return tuple(
        axis
        for axis in spec.axes
        if any(isinstance(value, str) for value in values.get(axis, ()))
        or (axis in spec.labels and not values.get(axis))
    )


def _relative(dataset: Path, container: Path) -> str:
    found = os.path.relpath(os.path.realpath(dataset), os.path.realpath(container))
    return found.replace(os.sep, "/")
