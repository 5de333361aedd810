"""The stack files of one dataset, one after the other; the next one is prepared before it is needed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

from acqstream.errors import StorageError, wrapping
from acqstream.formats.ndtiff.layout import NDTiffLayout, Page
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.stack_file import StackFile
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform import FILES


class Stack:
    """A stack file in use: the file, its number, its name, and its last published page."""

    __slots__ = ("file", "header_bytes", "last_page", "name", "number")

    def __init__(self, file: StackFile, number: int, name: str) -> None:
        self.file = file
        self.number = number
        self.name = name
        self.header_bytes = file.end
        self.last_page: Page | None = None


class Stacks:
    """Makes, begins and finishes stack files. `begin` is the writer's, `prepare` and `finish` the committer's.

    io is how the files are written, "direct" or "buffered"; "" until the first one is prepared. io_why is the
    reason for "buffered".
    """

    def __init__(self, disk: Disk, folder: str, layout: Callable[[], NDTiffLayout], *, limit_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._layout = layout
        self._limit_bytes = limit_bytes
        self._next_number = 0
        self._prepared: StackFile | None = None
        self._unfinished: list[Stack] = []
        self._lock = threading.Lock()
        self.io = self.io_why = ""

    def resume_at(self, number: int) -> None:
        """Before the first file: its number, above every stack that exists."""
        self._next_number = number

    def prepare(self) -> None:
        """Make the next file under its private name, with space reserved. Idempotent."""
        with self._lock:
            if self._prepared is None:
                self._prepared = self._create()
                if not self.io:
                    self._note_io(self._prepared)

    def reopen(self, folder: str) -> None:
        """Open again what `close` has closed; the folder has this path now. Raises StorageError."""
        self._folder = folder
        for stack in self._unfinished:
            stack.file.reopen(os.path.join(folder, stack.name))

    def close(self) -> None:
        """Close the unfinished files as they are, whatever fails; no file is prepared. Raises OSError."""
        with contextlib.ExitStack() as files:
            for stack in self._unfinished:
                files.callback(stack.file.close)

    @property
    def reserved_bytes(self) -> int:
        """Space reserved and not written yet; it does not count as free on the disk."""
        files = [stack.file for stack in self._unfinished.copy()]
        return sum(file.reserved_ahead_bytes for file in [*files, *filter(None, [self._prepared])])

    def begin(self, header: bytes) -> Stack:
        """The next stack file, with its header and its name. Raises StorageError."""
        with self._lock:
            file = self._prepared or self._create()
            self._prepared = None
            number = self._next_number
            self._next_number += 1
        memory = PageMemory(len(header)).view
        memory[:] = header
        try:
            file.begin(memory)
        except StorageError as error:
            try:
                file.discard()
            except OSError as again:
                error.add_note(f"and the file could not be removed: {again}")
            else:
                with self._lock:
                    if self._prepared is None and self._next_number == number + 1:
                        self._next_number = number  # the name is free again
            raise
        self._note_io(file)
        stack = Stack(file, number, self._layout().stack_name(number))
        self._unfinished.append(stack)
        return stack

    def finish(self, stack: Stack) -> None:
        """Close the page chain after the last published page and cut the file to its exact length."""
        patches, length = self._layout().finish(stack.last_page)
        stack.file.finish(patches, stack.header_bytes if length is None else length)
        if stack in self._unfinished:
            self._unfinished.remove(stack)

    def drop(self, stack: Stack) -> None:
        """Remove a file without a published page."""
        with wrapping(stack.file.path, "cannot remove"):
            stack.file.discard()
        self._unfinished.remove(stack)

    def unfinished(self) -> list[Stack]:
        """Begun and not finished: none, or the last one, unless there were errors."""
        return list(self._unfinished)

    def discard_prepared(self) -> None:
        """Remove a prepared file that was not needed."""
        with self._lock:
            if self._prepared is not None:
                self._prepared.discard()
                self._prepared = None

    def _note_io(self, file: StackFile) -> None:
        self.io, self.io_why = file.io, file.buffered_reason
        if file.direct and file.end and (why := FILES.why_cached(file.path)):
            self.io, self.io_why = "buffered", why

    def _create(self) -> StackFile:
        name = self._layout().stack_name(self._next_number)
        path = os.path.join(self._folder, name)
        if os.path.exists(path):
            raise StorageError(FileExistsError(17, "the stack file exists already"), path, "cannot create")
        return StackFile(self._disk, path, limit_bytes=self._limit_bytes)
