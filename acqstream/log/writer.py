"""The writing thread: every group goes to the stack as soon as it is closed; batches go to the committer.

A batch ends at once if BATCH_INTERVAL_S have passed since the last one, else at that deadline, or when it is large. So
a lone frame waits for no timer, bursts share their syncs, and a slow disk stretches the interval by itself.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from acqstream.errors import DiskFull, StorageError
from acqstream.log.committer import Batch, Committer
from acqstream.log.group import Gap, Group, add_gap
from acqstream.log.intake import Intake
from acqstream.log.recent_frames import GroupTable
from acqstream.log.stacks import Stack, Stacks
from acqstream.log.threads import SpaceGate

BATCH_INTERVAL_S = 0.05
BATCH_BYTES = 64 * 2**20
WRITE_BYTES = 16 * 2**20  # groups side by side go out in one call of about this size


class Writer:
    """Takes closed groups from the intake and writes them, in order, until the intake is closing and empty.

    on_warning(code, text) reports errors that were handled. table, for views, is invalidated when groups go to other
    files than the intake announced. check_late gets each group with pixels outside once it is written, to detect
    changes before that. Errors leave `run`; DiskFull only after the wait at the gate was abandoned and what was written
    is submitted.
    """

    def __init__(
        self,
        intake: Intake,
        stacks: Stacks,
        committer: Committer,
        gate: SpaceGate,
        *,
        batch_bytes: int,
        on_warning: Callable[[str, str], None],
        check_late: Callable[[Group], None],
        table: GroupTable | None = None,
    ) -> None:
        self._intake = intake
        self._placing = intake.placing
        self._check_late = check_late
        self._stacks = stacks
        self._committer = committer
        self._gate = gate
        self._batch_bytes = min(BATCH_BYTES, batch_bytes)
        self._on_warning = on_warning
        self._table = table
        self._batch: list[Group | Gap] = []
        self._size = 0  # of the batch
        self._due_s = 0.0
        self._logical_stack: int | None = None
        self._moved_at: int | None = None  # number of published frames when a stack file was last abandoned
        self.stack: Stack | None = None
        self.stopped = threading.Event()  # an error elsewhere: stop without writing more

    def run(self) -> None:
        """Write until everything received is published and the intake is closing."""
        while not self.stopped.is_set():
            entries = self._next_entries()
            if entries is None:
                break
            if self._committer.failed is not None:
                self._move(self._committer.failed[1])
            for entry in entries:
                self._take(entry)
            self._write()
            if self._is_due() and self._committer.is_idle:
                self._submit()

    def _next_entries(self) -> list[Group | Gap] | None:
        """Wait for something to do: closed groups, or an empty list when a commit is due. None: all is published."""
        intake = self._intake
        with intake.condition:
            while True:
                if self._committer.failed is not None or self.stopped.is_set():
                    return []
                if intake.has_closed:
                    return intake.pop_closed(WRITE_BYTES)
                if self._batch or intake.has_frames:
                    wait_s = self._wait_s()
                    if wait_s is not None and wait_s <= 0 and (intake.close_group() or self._batch):
                        return intake.pop_closed(WRITE_BYTES)
                elif intake.is_closing and self._committer.is_idle and self._committer.failed is None:
                    return None  # in this order: a failing commit sets `failed` before it is idle
                else:
                    wait_s = None
                intake.condition.wait(wait_s if wait_s is None or wait_s > 0 else None)

    def _wait_s(self) -> float | None:
        """Seconds until the batch is due; None while a commit runs (it wakes this thread when done)."""
        if not self._committer.is_idle:
            return None
        return 0.0 if self._intake.is_closing else self._due_s - time.monotonic()

    def _is_due(self) -> bool:
        if not self._batch:
            return False
        return self._size >= self._batch_bytes or self._intake.is_closing or time.monotonic() >= self._due_s

    def _take(self, entry: Group | Gap) -> None:
        """Add an entry to the batch; a group of the next stack file first ends the batch of this one."""
        if isinstance(entry, Group):
            if entry.stack != self._logical_stack:
                self._roll_over()
                self._logical_stack = entry.stack
                if self.stack is not None and self.stack.number != entry.stack:
                    self._disown_table()
            entry.fill(self._placing.layout)
            self._batch.append(entry)
        else:
            add_gap(self._batch, entry)

    def _disown_table(self) -> None:
        """Stack files are numbered otherwise from now on, because one failed."""
        if self._table is not None:
            self._table.move()

    def _roll_over(self) -> None:
        self._write()
        if self.stack is not None:
            self._submit(is_last_of_stack=True)
        self.stack = self._begin_stack()

    def _begin_stack(self) -> Stack:
        """Make the next stack file. Try again after one failure, and on a full disk once it has space."""
        is_again = False
        while True:
            try:
                stack = self._stacks.begin(self._placing.stack_header)
            except DiskFull as error:
                self._wait_for_space(error)
            except StorageError as error:
                if is_again:
                    self._name_frame(error)
                    raise
                is_again = True
                self._on_warning("io_error", f"{error}; trying once more")
            else:
                self._gate.passed()
                return stack

    def _write(self) -> None:
        """Write the unwritten groups of the batch; on a full disk once it has space."""
        while True:
            try:
                is_done = self._write_groups()
            except DiskFull as error:
                self._submit_written()
                self._wait_for_space(error)
            except StorageError as error:
                self._wait_until_idle()
                self._move(error)
            else:
                self._gate.passed()
                if is_done:
                    return
                self._submit_written(is_last_of_stack=True)
                self.stack = self._begin_stack()

    def _wait_for_space(self, error: DiskFull) -> None:
        self._name_frame(error)
        if self.stopped.is_set():
            raise error
        self._gate.wait(error)

    def _name_frame(self, error: StorageError) -> None:
        """Note in the error the first frame that is not stored."""
        error.number = self._committer.published

    def _submit_written(self, *, is_last_of_stack: bool = False) -> None:
        """Publish the frames before the one that found no space."""
        batch = self._batch
        count = sum(1 for _ in itertools.takewhile(_is_written, batch))
        self._batch = batch[:count]
        self._submit(is_last_of_stack=is_last_of_stack)
        self._batch += batch[count:]

    def _write_groups(self) -> bool:
        """Return False if the remaining groups were laid out for other files and do not fit into this one."""
        stack, layout = self.stack, self._placing.layout
        if stack is None:
            return True
        end = stack.file.end
        is_done = True
        run: list[Group] = []
        for entry in self._batch:
            if not isinstance(entry, Group) or entry.is_written:
                continue
            if entry.start != end:  # its first file was abandoned
                is_done = layout.fits(end + entry.end - entry.start)
                if not is_done:
                    break
                entry.move(entry.stack, end, layout)
            end = entry.end
            run.append(entry)
            if end - run[0].start >= WRITE_BYTES:
                self._write_run(stack, run)
                run = []
        if run:
            self._write_run(stack, run)
        return is_done

    def _write_run(self, stack: Stack, run: list[Group]) -> None:
        stack.file.write([piece for group in run for piece in group.pieces()], run[0].start)
        for group in run:
            group.is_written = True
            if group.outside is not None:
                self._check_late(group)
        self._size += run[-1].end - run[0].start

    def _submit(self, *, is_last_of_stack: bool = False) -> None:
        self._wait_until_idle()
        while self._committer.failed is not None:  # a loop: _write may submit groups, and that may fail
            self._move(self._committer.failed[1])
            self._write()
            self._wait_until_idle()
        if self.stopped.is_set():
            return  # the committer may be on its way out
        if not self._batch and not is_last_of_stack:
            return
        self._committer.submit(Batch(self._batch, self.stack, is_last_of_stack))
        self._batch = []
        self._size = 0
        self._due_s = time.monotonic() + BATCH_INTERVAL_S

    def _wait_until_idle(self) -> None:
        with self._intake.condition:
            while not self._committer.is_idle and not self.stopped.is_set():
                self._intake.condition.wait()

    def _move(self, error: StorageError) -> None:
        """Write all unpublished groups, which are still in memory, to a new stack file, after one failed."""
        self._disown_table()
        failed = self._committer.take_failed()
        dead = {id(stack): stack for stack in (self.stack, failed.stack if failed else None) if stack is not None}
        if failed is not None:
            self._batch = failed.entries + self._batch
        for entry in self._batch:
            if isinstance(entry, Group):
                entry.is_written = False
        self._size = 0
        if isinstance(error, DiskFull):  # found by a sync: a file on this disk may find space later
            self._wait_for_space(error)
        elif self._moved_at == self._committer.published:
            self._name_frame(error)
            raise error
        else:
            self._moved_at = self._committer.published
        self.stack = self._begin_stack()
        self._logical_stack = None  # later groups go to a file of their own: after these they might not fit
        first = self._committer.published
        self._on_warning("io_error", f"{error}; frames from {first} on go to {self.stack.name} instead")
        for stack in dead.values():
            self._abandon(stack)

    def _abandon(self, stack: Stack) -> None:
        """Finish a stack file whose descriptor is dead: its published pages stay."""
        try:
            if stack.last_page is None and stack.number > 0:
                self._stacks.drop(stack)
            else:
                self._stacks.finish(stack)
        except StorageError as error:
            self._on_warning("io_error", f"{stack.name} keeps its unpublished end: {error}")


def _is_written(entry: Group | Gap) -> bool:
    return isinstance(entry, Gap) or entry.is_written
