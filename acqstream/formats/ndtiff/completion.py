"""Tells finished datasets from growing ones.

The writer of this package notes it in `acqstream.json` in the container. For datasets of other writers there are only
signs that one is unfinished, as the reference writers leave them; without any it counts as complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from acqstream.errors import CorruptDataset, FileMissing, StorageError
from acqstream.formats.ndtiff.page_walk import PageChain
from acqstream.formats.ndtiff.pages import StackPage, read_page
from acqstream.formats.ndtiff.stack_header import ByteOrder, parse_stack_header
from acqstream.model.axes import declared_names
from acqstream.model.state import AcquisitionState
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.files.small_file import parse_json, read_small_file

STATE_NAME = "acqstream.json"
PREALLOCATED_STACK_BYTES = 2**32
"""Size of a stack file that another writer has reserved and not yet cut to its length."""

ROLLOVER_MARGIN_BYTES = 5_000_000 + 176
"""A frame that would bring a stack file this near to its limit begins another one, as in the reference writers."""

ROLLOVER_S = 5.0
"""The reference writers end a full stack file before they begin the next one: for so long there may be one."""

_LEVELS_VIEW, _VIEW_NAME = ".pyramid", "view.json"  # the view's folder lies beside the dataset
_DIRECTORY_TO_PIXELS = (178, 184)  # of both reference writers, grey or RGB


@dataclass(frozen=True, slots=True)
class LevelsState:
    """State of the view that makes the lower levels. failure: the reason why it failed, "" if it did not."""

    is_unfinished: bool = False
    failure: str = ""

    @property
    def is_finished(self) -> bool:
        """The levels have all tiles."""
        return not self.is_unfinished and not self.failure

    @property
    def is_under_way(self) -> bool:
        """There is more to do, and nothing that keeps it from being done."""
        return self.is_unfinished and not self.failure


_T = TypeVar("_T")


class _WatchedFile(Generic[_T]):
    """Content of a small file of ours, read again when the file has changed."""

    def __init__(self, path: Path, what: str, parse: Callable[[Any], _T], absent: _T) -> None:
        self._path = path
        self._what = what
        self._parse = parse
        self._absent = absent
        self._signature: tuple[int, int, int] | None = None
        self._found: _T | CorruptDataset = absent

    def refresh(self) -> None:
        """Look at the file again."""
        try:
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self._signature, self._found = None, self._absent
            return
        except OSError as error:
            raise StorageError.wrap(error, str(self._path), f"look at {self._what}") from error
        signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        if signature != self._signature or not status.st_mtime_ns:  # no time: web servers send none
            self._found = self._read()
            self._signature = signature

    @property
    def is_there(self) -> bool:
        """As of the last `refresh`."""
        return self._signature is not None

    @property
    def state(self) -> _T:
        """As of the last `refresh`. Raises CorruptDataset if the file is damaged."""
        if isinstance(self._found, CorruptDataset):
            raise self._found
        return self._found

    def _read(self) -> _T | CorruptDataset:
        """A damaged file is returned as an error: it does not keep anybody from reading frames."""
        path = str(self._path)
        try:
            return self._parse(parse_json(read_small_file(self._path), path, what=self._what))
        except FileMissing:
            return self._absent
        except CorruptDataset as error:
            return error if error.path else CorruptDataset(str(error), path=path)


class StateFile(_WatchedFile[AcquisitionState | None]):
    """The state in `acqstream.json`; None without a file of ours."""

    def __init__(self, container: Path) -> None:
        super().__init__(container / STATE_NAME, "the state", _state_in, None)


class LevelsFile(_WatchedFile[LevelsState]):
    """The state of the lower levels, in `view.json` of the view that makes them; finished where there is none."""

    def __init__(self, container: Path) -> None:
        super().__init__(levels_folder(container) / _VIEW_NAME, "the state of the levels", _levels_in, LevelsState())


def levels_folder(container: Path) -> Path:
    """The folder of the view that makes the lower levels of a dataset, beside the dataset."""
    path = container.absolute()
    return path.with_name(f"{path.name}{_LEVELS_VIEW}") if path.name else path / _LEVELS_VIEW


def read_request(container: Path) -> dict[str, Any] | None:
    """Return the request in `acqstream.json`; None where the file is missing, damaged or of another writer."""
    request = _own_fields(container).get("request")
    return request if isinstance(request, dict) else None


def dataset_id(container: Path) -> str:
    """The id of a dataset in `acqstream.json`; "" for a dataset of another writer."""
    found = _own_fields(container).get("dataset_id")
    return found if isinstance(found, str) else ""


def _own_fields(container: Path) -> dict[str, Any]:
    """The content of `acqstream.json`; empty where it is missing or damaged: a dataset reads without it."""
    path = container / STATE_NAME
    try:
        content = parse_json(read_small_file(path), str(path), what="the state")
    except (StorageError, CorruptDataset):
        return {}
    return content if isinstance(content, dict) else {}


def declared_axes(request: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the axes of a request; empty where it declares none."""
    axes = (request or {}).get("axes")
    return [axis for axis in axes if isinstance(axis, dict)] if isinstance(axes, list) else []


def declared_order(request: Mapping[str, Any] | None, summary: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the order of axes that the producer asked for, slowest first; empty where it asked for none.

    Without a declaration our own writer fills `AxisOrder` of the summary with the axes of the first frame, which is no
    wish of the producer: the request says more. Other writers have the summary alone.
    """
    given = summary if request is None else request.get("summary")
    order = given.get("AxisOrder") if isinstance(given, Mapping) else None
    if isinstance(order, list):
        return tuple(name for name in order if isinstance(name, str))
    return declared_names(declared_axes(request))


def _state_in(content: Any) -> AcquisitionState | None:
    if not isinstance(content, dict) or content.get("format") != "acqstream":
        return None
    try:
        return AcquisitionState(str(content.get("state")))
    except ValueError as error:
        raise CorruptDataset(f"unknown state {content.get('state')!r:.60}") from error


def _levels_in(content: Any) -> LevelsState:
    if not isinstance(content, dict):
        return LevelsState()
    return LevelsState(content.get("complete") is False, str(content.get("failed") or ""))


class FinishedSigns:
    """Detects that a stack file is finished; remembers how far its chain of pages was walked."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._last: StackPage | None = None

    def is_finished(self, file: ReadFile, byte_order: ByteOrder, pixels: int) -> bool:
        """True if the last page of the chain has no next one and its frame is published.

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
        if self._last is not None:
            start = self._last.directory
        else:
            start = parse_stack_header(file.read, size, str(file.path)).first_directory
        page = read_page(file.read, size, start, byte_order)
        if page is not None and page.next != 0:
            for page in PageChain(file, start, byte_order).pages():
                self._last = page
        self._last = page or self._last
        if self._last is None or self._last.next != 0 or self._last.pixels > pixels:
            return False
        return not _may_roll_over(file, size, pixels)


def _may_roll_over(file: ReadFile, size: int, pixels: int) -> bool:
    """True if one more frame like the last one would just exceed the file's size limit."""
    if 2 * size - pixels + ROLLOVER_MARGIN_BYTES < PREALLOCATED_STACK_BYTES:
        return False
    return abs(time.time() - file.modified_s()) < ROLLOVER_S
