"""Whether a dataset will still grow.

The writer of this package says so in `acqstream.json` in the container. For datasets of other writers there are only
signs that one is unfinished (fact sheet section 7); without any it counts as complete.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from acqstream.errors import CorruptDataset, StorageError
from acqstream.formats.ndtiff.pages import StackPage, read_page, walk_pages
from acqstream.formats.ndtiff.stack_header import ByteOrder, parse_stack_header
from acqstream.model.state import AcquisitionState
from acqstream.storage.read_file import ReadFile

STATE_NAME = "acqstream.json"
PREALLOCATED_STACK_BYTES = 2**32
"""Size of a stack file that another writer has reserved and not yet cut to its length."""

ROLLOVER_MARGIN_BYTES = 5_000_000 + 176
"""A frame that would bring a stack file this near to its limit begins another one (fact sheet section 4)."""

ROLLOVER_S = 5.0
"""The reference writers end a full stack file before they begin the next one: for so long there may be one."""

_LEVELS_VIEW, _VIEW_NAME = ".pyramid", "view.json"  # the view's folder lies beside the dataset
_MAX_STATE_BYTES = 16 * 1024 * 1024  # the summary is part of it
_DIRECTORY_TO_PIXELS = (178, 184)  # of both reference writers, grey or RGB


class StateFile:
    """The state in `acqstream.json`, read again when the file has changed."""

    def __init__(self, container: Path) -> None:
        self._path = container / STATE_NAME
        self._signature: tuple[int, int, int] | None = None
        self._state: AcquisitionState | CorruptDataset | None = None

    def refresh(self) -> None:
        """Look at the file again."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._signature, self._state = None, None
            return
        except OSError as error:
            raise StorageError.wrap(error, str(self._path), "look at the state") from error
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        if signature != self._signature:
            self._state = self._read()
            self._signature = signature

    @property
    def state(self) -> AcquisitionState | None:
        """The state as of the last `refresh`, None without a file of ours. Raises CorruptDataset if it is damaged."""
        if isinstance(self._state, CorruptDataset):
            raise self._state
        return self._state

    def _read(self) -> AcquisitionState | CorruptDataset | None:
        """A damaged file is returned as an error: it does not keep anybody from reading frames."""
        file = ReadFile(self._path)
        data = file.read(0, _MAX_STATE_BYTES)
        file.close()
        try:
            content: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            return CorruptDataset(f"the state is no JSON: {error}", path=str(self._path))
        if not isinstance(content, dict) or content.get("format") != "acqstream":
            return None
        try:
            return AcquisitionState(str(content.get("state")))
        except ValueError:
            return CorruptDataset(f"unknown state {content.get('state')!r:.60}", path=str(self._path))


def levels_are_unfinished(container: Path) -> bool:
    """Whether the view that makes the lower levels says that there is more to do; False where there is none."""
    path = container.absolute()
    try:
        file = ReadFile(path.with_name(f"{path.name}{_LEVELS_VIEW}") / _VIEW_NAME)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return False
        raise
    try:
        content: Any = json.loads(file.read(0, _MAX_STATE_BYTES))
    except (ValueError, RecursionError) as error:
        raise CorruptDataset(f"the state of the levels is no JSON: {error}", path=str(file.path)) from error
    return isinstance(content, dict) and content.get("complete") is False


class FinishedSigns:
    """What a stack file tells about being finished; remembers how far its chain of pages was walked."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._last: StackPage | None = None

    def is_finished(self, file: ReadFile, byte_order: ByteOrder, pixels: int) -> bool:
        """Whether the last page of the chain has no next one, and its frame is published.

        pixels is the offset of the last frame that the index names.

        Raises CorruptDataset if the file has no stack header.
        """
        size = file.size()
        if size == PREALLOCATED_STACK_BYTES:
            return False
        if file.path != self._path:
            self._path, self._last = file.path, None
        for distance in _DIRECTORY_TO_PIXELS:  # spares the walk in what the reference writers wrote
            page = read_page(file.read, size, pixels - distance, byte_order)
            if page is not None and page.pixels == pixels:
                self._last = page
        start = self._last.directory if self._last is not None else _first_directory(file)
        for page in walk_pages(file.read, size, start, byte_order):
            self._last = page
        if self._last is None or self._last.next != 0 or self._last.pixels > pixels:
            return False
        return not _may_roll_over(file, size, pixels)


def _may_roll_over(file: ReadFile, size: int, pixels: int) -> bool:
    """Whether a frame like the last one, whose pixels begin there, had no room left, and that is only just so."""
    if 2 * size - pixels + ROLLOVER_MARGIN_BYTES < PREALLOCATED_STACK_BYTES:
        return False
    return abs(time.time() - file.modified_s()) < ROLLOVER_S


def _first_directory(file: ReadFile) -> int:
    return parse_stack_header(file.read, file.size(), str(file.path)).first_directory
