"""A dataset in a chunk format: arrays, no frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acqstream.dataset.chunk_level import ChunkLevel
from acqstream.dataset.dataset import DEFAULT_POLL_S, AskedValue, Dataset
from acqstream.errors import UnsupportedFeature
from acqstream.formats.chunk_format import ChunkFormat
from acqstream.model.axes import AxisValue
from acqstream.model.mirror_result import MirrorResult
from acqstream.storage.boundary import following_links, links_asked_for

if TYPE_CHECKING:
    import dask.array
    import xarray

MAX_LISTED = 10_000_000


class ChunkDataset(Dataset):
    """The levels of an array cut into chunks. A context manager; `close` gives up the files.

    What is seen is what was there at opening or at the last `refresh`. It has no frames: what `Dataset` has for them
    raises UnsupportedFeature, which tells what to use instead.
    """

    def __init__(self, path: Path, found: ChunkFormat[Any]) -> None:
        self.format = found.name
        self._format = found
        self._opened = path
        self._follows_links = links_asked_for() is True
        self._arrays = list(found.open(path))
        self.path = self._arrays[0].path

    @property
    def levels(self) -> tuple[ChunkLevel, ...]:  # type: ignore[override] # has what arrays have, and nothing of frames
        """The resolution levels, the full resolution first."""
        return tuple(map(ChunkLevel, self._arrays))

    @property
    def axes(self) -> dict[str, list[AxisValue]]:
        """Names, else numbers, of the positions along each axis but y, x and c, slowest axis first.

        Raises UnsupportedFeature where a list would take hundreds of megabytes.
        """
        found = self.levels[0].axis_values()
        for name, values in found.items():
            if len(values) > MAX_LISTED:
                text = f"{self.path}: axis {name!r} has {len(values):,} positions, too many for a list"
                raise UnsupportedFeature(f"{text}; use levels[0].axis_values")
        return {name: list(values) for name, values in found.items()}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `levels[0]`."""
        return self.levels[0].shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """dtype of `levels[0]`."""
        return self.levels[0].dtype

    @property
    def complete(self) -> bool:
        """False while chunks may come, as far as a writer of ours has noted it."""
        return self._arrays[0].complete

    @property
    def writing(self) -> bool:
        """The opposite: a chunk format tells no more."""
        return not self.complete

    @property
    def mirrors(self) -> tuple[MirrorResult, ...]:
        """None: they are recorded beside the frames."""
        return ()

    @property
    def state(self) -> None:
        """None: what the daemon noted stands beside the frames."""

    @property
    def display_settings(self) -> Mapping[str, Any]:
        """Empty: chunk formats keep none."""
        return {}

    @property
    def summary_metadata(self) -> Mapping[str, Any]:
        """What the format keeps besides."""
        return self.levels[0].attributes

    def refresh(self) -> list[dict[str, AxisValue]]:
        """Read the metadata again, of all levels, and look for new levels. There are no frames: the list is empty."""
        for array in self._arrays:
            array.refresh()
        with following_links(self._follows_links):
            self._arrays += self._format.open(self._opened)[len(self._arrays) :]
        return []

    def to_dask(self, level: int = 0) -> dask.array.Array:
        """A level as a lazy dask array, see `ChunkLevel.to_dask`."""
        return self.levels[level].to_dask()

    def to_xarray(self, level: int = 0) -> xarray.DataArray:
        """A level as a lazy array with named axes, see `ChunkLevel.to_xarray`."""
        return self.levels[level].to_xarray().rename(self.path.name)

    def keys(self) -> Iterator[dict[str, AxisValue]]:
        """Raises UnsupportedFeature, as all that follows."""
        raise self._has_no_frames("axes")

    def read_frame(self, axes: Mapping[str, AskedValue] | None = None, /, **more_axes: AskedValue) -> NDArray[Any]:
        """Raises UnsupportedFeature."""
        raise self._has_no_frames("levels[0].read")

    def read_metadata(self, axes: Mapping[str, AskedValue] | None = None, /, **more_axes: AskedValue) -> dict[str, Any]:
        """Raises UnsupportedFeature."""
        raise self._has_no_frames("summary_metadata")

    def frames(self) -> Iterator[tuple[dict[str, AxisValue], NDArray[Any]]]:
        """Raises UnsupportedFeature."""
        raise self._has_no_frames("levels[0].read")

    def follow(
        self,
        timeout_s: float | None = None,
        *,
        level: int = 0,
        replaced: bool = False,
        poll_s: float = DEFAULT_POLL_S,
    ) -> Iterator[dict[str, AxisValue]]:
        """Raises UnsupportedFeature."""
        raise self._has_no_frames("refresh and levels[0].read")

    def close(self) -> None:
        """Close all files; again is harmless."""
        for array in self._arrays:
            array.close()

    def __repr__(self) -> str:
        return f"<ChunkDataset {self.format} {str(self.path)!r}, {self.shape} {self.dtype}>"

    def _has_no_frames(self, instead: str) -> UnsupportedFeature:
        return UnsupportedFeature(f"{self.path}: {self.format} keeps arrays, not frames; use {instead}")
