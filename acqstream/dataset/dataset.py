"""A dataset on disk, finished or growing: the public reading side."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from acqstream.dataset.follow import follow_keys
from acqstream.dataset.level import Level, ordered_axis_values
from acqstream.formats.base import FrameFormat, FrameReader
from acqstream.formats.ndtiff.mirror_records import read_records
from acqstream.formats.registry import find_format, find_frame_format
from acqstream.model.axes import AxisValue
from acqstream.model.mirror_result import MirrorResult
from acqstream.model.state import AcquisitionState
from acqstream.storage.boundary import following_links
from acqstream.storage.remote_path import as_path

if TYPE_CHECKING:
    import dask.array
    import xarray

DEFAULT_POLL_S = 0.02

AskedValue = str | SupportsIndex
"""An axis value as users have them: integers of any library, enums."""


def open_dataset(path: str | os.PathLike[str], *, follow_links: bool = False) -> Dataset:
    """Open the dataset at `path` for reading: its folder, the folder of a level, or a file in one of them; or its URL.

    An array in a chunk format opens as a `ChunkDataset`. follow_links=True reads files that links in the dataset's
    folder have elsewhere; else UnsupportedFeature names the link. The folder itself may be a link. Raises DatasetError
    if nothing is there, UnknownFormat with what was looked for, and UnsupportedFeature or CorruptDataset for a dataset
    that cannot be read.
    """
    from acqstream.dataset.chunk_dataset import ChunkDataset  # is a Dataset itself

    place = as_path(path)
    with following_links(follow_links):
        found = find_format(place)
        return _frames(place, found) if isinstance(found, FrameFormat) else ChunkDataset(place, found)


def open_frames(path: str | os.PathLike[str]) -> Dataset:
    """As `open_dataset`, for a dataset of frames. Raises UnsupportedFeature for one of arrays."""
    place = as_path(path)
    return _frames(place, find_frame_format(place))


def _frames(place: Path, found: FrameFormat) -> Dataset:
    readers = found.open(place)
    return Dataset(readers[0].path if readers[0].level else readers[0].container, found.name, readers)


class Dataset:
    """Frames by their axes. A context manager; `close` gives up the files.

    path is the dataset's folder, or that of a level which was opened by itself.
    What is seen is what was published at opening or at the last `refresh`.
    """

    def __init__(self, path: Path, format_name: str, readers: Sequence[FrameReader]) -> None:
        self.path = path
        self.format = format_name
        self._readers = list(readers)
        self._full = self._readers[0]
        self._levels = [Level(reader, self._readers[0]) for reader in self._readers]
        self._lock = threading.Lock()  # for adding levels

    @property
    def levels(self) -> tuple[Level, ...]:
        """The resolution levels seen so far as arrays, the full resolution first."""
        return tuple(self._levels)

    @property
    def axes(self) -> dict[str, list[AxisValue]]:
        """Values seen so far by axis, slowest axis first; integers ascending, strings in order of first appearance.

        These are the axes of `keys`, row and column of tiles included.
        """
        return ordered_axis_values(self._full)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `levels[0]`, tiles put together. Raises DatasetError while there is no frame."""
        return self.levels[0].shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """dtype of the first frame. Raises DatasetError while there is none."""
        return self.levels[0].dtype

    @property
    def complete(self) -> bool:
        """True when no frame will be added, and no tile of a lower level."""
        return all(reader.complete for reader in self._readers) and not self._full.making_levels

    @property
    def state(self) -> AcquisitionState | None:
        """What the daemon noted about the acquisition; None in a dataset of another writer."""
        return self._full.state

    @property
    def mirrors(self) -> tuple[MirrorResult, ...]:
        """How its mirrors, and the levels of tiles, have ended: what the dataset's folder records now.

        Empty where nothing was recorded, for example while they are made the first time, and over http.
        """
        return tuple(read_records(self._full.container).values())

    @property
    def summary_metadata(self) -> Mapping[str, Any]:
        """Metadata of the whole acquisition."""
        return self._full.summary_metadata

    @property
    def writing(self) -> bool:
        """True while frames may come, or tiles of lower levels. An interrupted acquisition is not `complete` either."""
        return self._full.writing or self._full.making_levels

    @property
    def display_settings(self) -> Mapping[str, Any]:
        """How viewers showed the channels, by name; empty where nothing is known."""
        return self._full.display_settings

    def keys(self) -> Iterator[dict[str, AxisValue]]:
        """The axes of every frame, in order of first arrival."""
        return self._full.keys()

    def read_frame(self, axes: Mapping[str, AskedValue] | None = None, /, **more_axes: AskedValue) -> NDArray[Any]:
        """The frame with exactly these axes, a new array (Y, X), or (Y, X, 3) for RGB.

        The latest, where several were written. Raises FrameNotFound, and CorruptDataset if its bytes are missing.
        """
        return self._full.read_pixels(self._row(axes, more_axes))

    def read_metadata(self, axes: Mapping[str, AskedValue] | None = None, /, **more_axes: AskedValue) -> dict[str, Any]:
        """The metadata of the frame with exactly these axes. Raises as `read_frame`."""
        return self._full.read_metadata(self._row(axes, more_axes))

    def frames(self) -> Iterator[tuple[dict[str, AxisValue], NDArray[Any]]]:
        """Every frame with its key, in order of arrival: the fastest way to read a whole dataset.

        Frames are as `read_frame` gives them; one that was written again comes once, in its latest place. What follows
        is read meanwhile, with direct I/O where the system has it: it neither uses nor fills the page cache. A frame
        that is kept may keep up to 4 MiB of its neighbours in memory: to keep a few of many, keep copies.
        """
        for row, frame in self._full.read_in_order():
            yield self._full.key(row), frame

    def refresh(self) -> list[dict[str, AxisValue]]:
        """Look for newly published frames, in all levels, and for new levels.

        The new keys of the full resolution, in order of arrival. Takes time for what is new alone.
        """
        rows = self._full.refresh()
        for reader in self._readers[1:]:
            reader.refresh()
        self._find_levels()
        return list(self._full.keys(rows))

    def to_dask(self, level: int = 0) -> dask.array.Array:
        """A level as a lazy dask array, see `dask_arrays.to_dask`."""
        from acqstream.dataset.dask_arrays import to_dask

        return to_dask(self.levels[level])

    def to_xarray(self, level: int = 0) -> xarray.DataArray:
        """A level as a lazy array with named axes and coordinates, see `xarray_arrays.to_xarray`."""
        from acqstream.dataset.xarray_arrays import to_xarray

        return to_xarray(self.levels[level])

    def follow(
        self,
        timeout_s: float | None = None,
        *,
        level: int = 0,
        replaced: bool = False,
        poll_s: float = DEFAULT_POLL_S,
    ) -> Iterator[dict[str, AxisValue]]:
        """Every key once, from the first frame on, in order of arrival, until nothing is written any more.

        That is when the dataset is complete, or its acquisition was interrupted (then `complete` is False). level is
        that of the frames or tiles; it may yet have to appear, and may be made after the acquisition. replaced: a key
        comes again when its frame was written again, which now is what is read. Raises TimeoutError when no new frame
        came within timeout_s, DatasetError if there was no such level in the end, or if the view that makes it was
        given up.
        """
        return follow_keys(_Followed(self, level), timeout_s, poll_s, replaced=replaced)

    def close(self) -> None:
        """Close all files; again is harmless."""
        for reader in self._readers:
            reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Dataset {self.format} {str(self.path)!r}, {len(self._full)} frames>"

    def _find_levels(self) -> None:
        """Add the levels that have appeared below the last one."""
        with self._lock:
            if self._full.level:  # a lower level by itself
                return
            while (reader := self._readers[-1].next_level()) is not None:
                self._levels.append(Level(reader, self._readers[0]))
                self._readers.append(reader)

    def _row(self, axes: Mapping[str, AskedValue] | None, more_axes: Mapping[str, AskedValue]) -> int:
        if axes is not None and not isinstance(axes, Mapping):
            raise TypeError(
                f"a frame is named by its axes, read_frame(time=0) or read_frame({{'time': 0}}), not by {axes!r}"
            )
        wanted = {**(axes or {}), **more_axes}
        return self._full.row({name: _plain(value) for name, value in wanted.items()})


class _Followed:
    """One level as `follow_keys` needs it."""

    def __init__(self, dataset: Dataset, level: int) -> None:
        self.name = f"{dataset.path}, level {level}"
        self.failure = ""
        self._dataset = dataset
        self._level = level

    def refresh(self) -> bool:
        """Look for new frames; False if nothing more will come. The state is read before the frames."""
        full = self._dataset._full
        full.refresh()
        is_lower = self._level > 0 or full.level > 0
        writing = full.writing or (is_lower and full.making_levels)
        self.failure = full.levels_failure if is_lower else ""
        reader = self.reader()
        if reader is None:
            self._dataset._find_levels()
        elif self._level:
            reader.refresh()
        return writing

    def reader(self) -> FrameReader | None:
        """None while the level is not there."""
        readers = self._dataset._readers
        return readers[self._level] if self._level < len(readers) else None


def _plain(value: AskedValue) -> AxisValue:
    return str(value) if isinstance(value, str) else operator.index(value)
