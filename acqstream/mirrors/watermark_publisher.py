"""The life of a container whose chunks become readable a row at a time, up to a watermark; a folder's container.

Order of what is written: the document of a new part; chunks, forced; the progress and listing documents of each member
with more rows; the note of the container. So each document names only stored data. The listing is the watermark
of other software, the progress document that of our readers.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.array_spec import ArraySpec, Position
from acqstream.formats.chunk_format import ChunkFormat, ChunkWriter
from acqstream.formats.chunk_layout import Encoded, Plan
from acqstream.formats.watermark_layout import NOTHING, ChunkPlace, Extent, Rows, WatermarkLayout
from acqstream.mirrors.checksum_writer import ChecksumWriter
from acqstream.mirrors.publisher import Publisher, read_document, resume_layout
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.free_space import SpaceBound
from acqstream.storage.stores.local_store import LocalStore
from acqstream.storage.stores.store import Store, require
from acqstream.views.checkpoint import view_folder

_MAX_MEMBERS = 1000  # kept in memory, if none of their rows is in progress


@dataclass(slots=True)
class _Progress:
    """Rows of one part at one level. top: one after the last complete row; begun: columns of rows in progress."""

    announced: int
    top: int
    begun: dict[int, set[tuple[int, int]]] = field(default_factory=dict)

    def raise_mark(self) -> bool:
        before = self.announced
        self.announced = max(before, min([self.top, *self.begun]))
        return self.announced > before


class Watermarks:
    """Rows of all members that are being written; from any thread.

    row_chunks: number of chunks in a row, by level. known: the rows of a member that an earlier process announced.
    """

    def __init__(self, row_chunks: Sequence[int], known: Callable[[Position], Rows]) -> None:
        self._row_chunks = row_chunks
        self._known = known
        self._lock = threading.Lock()
        self._members: dict[Position, dict[tuple[int, int], _Progress]] = {}
        self._raised: set[Position] = set()
        self._max_members = _MAX_MEMBERS

    def begin(self, level: int, place: ChunkPlace) -> None:
        """Note that a chunk is about to be written."""
        row = place.row
        with self._lock:
            found = self._progress(level, place)
            if row >= found.announced:
                found.begun.setdefault(row, set()).discard(place.column)

    def end(self, level: int, place: ChunkPlace) -> None:
        """Note that a chunk was written, though not forced."""
        row = place.row
        with self._lock:
            found = self._progress(level, place)
            chunks = found.begun.get(row)
            if chunks is None:
                return
            chunks.add(place.column)
            if len(chunks) >= self._row_chunks[level]:
                del found.begun[row]
                found.top = max(found.top, row + 1)
                if found.raise_mark():
                    self._raised.add(place.member)

    def take_raised(self) -> dict[Position, Rows]:
        """The members with more rows than when they were taken last."""
        with self._lock:
            raised, self._raised = self._raised, set()
            return {member: self._rows(member) for member in raised}

    def put_back(self, members: Mapping[Position, Rows]) -> None:
        """Take them again next time: they could not be announced."""
        with self._lock:
            self._raised |= members.keys()

    def all(self) -> dict[Position, Rows]:
        """The rows of every member that is kept in memory."""
        with self._lock:
            return {member: self._rows(member) for member in self._members}

    def _rows(self, member: Position) -> Rows:
        return {key: progress.announced for key, progress in self._members[member].items()}

    def _progress(self, level: int, place: ChunkPlace) -> _Progress:
        found = self._members.get(place.member)
        if found is None:
            if len(self._members) >= self._max_members:
                self._forget()
            known = self._known(place.member)
            found = {key: _Progress(rows, rows) for key, rows in known.items()}
            self._members[place.member] = found
        return found.setdefault((level, place.part), _Progress(0, 0))

    def _forget(self) -> None:
        """Drop members without a row in progress: their rows are announced, and read from there again."""
        for member, found in list(self._members.items()):
            if member not in self._raised and not any(progress.begun for progress in found.values()):
                del self._members[member]
        self._max_members = max(_MAX_MEMBERS, 2 * len(self._members))


_MAX_KNOWN = 100_000  # documents that need not be written again


class WatermarkPublisher:
    """Publishes the chunks of one container, as `Publisher` does. Methods raise StorageError.

    announces: False for one of several processes that store other chunks of the same container: none of them knows
    which rows are complete. lists: see Publisher.
    """

    def __init__(
        self,
        layout: WatermarkLayout,
        store: Store,
        container_name: str,
        *,
        announces: bool = True,
        lists: Store | None = None,
    ) -> None:
        self._layout = layout
        self._store = store
        self._container_name = container_name
        self._announces = announces
        # Reentrant, and held while documents are forced: a caller that comes second waits until the first is done.
        self._lock = threading.RLock()  # for `_layout`, `_is_complete` and `_listed`
        self._is_complete = False
        self._listed: dict[Position, tuple[Extent, ...]] = {}  # extents in the listing of each member
        self._sums = ChecksumWriter(store, lists)
        self._parts_lock = threading.Lock()
        self._parts: set[tuple[int, Position, int]] = set()  # level, member and part of documents that exist
        self._marks = Watermarks([layout.row_chunks(level) for level in range(len(layout.plan.levels))], self._rows_of)

    def begin(self) -> None:
        """See Publisher."""
        require(self._store, self._layout.needs, self._container_name)
        found = resume_layout(self._layout, self._store)
        if found is not None:
            self._layout, self._is_complete = found
        if not self._is_complete:  # else it stays so until it grows: the same chunks may be stored again
            self._put_note(self._layout, is_complete=False)
        self._sums.announce(self._layout, is_new=found is None)

    def encode(
        self, level: int, position: Position, chunk: NDArray[np.generic], present: NDArray[np.bool_] | None = None
    ) -> Encoded:
        """See ChunkLayout; from any thread. These formats leave out no zeros."""
        del present
        return self._layout.encode(level, position, chunk)

    @property
    def joins_chunks(self) -> bool:
        """See Publisher."""
        return False

    def stored_with(self, level: int, position: Position) -> Hashable:
        """See Publisher: the cube file, if chunks are written in place."""
        return self._layout.key(level, position) if self._layout.needs == "in_place" else position

    def store(self, level: int, position: Position, encoded: Encoded) -> None:
        """See Publisher. A chunk written in place is readable with its row, after the next `sync`."""
        self.store_together(level, [(position, encoded)])

    def store_together(self, level: int, chunks: Sequence[tuple[Position, Encoded]]) -> None:
        """See Publisher."""
        layout = self._layout
        places = [layout.place(position) for position, _ in chunks]
        for place in places:
            self._ensure_part(layout, level, place.member, place.part)
            self._marks.begin(level, place)
        self._sums.begin(layout)
        for key, group in itertools.groupby(chunks, lambda chunk: layout.key(level, chunk[0])):
            if layout.needs == "in_place":
                parts = [(position, layout.in_place(level, position, encoded)) for position, encoded in group]
                self._sums.write(level, key, parts)
                continue
            for position, encoded in group:
                self._store.put_new(key, encoded)
                self._sums.add(level, position, (key, 0), encoded)
        for place in places:
            self._marks.end(level, place)

    def grow(self, level: int, shape: Sequence[int]) -> None:
        """See Publisher."""
        with self._lock:
            shapes = [known.shape for known in self._layout.plan.levels]
            shapes[level] = tuple(map(max, shapes[level], shape))
            self._layout.check_growth(shapes[level])
            before = self._layout
            layout = replace(before, plan=before.plan.with_shapes(shapes))
            rows = self._marks.all()
            if self._is_complete:  # members without a progress document would count as empty from now on
                self._put_progress(dict.fromkeys(before.plan.members(), before.all_rows()))
            self._sync(layout)
            self._announce(layout, rows)
            self._put_note(layout, is_complete=False)

    def set_space(self, levels: Sequence[ArraySpec]) -> None:
        """See Publisher. Listings that an earlier process put get the space with their next rows."""
        with self._lock:
            before = self._layout.plan.levels
            spaced = [own.with_space(other) for own, other in zip(before, levels, strict=True)]
            if tuple(spaced) == before or self._is_complete:
                return
            layout, listed = self._layout.with_levels(spaced), dict(self._listed)
            known = tuple(own.with_values(new) for own, new in zip(before, spaced, strict=True))
            if tuple(spaced) != known:  # listings have no values of places
                self._listed.clear()
                self._put_listings(layout, listed)
            self._put_note(layout, is_complete=False)

    def sync(self) -> None:
        """See Publisher. Announces the members of which more rows are complete."""
        with self._lock:
            if self._announces:
                self._sync(self._layout)
            else:
                self._sums.sync()
                self._store.sync()

    def finish(self, levels: Sequence[ArraySpec]) -> None:
        """See Publisher."""
        with self._lock:
            before, was_complete = self._layout, self._is_complete
            final = [
                replace(own.with_space(last), shape=last.shape, labels=last.labels, attributes=last.attributes)
                for own, last in zip(before.plan.levels, levels, strict=True)
            ]
            layout = before.with_levels(final)
            self._listed.clear()  # they may state another voxel size
            self._sums.sync()
            self._store.sync()
            visible, rows = set(layout.visible_members()), layout.all_rows()
            self._put_listings(layout, {member: layout.visible_extents(member, rows) for member in visible})
            self._store.sync()
            for member in before.plan.members():
                if member not in visible:  # announced before, and its frames will not come
                    self._store.delete(layout.listing_key(member))
            self._put_note(layout, is_complete=True)
            self._marks.take_raised()  # all is announced: a container that grows again begins with nothing to tell
            # also of members that the container only has from now on: they were stored, and not announced
            for member in {*before.plan.members(), *layout.plan.members()}:
                self._store.delete(layout.progress_key(member))
            if not was_complete:
                self._sums.begin(layout)
                self._sums.add_documents(layout.documents(complete=True))
            self._sums.flush(is_closed=not was_complete)
            self._sums.sync()
            self._store.sync()

    def _rows_of(self, member: Position) -> Rows:
        """The rows of a member that an earlier process announced."""
        if self._is_complete:
            return self._layout.all_rows()
        key = self._layout.progress_key(member)
        content = read_document(self._store, key)
        return {} if content is None else self._layout.parse_progress(content, f"{self._store.url}/{key}")

    def _sync(self, layout: WatermarkLayout) -> None:
        raised = self._marks.take_raised()  # before: more may be stored meanwhile
        try:
            self._sums.sync()
            self._store.sync()
            self._put_progress(raised)
            self._announce(layout, raised)
        except BaseException:
            self._marks.put_back(raised)
            raise

    def _announce(self, layout: WatermarkLayout, members: Mapping[Position, Rows]) -> None:
        """Put the listings of these members; their rows are forced already."""
        extents = {member: layout.visible_extents(member, rows) for member, rows in members.items()}
        self._put_listings(layout, {one: found for one, found in extents.items() if {*found} - {NOTHING}})
        self._store.sync()

    def _put_listings(self, layout: WatermarkLayout, members: Mapping[Position, tuple[Extent, ...]]) -> None:
        changed = {one: extents for one, extents in members.items() if self._listed.get(one) != extents}
        for member, extents in changed.items():
            for level, (part, extent) in itertools.product(range(len(layout.plan.levels)), enumerate(extents)):
                if extent != NOTHING:  # every level of what it names can be opened
                    self._ensure_part(layout, level, member, part)
        name = self._container_name
        self._store.ensure_all({layout.listing_key(one): layout.listing(one, at, name) for one, at in changed.items()})
        if len(self._listed) >= _MAX_KNOWN:
            self._listed.clear()
        self._listed |= changed

    def _ensure_part(self, layout: WatermarkLayout, level: int, member: Position, part: int) -> None:
        """When this returns, the document of a part exists."""
        with self._parts_lock:
            if (level, member, part) in self._parts:
                return
            if len(self._parts) >= _MAX_KNOWN:
                self._parts.clear()
            key, content = layout.part_document(level, member, part)
            if self._store.size(key) is None:
                self._store.put_new(key, [content])  # forced with its chunks, or with the listing that names it
            else:
                self._store.ensure(key, content)
            self._parts.add((level, member, part))

    def _put_progress(self, members: Mapping[Position, Rows]) -> None:
        layout = self._layout
        self._store.ensure_all({layout.progress_key(one): layout.progress(rows) for one, rows in members.items()})

    def _put_note(self, layout: WatermarkLayout, *, is_complete: bool) -> None:
        for key, content in layout.documents(complete=is_complete).items():
            self._store.ensure(key, content)
        self._store.sync()
        self._layout, self._is_complete = layout, is_complete


def open_publisher(
    found: ChunkFormat[Any],
    container: Path,
    plan: Plan,
    options: Any,
    disk: Disk,
    *,
    announced: Sequence[ArraySpec] = (),
    announces: bool = True,
    name: str = "",
    bound: SpaceBound | None = None,
) -> ChunkWriter:
    """Create or resume a container. plan is that of the format; announces is False for one of several processes.

    announced are the levels that a new container states; empty: those of the plan. name: the dataset's; "": as in the
    container's name.
    Writing the first file raises ConfigError on a disk without holes that has no space for all planned ones.
    Raises DatasetExists if the folder holds something else, CorruptDataset if its documents are damaged, StorageError.
    """
    plan = replace(plan, name=name or container.name.removesuffix(found.suffix))
    layout = found.layout(plan, options)
    known = bound or SpaceBound(disk, str(container.parent), f"mirror {container.name}", 0)
    on_full = partial(known.require_full, *plan.sizes())
    store = LocalStore(container, disk, temporary_folder=layout.temporary_folder, on_full=on_full)
    layout = layout.with_levels(announced) if announced else layout
    lists = LocalStore(view_folder(container, "view"), disk)
    publisher: Publisher | WatermarkPublisher
    if isinstance(layout, WatermarkLayout):
        publisher = WatermarkPublisher(layout, store, container.name, announces=announces, lists=lists)
    else:
        beside = LocalStore(container.parent, disk, makes_root=False)
        publisher = Publisher(layout, store, beside, container.name, lists)
    publisher.begin()
    return publisher
