"""A dataset on disk, finished or growing: the public reading side. It follows new frames, and chooses levels."""

from __future__ import annotations

import base64
import operator
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from acqstream.arrays.level_layout import X, Y
from acqstream.codecs.images import encode_png
from acqstream.dataset.frame_source import NDTiffSource, follow_keys
from acqstream.dataset.level import Level
from acqstream.dataset.level_array import LevelArray
from acqstream.dataset.sources import Source, open_source
from acqstream.description.channels import ChannelLook, contrast_of
from acqstream.errors import DatasetError, FileMissing, UnsupportedFeature, WaitTimeout
from acqstream.grid.block_mean import small_picture
from acqstream.model.axes import AxisValue
from acqstream.model.receipt import Receipt
from acqstream.model.run_note import RunNote
from acqstream.model.state import AcquisitionState
from acqstream.model.units import html_text
from acqstream.model.view_spec import MirrorResult
from acqstream.storage.files.url_path import as_path

if TYPE_CHECKING:
    import dask.array
    import xarray


DEFAULT_POLL_S = 0.02
_OPEN_POLL_S = 0.05
MAX_LISTED = 10_000_000

_PLAIN = frozenset({int, str})

AskedValue = str | SupportsIndex
"""An axis value as users have them: integers of any library, enums."""


def open_dataset(
    path: str | os.PathLike[str], *, follow_links: bool = False, stitched: bool = True, wait_s: float = 0.0
) -> Dataset:
    """Open the dataset at `path` for reading: its folder, the folder of a level, or a file in one of them; or its URL.

    follow_links=True reads files elsewhere that links in the dataset's folder name; else UnsupportedFeature names the
    link. The folder itself may be a link. stitched=False: each tile of a tiled NDTiff dataset is an image, with axes
    row and column, at full resolution only; arrays in chunk formats are read as they are stored. wait_s: how long to
    wait for the path and its first frame, where a run or a mirror is about to begin; 0: not at all. Raises DatasetError
    if the path is missing, UnknownFormat with the formats tried, UnsupportedFeature or CorruptDataset for a dataset
    that cannot be read, WaitTimeout after wait_s, and ConfigError for an empty path.
    """
    place, until_s = as_path(path), time.monotonic() + wait_s
    while True:
        reason: Exception | None = None
        try:
            dataset = Dataset(open_source(place, follow_links=follow_links, is_stitched=stitched))
            if wait_s <= 0 or dataset._has_items or not dataset.writing:
                return dataset
            dataset.close()
        except (DatasetError, FileMissing) as error:
            if wait_s <= 0 or isinstance(error, UnsupportedFeature):
                raise
            reason = error
        if time.monotonic() >= until_s:
            raise WaitTimeout(
                f"{path} has no frame yet after {wait_s:g} s{f': {reason}' if reason else ''}"
            ) from reason
        time.sleep(_OPEN_POLL_S)


