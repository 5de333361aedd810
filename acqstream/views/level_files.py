"""The files of all lower levels of one dataset, written in a thread of their own, and their way into the dataset.

Files are only appended to: a tile that is written again has a second page and a later index entry, which wins in every
reader. Pixels are forced before the entries that publish them. Files of a killed process are continued in a new stack
file, after the last intact index entry.

A level is made in the view's own folder, where no reader looks. One rename moves it into the dataset with its first
published tile, after the level before it, so that readers can open the dataset at any moment. Rebuilt levels stay in
the view's folder until all are complete. Then the old ones are removed, the last one first, and the new ones moved in.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, DiskFull, StorageError
from acqstream.formats.ndtiff.folders import level_name, stack_paths
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.index_file import IndexFile
from acqstream.formats.ndtiff.layout import (
    BLOCK_BYTES,
    DIRECTORY_STEP,
    NDTiffLayout,
    Page,
    Pages,
    Placement,
    RollOver,
    align_up,
)
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.log.stacks import Stack, Stacks
from acqstream.model.axes import Axes
from acqstream.model.frame_header import FrameHeader, FrameRun
from acqstream.storage.files.append_file import AppendFile
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import make_folder, remove_tree
from acqstream.storage.files.stack_file import StackFile, finish_file
from acqstream.storage.page_memory import PageMemory


@dataclass(slots=True)
class _Write:
    file: StackFile
    blocks: Sequence[memoryview]
    offset: int
    future: Future[None] | None  # None: it failed and is retried


class WriteBehind:
    """Writes in the order of `submit`. Used by one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="level-writer")
        self._writes: deque[_Write] = deque()

    def submit(self, file: StackFile, blocks: Sequence[memoryview], offset: int) -> None:
        """Order a `StackFile.write`. The blocks stay until `finish`, and must not change before `wait` or `finish`."""
        self._writes.append(_Write(file, blocks, offset, self._thread.submit(file.write, blocks, offset)))

    def finish(self) -> None:
        """Wait until all is written. Raises StorageError; after DiskFull the next call retries the failed write."""
        while self._writes:
            write = self._writes[0]
            if write.future is None:
                self.wait()  # with two threads in a stack file and little space, one may cut off the bytes of the other
                write.file.write(write.blocks, write.offset)
            else:
                try:
                    write.future.result()
                except DiskFull:
                    write.future = None
                    raise
            self._writes.popleft()

    def wait(self) -> None:
        """Wait until no write is running. `finish` raises their errors."""
        wait([write.future for write in self._writes if write.future is not None])

    def close(self) -> None:
        """End the thread, and drop the writes that have not started."""
        self._thread.shutdown(cancel_futures=True)
        self._writes.clear()


