"""The files of all lower levels of one dataset, and their way into it.

A level is made in the view's own folder, where no reader looks. One rename moves it into the dataset with its first
published tile, after the level before it, so that readers can open the dataset at any moment. Rebuilt levels stay in
the view's folder until all are complete. Then the old ones are removed, the last one first, and the new ones moved in.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from acqstream.errors import StorageError
from acqstream.formats.ndtiff.folders import level_name
from acqstream.formats.ndtiff.layout import NDTiffLayout
from acqstream.storage.files.disk import Disk
from acqstream.storage.files.folder_tree import remove_tree
from acqstream.views.level_files import LevelFiles, WriteBehind

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
        if self._is_remade:
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
