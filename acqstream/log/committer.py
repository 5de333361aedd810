"""Publishing, in a thread of its own: force the stack, then the journal's records, then the index entries.

The order is the promise: an entry in the index never points at bytes that a power cut could take away.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acqstream.errors import StorageError
from acqstream.formats.ndtiff.layout import NDTiffLayout, Page, Pages, index_pixel_type
from acqstream.log import journal
from acqstream.log.group import Gap, Group
from acqstream.log.journal import MAX_UNFORCED_BYTES, MAX_UNFORCED_ENTRIES
from acqstream.log.stacks import Stack, Stacks
from acqstream.log.threads import SpaceGate, make_thread
from acqstream.model.acquisition_spec import DurabilityMode
from acqstream.storage.files.append_file import AppendFile

PREPARE_AT_SHARE = 0.7  # of a stack file's limit

_FORCE_AT_ENTRIES = MAX_UNFORCED_ENTRIES // 2  # the remainder is for one batch
_FORCE_AT_BYTES = MAX_UNFORCED_BYTES // 2


@dataclass(slots=True)
class Batch:
    """The content of one commit: groups of one stack file, already written, and gaps, in order of numbers."""

    entries: list[Group | Gap]
    stack: Stack | None
    is_last_of_stack: bool = False

    @property
    def next_number(self) -> int:
        return self.entries[-1].next_number

    def groups(self) -> list[Group]:
        return [entry for entry in self.entries if isinstance(entry, Group)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEvents:
    """The events of a committer, called in its own thread."""

    begin: Callable[[], None]  # before a commit, which an error prevents
    published: Callable[[Sequence[Group | Gap], int], None]  # entries, next frame number
    durable: Callable[[], None]  # all that is published
    idle: Callable[[], None]  # a batch was dealt with
    warning: Callable[[str, str], None]  # code and text of trouble that loses nothing
    error: Callable[[BaseException], None]  # ends the thread


class Committer:
    """Runs one commit at a time, while the writer continues.

    A failed sync leaves the batch in `failed`, and the writer writes it elsewhere. On a full disk the thread waits at
    the gate. Every other error ends the thread. records_hash covers all published journal records, forced_root is
    its digest when they were forced last.
    """

    def __init__(
        self,
        name: str,
        *,
        files: tuple[AppendFile, AppendFile],
        stacks: Stacks,
        layout: Callable[[], NDTiffLayout],
        durability: DurabilityMode,
        stack_limit_bytes: int,
        gate: SpaceGate,
        events: CommitEvents,
    ) -> None:
        self._journal, self._index = files
        self._stacks = stacks
        self._layout = layout
        self._prepare_at_bytes = int(PREPARE_AT_SHARE * stack_limit_bytes)
        self._gate = gate
        self._events = events
        self.records_hash = hashlib.sha256()
        self.forced_root = ""
        self._condition = threading.Condition()
        self._batch: Batch | None = None
        self._task: Callable[[], None] | None = None
        self._stopping = False
        self.published = 0
        self._durable = 0
        self._tail = UnforcedTail(durability)
        self.failed: tuple[Batch, StorageError] | None = None
        self._thread = make_thread("commit", name, self._run)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        return self._batch is None

    def resume(self, number: int, records: bytes) -> None:
        """Before the first batch: everything below `number` was published and forced in an earlier run."""
        self.published = self._durable = number
        self.records_hash.update(records)
        self.forced_root = self.records_hash.hexdigest()

    def take_failed(self) -> Batch | None:
        """The batch whose stack could not be forced, if any, to be written elsewhere."""
        failed, self.failed = self.failed, None
        return failed[0] if failed is not None else None

    def submit(self, batch: Batch) -> None:
        """Publish `batch`; only when idle."""
        with self._condition:
            assert self._batch is None
            self._batch = batch
            self._condition.notify()

    def run_later(self, task: Callable[[], None]) -> None:
        """Have this thread do something small beside its commits; a task that has not run yet is replaced."""
        with self._condition:
            self._task = task
            self._condition.notify()

    def stop(self) -> None:
        """Deal with what was submitted, force journal and index, end the thread."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:  # noqa: BLE001 - the thread's edge: it reaches the producer
            self._events.error(error)
        finally:
            self._batch = None
            self._events.idle()

    def _step(self) -> bool:
        with self._condition:
            while self._batch is None and self._task is None and not self._stopping and not self._is_force_due():
                self._condition.wait(self._force_in_s())
            batch, stopping = self._batch, self._stopping
            task, self._task = self._task, None
        if batch is not None:
            self._commit(batch)
            self._batch = None
            self._events.idle()
        if task is not None:
            task()
        if self._is_force_due() or (stopping and self._durable < self.published):
            self._force()
        return batch is not None or not stopping

    def _commit(self, batch: Batch) -> None:
        self._events.begin()
        if batch.stack is not None:
            try:
                batch.stack.file.sync()
            except StorageError as error:
                self.failed = (batch, error)
                return
        for group in batch.groups():
            group.checked.wait()
        if batch.entries:
            self._publish(batch)
        if batch.stack is not None:
            if batch.is_last_of_stack:
                self._finish(batch.stack)
            elif batch.stack.file.end > self._prepare_at_bytes:
                with contextlib.suppress(StorageError):  # `begin` makes it then, or reports the error
                    self._stacks.prepare()

    def _publish(self, batch: Batch) -> None:
        self._journal.check()
        self._index.check()
        records, groups = _records(batch), batch.groups()
        journal_end = self._journal.end
        self._gate.run(lambda: self._journal.append(records))
        self._tail.has_gap |= any(isinstance(entry, Gap) or bool(entry.refused) for entry in batch.entries)
        if groups and batch.stack is not None:
            layout, name = self._layout(), batch.stack.name
            entries = b"".join(layout.index_entries(group.filled_pages, name, group.refused) for group in groups)
            try:
                if self._tail.has_gap:
                    self._force_journal()
                if entries:
                    self._gate.run(lambda: self._index.append(entries))
            except StorageError:
                self._journal.cut(journal_end)
                raise
            batch.stack.last_page = _last_page(groups) or batch.stack.last_page
        self.records_hash.update(records)
        self.published = batch.next_number
        self._events.published(batch.entries, batch.next_number)
        self._tail.add([group.filled_pages for group in groups])
        if self._tail.must_be_forced:
            self._force()

    def _finish(self, stack: Stack) -> None:
        try:
            self._stacks.finish(stack)
        except StorageError as error:  # its frames are published; tried again at the end
            self._events.warning("io_error", f"{error}; tried again at the end")

    def _force(self) -> None:
        """Force journal and index: everything published so far is durable."""
        published = self.published
        self._force_journal()
        self._index.sync()
        self._tail.reset()
        self._durable = published
        self.forced_root = self.records_hash.hexdigest()
        self._events.durable()

    def _force_journal(self) -> None:
        """Force the journal: with every force of the index, and before an entry after a gap goes into the index.

        If a power cut kept the entry and lost the gap, recovery would give its frame the number of the gap.
        """
        self._journal.sync()
        self._tail.has_gap = False

    def _is_force_due(self) -> bool:
        wait_s = self._force_in_s()
        return wait_s is not None and wait_s <= 0

    def _force_in_s(self) -> float | None:
        return self._tail.due_in_s() if self._durable < self.published else None