class Dataset:
    """An acquisition, or an array, in any format. A context manager; `close` closes the files.

    A source without single frames, as that of a chunk format, has `levels` and no `keys`, `read_frame`,
    `read_metadata`, `frames` and `follow`: these raise UnsupportedFeature, which names the method to use instead. It
    shows the frames and chunks published at opening or at the last `refresh`.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._levels: tuple[Level, ...] = ()

    @property
    def path(self) -> Path:
        """The dataset's folder, or that of a level or an array which was opened by itself."""
        return self._source.path

    @property
    def format(self) -> str:
        """Name of the format: "ndtiff", "n5", ..."""
        return self._source.format

    @property
    def has_frames(self) -> bool:
        """True for formats that keep single frames; False for arrays, which have `levels` only."""
        return isinstance(self._source, NDTiffSource)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The resolution levels seen so far as arrays, the full resolution first."""
        sources = self._source.levels
        if len(self._levels) < len(sources):
            self._levels = (*self._levels, *map(Level, sources[len(self._levels) :]))
        return self._levels

    @property
    def axes(self) -> dict[str, list[AxisValue]]:
        """Values seen so far by axis, slowest axis first; integers ascending, strings in order of first appearance.

        For frames these are the axes of `keys`, row and column of tiles included; for arrays, all but those of the
        pixels. Raises UnsupportedFeature where a list would take hundreds of megabytes.
        """
        axis_values = self._source.axis_values()
        for name, values in axis_values.items():
            if len(values) > MAX_LISTED:
                text = f"{self.path}: axis {name!r} has {len(values):,} positions, too many for a list"
                raise UnsupportedFeature(f"{text}; use levels[0].axis_values")
        return {name: list(values) for name, values in axis_values.items()}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `levels[0]`, tiles put together. Raises DatasetError before the first frame."""
        return self.levels[0].shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """dtype of the first frame. Raises DatasetError before it."""
        return self.levels[0].dtype

    @property
    def complete(self) -> bool:
        """True when no frame or chunk will be added, and no tile of a lower level, as far as a writer has noted it."""
        return self._source.complete

    @property
    def writing(self) -> bool:
        """True while frames, tiles or chunks may come. An interrupted acquisition is not `complete` either."""
        return self._source.writing

    @property
    def state(self) -> AcquisitionState | None:
        """State of the acquisition as the daemon noted it; None for datasets of other writers and chunk formats."""
        return self._source.state

    @property
    def mirrors(self) -> Mapping[str, MirrorResult]:
        """Results of its mirrors and of the levels of tiles by name, as the folder of the frames records them now.

        Empty before the first result, and over http.
        """
        return self._source.mirrors

    def open_mirror(self, name: str) -> Dataset:
        """Open a mirror by its name ("n5"), as a dataset of its own; the caller closes it.

        It may still grow, and was recorded or requested. Raises DatasetError if the dataset has no such mirror,
        UnsupportedFeature for levels, for a mirror outside the folder around the dataset unless that was opened with
        follow_links=True, and for an array; and as `acqstream.open`.
        """
        source = self._frames("the dataset beside it")
        return Dataset(open_source(source.mirror_folder(name), follow_links=source.follows_links))

    @property
    def notes(self) -> tuple[RunNote, ...]:
        """Notes on the run, in order of arrival, as the folder of the frames has them now: see `RunNote`.

        Empty for arrays, and over http. One that a power cut has torn is left out, and logged. Raises CorruptDataset.
        """
        return self._source.notes

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of its run, with `mirrors` as its `results`; None before the end, over http, and for arrays.

        Raises CorruptDataset, StorageError.
        """
        return self._source.receipt if isinstance(self._source, NDTiffSource) else None

    @property
    def summary_metadata(self) -> Mapping[str, Any]:
        """Metadata of the acquisition, or attributes of an array in its format."""
        return self._source.summary_metadata

    @property
    def display_settings(self) -> Mapping[str, Any]:
        """Display settings of the channels in their viewer, by name; empty if unknown."""
        return self._source.display_settings

    def channel_looks(self) -> Mapping[AxisValue | None, ChannelLook]:
        """Name, colour and contrast by value of `channel`, in the order of `levels[0].axis_values`; None: without.

        Contrast is that of the display settings, else of the first frames, which are read. Raises StorageError.
        """
        return self._source.looks()

    def keys(self) -> Iterator[dict[str, AxisValue]]:
        """The axes of every frame, in order of first arrival."""
        return self._frames("axes").keys()

    def newest_key(self) -> dict[str, AxisValue] | None:
        """The axes of the frame that was published last; None before the first one."""
        return self._frames("axes").newest_key()

    def read_frame(self, axes: Mapping[str, AskedValue] | None = None, /, **more_axes: AskedValue) -> NDArray[Any]:
        """The frame with exactly these axes, a new array (Y, X), or (Y, X, 3) for RGB.

        The latest, where several were written. Raises FrameNotFound, and CorruptDataset if its bytes are missing.
        """
        return self._frames("levels[0].read").read_frame(_key(axes, more_axes))

    def read_frames(
        self,
        keys: slice | range | Iterable[Mapping[str, AskedValue]] = slice(None),
        /,
        *,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Many frames as one new array (N, Y, X), or (N, Y, X, 3) for RGB, read in few large pieces.

        keys: a slice or a range of places among `keys`, in order of arrival; or the axes of each frame, in any order.
        A slice is by far the fastest; `levels[0].read` reads by axes. All frames have one shape and dtype; without any
        the array has no frame of the first one's. out: an array of this shape and dtype, C-contiguous, which is filled
        and returned: memory that is used again needs no new pages.

        Raises DatasetError for a frame unlike the first of them, or before the first frame, IndexError for a range that
        does not fit, ValueError for an `out` that does not, and as `read_frame`.
        """
        source = self._frames("levels[0].read")
        return source.read_frames(keys if isinstance(keys, slice | range) else [_key(axes, {}) for axes in keys], out)

    def read_metadata(self, axes: Mapping[str, AskedValue] | None = None, /, **more_axes: AskedValue) -> dict[str, Any]:
        """The metadata of the frame with exactly these axes. Raises as `read_frame`."""
        return self._frames("summary_metadata").read_metadata(_key(axes, more_axes))

    def frame_times(self) -> NDArray[np.datetime64]:
        """Capture times as `put` got them (`time_ns`), UTC, one for each of `keys`; NaT where none was given.

        Reads the metadata of all frames. A new array of datetime64[ns]. Raises CorruptDataset if bytes are missing.
        """
        return self._frames("summary_metadata").frame_times()

    def frames(self) -> Iterator[tuple[dict[str, AxisValue], NDArray[Any]]]:
        """Every frame with its key, in order of arrival: the fastest way to read a complete dataset.

        Frames are as `read_frame` gives them; one that was written again comes once, in its latest place. Later frames
        are read ahead, with direct I/O where the system has it: it neither uses nor fills the page cache. A frame
        that is kept may keep up to 79 of its neighbours in memory, 10 MiB in all: to keep a few of many, keep copies.
        """
        return self._frames("levels[0].read").frames()

    def refresh(self) -> list[dict[str, AxisValue]]:
        """Look for newly published frames or chunks, in all levels, and for new levels.

        Returns the new keys of the full resolution, in order of arrival; none for an array. Reads only new entries.
        """
        return list(self._source.refresh())

    def to_dask(self, level: int = 0) -> dask.array.Array:
        """A level as a lazy dask array, see `dask_arrays.to_dask`."""
        return self.levels[level].to_dask()

    def to_xarray(self, level: int = 0) -> xarray.DataArray:
        """A level as a lazy array with named axes and coordinates, see `xarray_arrays.to_xarray`."""
        return self.levels[level].to_xarray()

    def follow(
        self,
        timeout_s: float | None = None,
        *,
        level: int = 0,
        replaced: bool = False,
        poll_s: float = DEFAULT_POLL_S,
    ) -> Iterator[dict[str, AxisValue]]:
        """Every key once, from the first frame on, in order of arrival, until the writer has ended.

        That is when the dataset is complete, or its acquisition was interrupted (then `complete` is False). level is
        that of the frames or tiles; it may yet have to appear, and may be made after the acquisition. replaced: a key
        comes again when its frame was written again, which now is what is read. Raises TimeoutError when no new frame
        came within timeout_s, DatasetError if the level is missing at the end, or if the view that makes it failed.
        """
        followed = self._frames("refresh and levels[0].read").followed(level)
        return follow_keys(followed, timeout_s, poll_s, replaced=replaced)

    def close(self) -> None:
        """Close all files; again is harmless."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def html_card(self, text: str, dataset_id: str = "") -> str:
        """HTML of a text and the newest frame as a small picture, for notebooks; errors of the picture are in it.

        Nothing in it is a script or loads anything. No picture if dataset_id, where given, is not that of this dataset.
        """
        try:
            if dataset_id and not (isinstance(self._source, NDTiffSource) and self._source.dataset_id == dataset_id):
                raise DatasetError(f"{self.path} is another dataset now")
            return html_text(text, picture=newest_picture(self))
        except Exception as error:  # noqa: BLE001 - a notebook shows the text in any case
            return html_text(text, f"no picture: {error}")

    def _repr_html_(self) -> str:
        lines = [repr(self).strip("<>")]
        try:
            lines.append(f"{' x '.join(map(str, self.shape))}, {self.dtype}, {', '.join(self.levels[0].axes)}")
            lines.append("growing" if self.writing else str(self.receipt or self.state or "no receipt"))
        except Exception as error:  # noqa: BLE001 - likewise
            lines.append(f"cannot be read: {error}")
        return self.html_card("\n".join(lines))

    def __repr__(self) -> str:
        return f"<Dataset {self.format} {str(self.path)!r}, {self._source.extent}>"

    @property
    def _has_items(self) -> bool:
        try:
            return 0 not in self.shape
        except DatasetError:  # no frame yet
            return False

    def _frames(self, instead: str) -> NDTiffSource:
        """The source if it keeps single frames. Only this method refuses operations that arrays do not have."""
        if isinstance(self._source, NDTiffSource):
            return self._source
        raise UnsupportedFeature(f"{self.path}: {self.format} keeps arrays, not frames; use {instead}")


MAX_PNG_BYTES = 30_000
_PNG_SIDE = 192
_MAX_PIXELS = 1024  # taken along the longer side of a picture of tiles or of an array, which may have any size


def newest_picture(dataset: Dataset) -> str:
    """The newest frame, or the last picture of an array, as a PNG of at most MAX_PNG_BYTES in a data URI.

    One frame is read; the contrast is its own. Raises DatasetError before the first frame, UnsupportedFeature for an
    array without y and x, StorageError, CorruptDataset.
    """
    if dataset.has_frames and not dataset.levels[0].is_stitched:
        key = dataset.newest_key()
        if key is None:
            raise DatasetError(f"{dataset.path}: holds no frame yet")
        pixels = dataset.read_frame(key)
    else:
        array = small_array(dataset, {})
        if not array.layout.pixels:
            raise UnsupportedFeature(f"{dataset.path}: a picture needs y and x, not {', '.join(array.axes)}")
        step = -(-max(len(axis.values) for axis in array.layout.pixels[:2]) // _MAX_PIXELS)
        pixels = array[(*(-1 for _ in array.values), slice(None, None, step), slice(None, None, step))]
    pixels = np.nan_to_num(pixels)
    low, high = (0.0, 255.0) if pixels.ndim == 3 else contrast_of(pixels)
    side = _PNG_SIDE
    while True:
        picture = small_picture(pixels, low, high, side)
        png = encode_png(picture.reshape(*picture.shape[:2], -1))
        if len(png) <= MAX_PNG_BYTES:
            return f"data:image/png;base64,{base64.b64encode(png).decode()}"
        side = side * 3 // 4


def _key(axes: Mapping[str, AskedValue] | None, more_axes: Mapping[str, AskedValue]) -> dict[str, AxisValue]:
    if not isinstance(axes, dict | Mapping | None):
        raise TypeError(
            f"a frame is named by its axes, read_frame(time=0) or read_frame({{'time': 0}}), not by {axes!r}"
        )
    key: dict[str, Any] = {**(axes or {}), **more_axes}
    return key if _PLAIN.issuperset(map(type, key.values())) else {n: _plain(value) for n, value in key.items()}


def _plain(value: AskedValue) -> AxisValue:
    return str(value) if isinstance(value, str) else operator.index(value)


MIN_SIDE = 240
"""Pixels of the longer side of a picture that a small picture is made of, at least."""


def level_arrays(dataset: Dataset, fixed: Mapping[str, AxisValue]) -> list[LevelArray]:
    """The full resolution, and the same part of the levels below that have its axes; `fixed` axes have one value."""
    full = dataset.levels[0]
    layout = full.source.layout()
    for name, value in fixed.items():
        layout = layout.at(name, value)
    arrays = [LevelArray(full.source, layout, fixed)]
    for level in dataset.levels[1:]:
        if not level.item_count or level.axes != layout.axes:
            break
        lower = layout.in_level(level.source.layout(), factors_between(full, level))
        arrays.append(LevelArray(level.source, lower, fixed))
    return arrays


def small_array(dataset: Dataset, fixed: Mapping[str, AxisValue], min_side: int = MIN_SIDE) -> LevelArray:
    """The part that the full resolution shows, from the lowest level with `min_side` pixels and all outer positions."""
    arrays = level_arrays(dataset, fixed)
    return arrays[_small_level(arrays, min_side)]


def small_factors(dataset: Dataset, min_side: int) -> dict[str, int]:
    """Items of the full resolution that an item of `small_array` covers, by axis; nothing is fixed."""
    level = _small_level(level_arrays(dataset, {}), min_side)
    return factors_between(dataset.levels[0], dataset.levels[level])


def _small_level(arrays: Sequence[LevelArray], min_side: int) -> int:
    for number in reversed(range(len(arrays))):
        sides = [len(axis.values) for axis in arrays[number].layout.pixels[:2]]
        if max(sides, default=0) >= min_side and arrays[number].values == arrays[0].values:
            return number
    return 0


def factors_between(full: Level, level: Level) -> dict[str, int]:
    """Items of one level that an item of another one covers, by axis."""
    above, below = full.source.factors, level.source.factors
    return {name: below.get(name, 1) // above.get(name, 1) for name in {*above, *below, Y, X}}
