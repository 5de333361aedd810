"""The end of an acquisition's files: stacks cut, receipt and state written; on a failing disk as much as it allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from acqstream.errors import AcqStreamError, DiskFull, StorageError
from acqstream.log.dataset_files import DatasetFiles
from acqstream.log.notes import LogNotes
from acqstream.log.space_gate import SpaceGate
from acqstream.log.stacks import Stacks
from acqstream.model.receipt import END_STATES, MissingFrames, Receipt


class Finalizer:
    """Finishes a dataset. Failures in parts that it can miss are warnings; all others fail the acquisition.

    note_forced is called when journal and index were forced: only then is all that was published durable.
    """

    def __init__(
        self,
        gate: SpaceGate,
        notes: LogNotes,
        fail: Callable[[BaseException], None],
        note_forced: Callable[[], None],
    ) -> None:
        self._gate = gate
        self._notes = notes
        self._fail = fail
        self._note_forced = note_forced

    def finish_stacks(self, stacks: Stacks, header_alone: bytes) -> None:
        """Cut all stack files to their length; header_alone is of the one that a dataset without frames keeps.

        Readers take the summary from it. The frames are published: an uncut end loses nothing.
        """
        for stack in stacks.unfinished():
            self.attempt(partial(stacks.finish, stack))
        if header_alone:
            self.attempt(lambda: stacks.finish(stacks.begin(header_alone)))
        self.attempt(stacks.discard_prepared)

    def write(
        self, files: DatasetFiles | None, make_receipt: Callable[[], Receipt], gaps: tuple[MissingFrames, ...]
    ) -> Receipt:
        """Force journal and index, then write receipt and state. The receipt lists the failures."""
        if files is None:
            return make_receipt()
        try:
            return self._write(files, make_receipt, gaps)
        finally:
            self._warn_of(files.close)

    def _write(
        self, files: DatasetFiles, make_receipt: Callable[[], Receipt], gaps: tuple[MissingFrames, ...]
    ) -> Receipt:
        if self._guard(files.force):
            self._note_forced()
        self._guard(files.check)
        receipt = make_receipt()
        if not self._guard(lambda: self._twice(lambda: files.write_end(receipt, END_STATES[receipt.status], gaps))):
            receipt = make_receipt()
            self.attempt(lambda: files.write_end(receipt, END_STATES[receipt.status], gaps))
        return receipt

    def attempt(self, action: Callable[[], None]) -> None:
        """Do it, twice if need be; trouble is a warning."""
        self._warn_of(lambda: self._twice(action))

    def _warn_of(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (OSError, AcqStreamError) as error:
            self._notes.warn("io_error", str(error))

    def _guard(self, action: Callable[[], None]) -> bool:
        """Do what the promise rests on; False, and a failed acquisition, if it could not be done."""
        try:
            action()
        except (OSError, AcqStreamError) as error:
            self._fail(error)
            return False
        return True

    def _twice(self, action: Callable[[], None]) -> None:
        """Do it, once more if it fails; on a full disk as soon as there is space, see `SpaceGate.run`."""
        try:
            self._gate.run(action)
        except DiskFull:
            raise
        except StorageError as error:
            self._notes.warn("io_error", f"{error}; trying once more")
            action()
