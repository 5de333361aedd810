"""The log's own small files in a dataset's folder: journal, index, state, receipt, display settings, notes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from acqstream.errors import AcquisitionRefused, CorruptDataset, DatasetExists, StorageError, wrapping
from acqstream.formats.ndtiff.folders import NOTES_NAME
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.layout import DISPLAY_SETTINGS_NAME, NDTiffLayout, display_settings_bytes
from acqstream.log import journal
from acqstream.log.continuation import Continuation, next_stack_number, read_continuation
from acqstream.log.frame_keys import FrameKeys
from acqstream.log.state_file import RECEIPT_NAME, DatasetState, remove_file, write_state
from acqstream.model.metadata import dump_ascii
from acqstream.model.receipt import MissingFrames, Receipt
from acqstream.model.run_note import MAX_NOTES, MAX_NOTES_BYTES, RunNote, parse_notes
from acqstream.model.state import AcquisitionState
from acqstream.storage.files.append_file import AppendFile
from acqstream.storage.files.atomic_file import replace_file
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import make_folder
from acqstream.storage.files.read_file import is_absent


class DatasetFiles:
    """Journal and index, held open and locked until `close`. Made by `create` or `open`."""

    def __init__(
        self, disk: Disk, folder: str, state: DatasetState, *, journal_file: AppendFile, index_file: AppendFile
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._state = state
        self.journal = journal_file
        self.index = index_file

    @staticmethod
    def create(disk: Disk, folder: str, state: DatasetState) -> DatasetFiles:
        """Make the folder of a new dataset, those that its name has before, and its first files.

        On return the folders, the journal's header and the state survive a power cut. Raises DatasetExists or
        StorageError.
        """
        above = Path(os.path.abspath(folder)).parents
        for number in reversed(range(state.name.count("/"))):
            make_folder(disk, str(above[number]))
            _force_name(disk, str(above[number]))  # also of an existing one: its creator may have been killed
        _make_folder(disk, folder)
        stack_folder = state.stack_folder(folder)
        with contextlib.ExitStack() as undo:
            journal_file = _locked_journal(disk, folder, undo, create=True)
            journal_file.append(journal.encode_journal_header(state.dataset_id, clean=False))
            journal_file.sync()
            if stack_folder != folder:
                _make_folder(disk, stack_folder)
            index_file = AppendFile(disk, os.path.join(stack_folder, INDEX_NAME), create=True)
            undo.callback(index_file.close)
            files = DatasetFiles(disk, folder, state, journal_file=journal_file, index_file=index_file)
            write_state(disk, folder, state)  # forces the folder too
            _force_name(disk, folder)
            undo.pop_all()
            return files

    @staticmethod
    def open(
        disk: Disk, folder: str, state: DatasetState, layout: NDTiffLayout, keys: FrameKeys | None
    ) -> tuple[DatasetFiles, Continuation]:
        """Open the files of an interrupted dataset to resume it; its axes go into `keys`.

        On return its new state, being written, survives a power cut. Raises DatasetLocked if another process
        writes it, CorruptDataset or StorageError.
        """
        with contextlib.ExitStack() as undo:
            journal_file = _locked_journal(disk, folder, undo, create=False)
            stack_folder = state.stack_folder(folder)
            continuation = read_continuation(folder, stack_folder, layout, gaps=state.gaps, keys=keys)
            journal_file.end = continuation.journal_end
            index_file = AppendFile(
                disk, os.path.join(stack_folder, INDEX_NAME), create=False, end=continuation.index_end
            )
            undo.callback(index_file.close)
            request = {**state.request, "summary": continuation.summary} if continuation.summary else state.request
            running = dataclasses.replace(state, state=AcquisitionState.RUNNING, reason="", request=request)
            write_state(disk, folder, running)  # first: recovery mends the rest, if this is cut short
            # A header of the newest version: records of older ones are valid there.
            journal_file.rewrite(0, journal.encode_journal_header(state.dataset_id, clean=False))
            journal_file.sync()
            # Of a close or resumption that was cut short: an interrupted dataset has no receipt.
            remove_file(disk, os.path.join(folder, RECEIPT_NAME))
            if not continuation.stack_header:
                # They kept the summary of a dataset without frames; frame 0 starts new ones.
                for number in range(next_stack_number(stack_folder, layout)):
                    remove_file(disk, os.path.join(stack_folder, layout.stack_name(number)))
            undo.pop_all()
            files = DatasetFiles(disk, folder, running, journal_file=journal_file, index_file=index_file)
            return files, continuation

    def force(self) -> None:
        """Force journal and index; after a failed sync it fails for ever. Raises StorageError."""
        self.journal.sync()
        self.index.sync()

    def check(self) -> None:
        """Raise DatasetLocked if another program has changed the length of journal or index; StorageError."""
        self.journal.check()
        self.index.check()

    def write_end(self, receipt: Receipt, state: AcquisitionState, gaps: tuple[MissingFrames, ...]) -> None:
        """Write receipt and final state, mark a forced journal clean. May be tried again. Raises StorageError."""
        if state is not AcquisitionState.INTERRUPTED:
            content = dump_ascii(receipt.as_dict())
            replace_file(self._disk, os.path.join(self._folder, RECEIPT_NAME), content)
        final = dataclasses.replace(self._state, state=state, reason=receipt.reason, gaps=gaps)
        write_state(self._disk, self._folder, final)
        if receipt.is_forced:
            self.journal.rewrite(0, journal.encode_journal_header(self._state.dataset_id, clean=True))
            if self.journal.sync_error is None:
                self.journal.sync()

    def close(self) -> None:
        """Close the files and release the lock. Raises StorageError."""
        try:
            self.index.close()
        except OSError as error:
            raise StorageError.wrap(error, self.index.path, "cannot close") from error
        finally:
            with wrapping(self.journal.path, "cannot close"):
                self.journal.close()


def _locked_journal(disk: Disk, folder: str, undo: contextlib.ExitStack, *, create: bool) -> AppendFile:
    file = AppendFile(disk, os.path.join(folder, journal.JOURNAL_NAME), create=create)
    undo.callback(file.close)
    file.lock()
    return file


def _force_name(disk: Disk, path: str) -> None:
    with wrapping(path, "cannot force its name to the disk"):
        disk.sync_directory(os.path.dirname(os.path.abspath(path)))


def _make_folder(disk: Disk, folder: str) -> None:
    try:
        disk.mkdir(folder)
    except FileExistsError as error:
        raise DatasetExists(f"{folder} exists already") from error
    except OSError as error:
        raise StorageError.wrap(error, folder, "cannot create the dataset's folder") from error


class DisplayFile:
    """The display settings beside the stacks: the last ones count, and trouble with them harms no frame.

    attempt does what may fail, see `Finalizer`.
    """

    def __init__(self, disk: Disk, folder: str, attempt: Callable[[Callable[[], None]], None]) -> None:
        self._disk = disk
        self._path = os.path.join(folder, DISPLAY_SETTINGS_NAME)
        self._attempt = attempt
        self._content: bytes | None = None

    def set(self, settings: Mapping[str, Any]) -> None:
        """Set the settings that `write` writes. Raises ProtocolError if it cannot be JSON."""
        self._content = display_settings_bytes(settings)

    def write(self) -> None:
        """Replace the file, if there is something to write."""
        if (content := self._content) is not None:
            self._attempt(lambda: replace_file(self._disk, self._path, content))


class NoteFile:
    """Adds notes to a dataset's folder, each forced to the disk. Notes of other programs between them stay.

    For threads that may wait for the disk. The file is open only while a note is added: most runs have none. attempts:
    a hundredth of a second apart, while another program adds one; a daemon has little time for all its runs.
    """

    def __init__(self, disk: Disk, folder: str, attempts: int = 50) -> None:
        self._disk = disk
        self._folder = folder
        self._attempts = attempts
        self._lock = threading.Lock()
        self._frames: dict[str, int | None] = {}  # by the id of each note that the file has up to `_end`
        self._end = 0

    def add(self, note: RunNote) -> RunNote:
        """Add a note, unless it is there; return it as it is stored: the frame is that of the first time it came.

        On return it survives a power cut. A last note that is torn is cut off. Raises AcquisitionRefused if the folder
        has as many as it may have, CorruptDataset for a damaged file, DatasetLocked, StorageError.
        """
        with self._lock:
            file = self._open()
            try:
                if self._end == 0:
                    _force_name(self._disk, file.path)
                file.lock(self._attempts)
                self._read(file)
                if note.id not in self._frames:
                    self._append(file, note)
            finally:
                file.close()
            return dataclasses.replace(note, frame=self._frames[note.id])

    def _open(self) -> AppendFile:
        path = os.path.join(self._folder, NOTES_NAME)
        try:
            return AppendFile(self._disk, path, create=False, end=self._end)
        except StorageError as error:
            if not is_absent(error):
                raise
        self._frames, self._end = {}, 0  # the folder may be another one now
        try:
            return AppendFile(self._disk, path, create=True)
        except StorageError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise
        return AppendFile(self._disk, path, create=False)  # another program made it since

    def _read(self, file: AppendFile) -> None:
        """Take in what the file has after the notes that are known."""
        rest = file.read_rest(MAX_NOTES_BYTES + 1)
        if self._end + len(rest) > MAX_NOTES_BYTES:
            raise CorruptDataset(f"has more than {MAX_NOTES_BYTES:,} bytes", path=file.path)
        try:
            notes, length = parse_notes(rest)
        except ValueError as error:
            raise CorruptDataset(str(error), path=file.path, offset=self._end) from error
        end = self._end + length
        if length < len(rest):
            file.cut(end)
        file.end = self._end = end
        self._frames.update((one.id, one.frame) for one in notes)
        file.check()

    def _append(self, file: AppendFile, note: RunNote) -> None:
        line = note.line()
        if len(self._frames) >= MAX_NOTES or self._end + len(line) > MAX_NOTES_BYTES:
            text = f"{file.path} has {len(self._frames):,} notes; expected at most {MAX_NOTES:,} in {MAX_NOTES_BYTES:,}"
            raise AcquisitionRefused(f"{text} bytes", code="too_many_notes")
        try:
            file.append(line)
            file.sync()
        except StorageError as error:
            try:
                file.cut(self._end)  # it was refused: a reader must not find it
            except StorageError as fault:
                error.add_note(f"the note could not be cut off again: {fault}")
            raise
        self._frames[note.id], self._end = note.frame, file.end