def _records(batch: Batch) -> bytes:
    """Journal records of the batch."""
    records = bytearray()
    for entry in batch.entries:
        if isinstance(entry, Gap):
            first, count = entry.first_number, entry.count
            records += journal.encode_hole(first) if entry.is_refused else journal.encode_skip(first, count)
            continue
        assert batch.stack is not None
        start, pixel_type = len(records), index_pixel_type(entry.filled_pages.frames.pixel_type)
        records += journal.encode_frames(
            entry.filled_pages,
            entry.checksums,
            entry.metadata_checksums,
            stack=batch.stack.number,
            pixel_type=pixel_type,
        )
        for position, refused in entry.refused.items():
            at = start + position * journal.RECORD_BYTES
            page = entry.filled_pages[position]  # it stays in the chain of pages
            records[at : at + journal.RECORD_BYTES] = journal.encode_hole(
                refused.number, stack=batch.stack.number, offset=page.pixels, directory=page.directory
            )
    return bytes(records)


def _last_page(groups: Sequence[Group]) -> Page | None:
    """The last page that is published, None without one."""
    for group in reversed(groups):
        pages = group.filled_pages
        for position in reversed(range(len(pages))):
            if position not in group.refused:
                return pages[position]
    return None


class UnforcedTail:
    """Decides when journal and index are forced. Used by the committing thread only.

    has_gap: the journal has a gap that is not forced.
    """

    def __init__(self, durability: DurabilityMode) -> None:
        self._durability = durability
        self.has_gap = False
        self.reset()

    def reset(self) -> None:
        """All was forced now."""
        self._entries = self._pixel_bytes = 0
        self._forced_at_s = time.monotonic()

    def add(self, pages: Sequence[Pages]) -> None:
        """The index entries of these pages were written."""
        self._entries += sum(map(len, pages))
        self._pixel_bytes += sum(group.frames.payload_bytes for group in pages)

    @property
    def must_be_forced(self) -> bool:
        """Return True if the durability demands it, or if recovery could not read more unforced entries."""
        is_large = self._entries >= _FORCE_AT_ENTRIES or self._pixel_bytes >= _FORCE_AT_BYTES
        return self._durability == "batch" or is_large

    def due_in_s(self) -> float | None:
        """Seconds until it has to be forced; None if only a batch or the end forces it."""
        if not isinstance(self._durability, int | float):
            return None
        return max(0.0, self._forced_at_s + self._durability - time.monotonic())
