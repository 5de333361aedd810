"""Publishing, in a thread of its own: force the stack, then the journal's records, then the index entries.

The order is the promise: an entry in the index never points at bytes that a power cut could take away.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acqstream.errors import FrameRefused, StorageError
from acqstream.formats.ndtiff.layout import NDTiffLayout, index_pixel_type
from acqstream.formats.ndtiff.placement import Pages
from acqstream.log import journal
from acqstream.log.group import Gap, Group
from acqstream.log.growing_journal import GrowingJournal
from acqstream.log.space_gate import SpaceGate
from acqstream.log.stacks import Stack, Stacks
from acqstream.log.threads import make_thread
from acqstream.log.unforced import UnforcedTail
from acqstream.model.acquisition_spec import DurabilityMode
from acqstream.storage.append_file import AppendFile

PREPARE_AT_SHARE = 0.7  # of a stack file's limit


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
    durable: Callable[[int], None]  # next frame number
    idle: Callable[[], None]  # a batch was dealt with
    warning: Callable[[str, str], None]  # code and text of trouble that loses nothing
    error: Callable[[BaseException], None]  # ends the thread


class Committer:
    """Runs one commit at a time, while the writer continues.

    A failed sync leaves the batch in `failed`, and the writer writes it elsewhere. On a full disk the thread waits at
    the gate. Every other error ends the thread. records_hash covers all published journal records.
    """

    def __init__(
        self,
        name: str,
        *,
        files: tuple[GrowingJournal, AppendFile],
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
        refused = _wait_for_checksums(batch)
        if batch.entries:
            self._publish(batch)
        if refused is not None:
            self._force()  # the last commit of this acquisition
            raise refused
        if batch.stack is not None:
            if batch.is_last_of_stack:
                self._finish(batch.stack)
            elif batch.stack.file.end > self._prepare_at_bytes:
                with contextlib.suppress(StorageError):  # `begin` makes it then, or reports the error
                    self._stacks.prepare()

    def _publish(self, batch: Batch) -> None:
        self._journal.check()
        self._index.check()
        records, pages = _records(batch)
        journal_end = self._journal.end
        gaps = [entry.count for entry in batch.entries if isinstance(entry, Gap)]
        if any(map(journal.needs_version_2, gaps)):
            self._gate.run(self._journal.upgrade)
        self._gate.run(lambda: self._journal.append(records))
        self._tail.has_gap |= bool(gaps)
        if pages and batch.stack is not None:
            layout = self._layout()
            entries = b"".join(layout.index_entries(group_pages, batch.stack.name) for group_pages in pages)
            try:
                if self._tail.has_gap:
                    self._force_journal()
                self._gate.run(lambda: self._index.append(entries))
            except StorageError:
                self._journal.cut(journal_end)
                raise
            batch.stack.last_page = pages[-1][-1]
        self.records_hash.update(records)
        self.published = batch.next_number
        self._events.published(batch.entries, batch.next_number)
        self._tail.add(pages)
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
        self._events.durable(published)

    def _force_journal(self) -> None:
        """Force the journal before an entry after a gap goes into the index.

        If a power cut kept the entry and lost the gap, recovery would give its frame the number of the gap.
        """
        self._journal.sync()
        self._tail.has_gap = False

    def _is_force_due(self) -> bool:
        wait_s = self._force_in_s()
        return wait_s is not None and wait_s <= 0

    def _force_in_s(self) -> float | None:
        return self._tail.due_in_s() if self._durable < self.published else None


def _wait_for_checksums(batch: Batch) -> FrameRefused | None:
    """Wait for the checksums of all groups; at the first difference, cut the batch before that frame."""
    for number, group in enumerate(batch.entries):
        if not isinstance(group, Group):
            continue
        group.checked.wait()
        if group.mismatch is not None:
            position, refused = group.mismatch
            group.cut(position)
            batch.entries = batch.entries[: number + (position > 0)]
            return refused
    return None


def _records(batch: Batch) -> tuple[bytes, list[Pages]]:
    """Journal records of the batch, and the pages to publish in the index."""
    records: list[bytes] = []
    pages: list[Pages] = []
    for entry in batch.entries:
        if isinstance(entry, Gap):
            records.append(journal.encode_skip(entry.first_number, entry.count))
            continue
        assert batch.stack is not None
        assert entry.pages is not None
        pages.append(entry.pages)
        pixel_type = index_pixel_type(entry.pages.frames.pixel_type)
        records.append(
            journal.encode_frames(entry.pages, entry.checksums, stack=batch.stack.number, pixel_type=pixel_type)
        )
    return b"".join(records), pages