class LevelFiles:
    """One level in `folder`, which is created if missing. stack_header is the start of all its stack files.

    No reader sees a frame between `write` and `publish`. After DiskFull both may be called again. writer outlives the
    level, and is closed before it.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        layout: NDTiffLayout,
        stack_header: bytes,
        *,
        writer: WriteBehind,
        limit_bytes: int,
    ) -> None:
        self.folder = folder
        self._disk = disk
        self._layout = layout
        self._stack_header = stack_header
        self._writer = writer
        self._stack: Stack | None = None
        self._end = 0  # of the stack file, with all ordered writes
        self._pages: list[Pages] = []  # written and not published
        self._heads: list[memoryview] = []  # their memory before the pixels
        self._spare_heads: list[memoryview] = []
        self._stacks = Stacks(disk, os.fspath(folder), lambda: layout, limit_bytes=limit_bytes)
        self._index, self._reader = self._open()

    def __len__(self) -> int:
        """Frames published, earlier ones of the same axes included."""
        return len(self._reader)

    @property
    def index_bytes(self) -> int:
        return self._index.end

    def write(self, header: FrameHeader, pixels: memoryview) -> None:
        """Write a frame. pixels: page-aligned memory with its payload, and zeros up to a block boundary; it stays
        until `publish`.

        Raises StorageError, FrameRefused if no stack file can hold it.
        """
        frames = FrameRun.of([header])
        placement = None if self._stack is None else self._layout.place(frames, self._end, None)
        if placement is None or isinstance(placement, RollOver):
            self._layout.check(header)
            self._roll_over()
            assert self._stack is not None
            placement = self._layout.place(frames, self._end, None)
            assert isinstance(placement, Placement)
        assert self._stack is not None
        pages = self._layout.close([placement])
        head_bytes = (placement.pixels if not placement.packed else placement.group_end) - placement.group_start
        head = self._new_head(head_bytes)
        blocks = [head]
        if placement.packed:
            # a small tile lies among the pages: one copy costs less than a write of its own
            start = placement.pixels - placement.group_start
            head[start : start + header.payload_bytes] = pixels[: header.payload_bytes]
        else:
            blocks.append(pixels[: align_up(header.payload_bytes)])
        self._layout.fill(head, [placement], pages)
        self._writer.submit(self._stack.file, blocks, placement.group_start)
        self._end = placement.group_start + sum(map(len, blocks))
        self._pages.append(pages)

    def publish(self) -> None:
        """Wait for all writes, force them, then add them to the index. Raises StorageError."""
        if not self._pages:
            return
        assert self._stack is not None
        self._writer.finish()
        try:
            self._stack.file.sync()
        except DiskFull as error:  # after a failed sync the file's content is unknown: a second sync proves nothing
            raise StorageError(error, self._stack.file.path, "cannot force to the disk") from error
        self._index.append(b"".join(self._layout.index_entries(pages, self._stack.name) for pages in self._pages))
        self._stack.last_page = self._pages[-1][-1]
        self._pages = []
        self._spare_heads += self._heads  # only now: until the sync a failed write may be repeated from them
        self._heads = []
        self._reader.refresh()

    def force(self) -> None:
        """Force everything published. Raises StorageError."""
        self._index.sync()

    def read(self, axes: Axes) -> NDArray[Any]:
        """Return the latest published tile with these axes. Raises FrameNotFound."""
        return self._reader.read_pixels(self._reader.row(axes))

    def has(self, axes: Axes) -> bool:
        """Return whether some version of a tile is published."""
        return self._reader.find(axes) is not None

    def move(self, folder: Path) -> None:
        """Rename the folder with its files, when all are published. Raises StorageError.

        Windows renames no folder with open files in it, so all are closed and opened again.
        """
        try:
            self.close()
            self._disk.replace(os.fspath(self.folder), os.fspath(folder))
            parents, self.folder = (folder.parent, self.folder.parent), folder
            for parent in parents:
                self._disk.sync_directory(os.fspath(parent))
        except OSError as error:
            raise StorageError.wrap(error, os.fspath(folder), "cannot move the level into the dataset") from error
        finally:  # also where it was: after DiskFull the level is moved later
            self._reopen()

    def finish(self) -> None:
        """Publish, and end the stack file; a further frame begins another one. Raises StorageError."""
        self.publish()
        self.force()
        if self._stack is not None:
            self._stacks.finish(self._stack)
            self._stack = None

    def close(self) -> None:
        """Close all files as they are, whatever fails. Raises OSError."""
        with contextlib.ExitStack() as files:
            files.callback(self._index.close)
            files.callback(self._reader.close)
            files.callback(self._stacks.close)

    def _reopen(self) -> None:
        """Open all files again after `close`. Raises StorageError; not DiskFull, after which they would be used."""
        try:
            self._index = AppendFile(self._disk, os.fspath(self.folder / INDEX_NAME), create=False, end=self._index.end)
            self._reader = NDTiffReader(self.folder, self.folder)
            self._stacks.reopen(os.fspath(self.folder))
        except DiskFull as error:
            raise StorageError(error, os.fspath(self.folder), "cannot open the level again") from error

    def _roll_over(self) -> None:
        if self._stack is not None:
            self.finish()
        self._stack = self._stacks.begin(self._stack_header)
        self._end = self._stack.file.end

    def _new_head(self, length: int) -> memoryview:
        """Return memory for the bytes before the pixels, until `publish`."""
        head = self._spare_heads.pop() if self._spare_heads else PageMemory(BLOCK_BYTES).view
        if len(head) < length:
            head = PageMemory(align_up(length)).view
        self._heads.append(head)
        return head[:length]

    def _open(self) -> tuple[AppendFile, NDTiffReader]:
        path = os.fspath(self.folder / INDEX_NAME)
        make_folder(self._disk, os.fspath(self.folder))
        is_new = not os.path.exists(path)
        with contextlib.ExitStack() as files:
            index = AppendFile(self._disk, path, create=is_new)
            files.callback(index.close)
            entries = IndexFile(self.folder)
            reader = NDTiffReader(self.folder, self.folder, entries)
            files.callback(reader.close)
            index.cut(entries.consumed)  # a torn entry of a killed process would hide all that follow it
            self._finish_last(reader)
            files.pop_all()  # all is well: they stay open
        return index, reader

    def _finish_last(self, reader: NDTiffReader) -> None:
        """End the last stack file after its last published page, remove files without one."""
        names = _stack_names(self._layout, len(stack_paths(self.folder)) + 1)
        count = 0
        if len(reader):
            name, frame = reader.stored_frame(len(reader) - 1)
            metadata = reader.metadata_bytes(len(reader) - 1)
            header = FrameHeader(0, frame.pixel_type, frame.height, frame.width, {}, metadata)
            directory = min(frame.pixels, frame.metadata) - DIRECTORY_STEP  # a group of ours is one frame
            patches, length = self._layout.finish(Page(header, directory, frame.pixels, frame.metadata))
            assert length is not None
            try:
                finish_file(self._disk, os.fspath(self.folder / name), patches, length)
            except OSError as error:
                raise StorageError.wrap(error, os.fspath(self.folder / name), "cannot finish") from error
            if name not in names:
                raise CorruptDataset(f"the index names {name}, not a stack file of this level", path=str(self.folder))
            count = names.index(name) + 1
        for name in names[count:]:
            for leftover in (self.folder / name, self.folder / f"{name}.part"):
                if leftover.exists():
                    remove(self._disk, leftover)
        self._stacks.resume_at(count)


def _stack_names(layout: NDTiffLayout, count: int) -> Sequence[str]:
    return [layout.stack_name(number) for number in range(count)]


def remove(disk: Disk, path: Path) -> None:
    """Remove a file. Raises StorageError."""
    try:
        disk.unlink(os.fspath(path))
    except OSError as error:
        raise StorageError.wrap(error, os.fspath(path), "cannot remove") from error


_REMOVED = "removed"  # folder of replaced levels until they are deleted


def level_folders(dataset: Path) -> list[Path]:
    """Return the existing folders of lower levels."""
    numbers = itertools.count(1)
    return list(itertools.takewhile(Path.is_dir, (dataset / level_name(level) for level in numbers)))


class PyramidLevels:
    """dataset is the container, workshop the view's own folder. is_remade: levels are moved into it at the end only."""

    def __init__(self, disk: Disk, dataset: Path, workshop: Path, *, is_remade: bool) -> None:
        self._disk = disk
        self._dataset = dataset
        self._workshop = workshop
        self._is_remade = is_remade
        self._layout: NDTiffLayout | None = None
        self._stack_header = b""
        self._limit_bytes = 0
        self._levels: list[LevelFiles] = []  # from level 1 on
        self._writer = WriteBehind()

    def __len__(self) -> int:
        return len(self._levels)

    def __getitem__(self, level: int) -> LevelFiles:
        """One of the levels that are open, from 1 on."""
        return self._levels[level - 1]

    def begin(self, layout: NDTiffLayout, stack_header: bytes, *, limit_bytes: int) -> None:
        """Set the common properties of all stack files, before the first tile."""
        self._layout, self._stack_header, self._limit_bytes = layout, stack_header, limit_bytes

    def open(self, count: int) -> None:
        """Open at least `count` levels for writing, and resume existing ones. Raises StorageError."""
        assert self._layout is not None
        while len(self._levels) < count:
            name = level_name(len(self._levels) + 1)
            place = self._dataset / name
            folder = place if place.is_dir() and not self._is_remade else self._workshop / name
            self._levels.append(
                LevelFiles(
                    self._disk,
                    folder,
                    self._layout,
                    self._stack_header,
                    writer=self._writer,
                    limit_bytes=self._limit_bytes,
                )
            )

    def n_existing(self) -> int:
        """Return the number of levels that an earlier run has left."""
        folders = (self._dataset, self._workshop)
        exists = (any((folder / level_name(n)).is_dir() for folder in folders) for n in itertools.count(1))
        return sum(1 for _ in itertools.takewhile(bool, exists))

    def wait(self) -> None:
        """Wait until the writer reads no tile's memory. `publish` raises its errors."""
        self._writer.wait()

    def publish(self) -> None:
        """Publish the tiles that were written, and move levels into the dataset. Raises StorageError."""
        for level in self._levels:
            level.publish()
        if not self._is_remade:
            self._move_in()

    def index_bytes(self) -> list[int]:
        return [level.index_bytes for level in self._levels]

    def counts(self) -> list[int]:
        """Return the number of published tiles by level, repeated ones included."""
        return [len(level) for level in self._levels]

    def force(self) -> None:
        """Force everything published. Raises StorageError."""
        for level in self._levels:
            level.force()

    def finish(self) -> None:
        """Publish and end all files; rebuilt levels replace the old ones. Raises StorageError."""
        for level in self._levels:
            level.finish()
        if self._is_remade:  # the old ones are complete, and serve readers until here
            self._remove(level_folders(self._dataset))
            self._is_remade = False
        self._move_in()

    def clear(self) -> None:
        """Remove all levels; during a rebuild those in the dataset stay. Raises StorageError."""
        self.close()
        if not self._is_remade:
            self._remove(level_folders(self._dataset))
        for path in self._workshop.glob("Downsampled_x*"):
            remove_tree(self._disk, os.fspath(path))

    def close(self) -> None:
        """Close all files, whatever fails. Tiles written and not published may be lost. Raises OSError."""
        self._writer.close()
        self._writer = WriteBehind()
        with contextlib.ExitStack() as levels:
            for level in self._levels:
                levels.callback(level.close)
            self._levels = []

    def _move_in(self) -> None:
        for number, level in enumerate(self._levels, 1):
            if not len(level):
                return
            place = self._dataset / level_name(number)
            if level.folder != place:
                level.move(place)

    def _remove(self, folders: Sequence[Path]) -> None:
        bin_folder = self._workshop / _REMOVED
        remove_tree(self._disk, os.fspath(bin_folder))
        if not folders:
            return
        try:
            self._disk.mkdir(os.fspath(bin_folder))
            for folder in reversed(folders):
                try:
                    self._disk.replace(os.fspath(folder), os.fspath(bin_folder / folder.name))
                except PermissionError:  # Windows, while a program reads it: its files can be removed
                    remove_tree(self._disk, os.fspath(folder))
            self._disk.sync_directory(os.fspath(self._dataset))
        except OSError as error:
            raise StorageError.wrap(error, os.fspath(self._dataset), "cannot remove the old levels") from error
        remove_tree(self._disk, os.fspath(bin_folder))
