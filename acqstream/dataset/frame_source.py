"""The source of a dataset that keeps single frames: NDTiff."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.description.channels import CHANNEL, ChannelLook
from acqstream.errors import DatasetError, UnsupportedFeature
from acqstream.formats.ndtiff.completion import dataset_id, read_request
from acqstream.formats.ndtiff.folders import is_mirror_of, read_receipt, read_records, recorded_folder
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.formats.registry import mirror_folder
from acqstream.frames.frame_description import FrameLooks
from acqstream.frames.frame_region import FrameLevel
from acqstream.model.axes import AxisValue, axis_order
from acqstream.model.metadata import time_in_text
from acqstream.model.receipt import Receipt
from acqstream.model.run_note import RunNote
from acqstream.model.state import AcquisitionState
from acqstream.model.units import count_text
from acqstream.model.view_spec import MirrorResult, requested_views
from acqstream.storage.files.boundary import following_links
from acqstream.storage.files.url_path import is_remote


class NDTiffSource:
    """A dataset of the readers of all levels, and what single frames alone have."""

    def __init__(
        self,
        path: Path,
        format_name: str,
        readers: Sequence[NDTiffReader],
        *,
        follows_links: bool,
        is_stitched: bool = True,
    ) -> None:
        self.path = path
        self.format = format_name
        self.follows_links = follows_links
        self._is_stitched = is_stitched
        self._readers = list(readers)
        self._full = self._readers[0]
        self._levels = [self._level(reader) for reader in self._readers]
        self._looks = FrameLooks(self._full)
        self._lock = threading.Lock()  # for adding levels

    @property
    def levels(self) -> Sequence[FrameLevel]:
        return tuple(self._levels if self._is_stitched else self._levels[:1])

    @property
    def complete(self) -> bool:
        """True when no frame will be added, and no tile of a lower level."""
        return all(reader.complete for reader in self._readers) and not self._full.making_levels

    @property
    def writing(self) -> bool:
        return self._full.writing or self._full.making_levels

    @property
    def state(self) -> AcquisitionState | None:
        return self._full.state

    @property
    def mirrors(self) -> Mapping[str, MirrorResult]:
        return {record.name: record for record in read_records(self._full.container).values()}

    def mirror_folder(self, name: str) -> Path:
        """The folder of a mirror that is recorded, or was requested. Raises DatasetError, StorageError."""
        container = self._full.container
        if is_remote(container):
            raise UnsupportedFeature(f"{container}: its mirrors are not known here; open their URL")
        dataset = Path(os.path.realpath(container))  # mirrors lie beside the folder, not beside a link to it
        places: dict[str, Path] = {}
        with contextlib.suppress(ValueError):  # a damaged request; records have what was made
            for spec in requested_views(read_request(dataset) or {}):
                with contextlib.suppress(KeyError):  # a format that is not installed
                    places[spec.name] = mirror_folder(dataset, spec) if spec.is_mirror else dataset
        records = read_records(dataset)
        places |= {one.name: recorded_folder(dataset, key, one) for key, one in records.items()}
        if name not in places:
            known = ", ".join(sorted(places)) or "none"
            raise DatasetError(f"{container} has no mirror {name!r}; there are: {known}")
        if any((one.name, one.state) == (name, "removed") for one in records.values()):
            raise DatasetError(f"{container}: the mirror {name} was removed; expected it at {places[name]}")
        if not is_mirror_of(places[name], self.dataset_id):
            raise DatasetError(f"{places[name]} is a mirror of another dataset than {container}")
        if places[name] == dataset:
            raise UnsupportedFeature(f"{container}: {name} lies in the dataset itself, see its levels")
        if places[name].parent != dataset.parent and not self.follows_links:
            text = f"{container}: the mirror {name} lies elsewhere, at {places[name]}"
            raise UnsupportedFeature(f"{text}; open that, or open the dataset with follow_links=True")
        return places[name]

    @property
    def notes(self) -> tuple[RunNote, ...]:
        return self._full.notes()

    @property
    def receipt(self) -> Receipt | None:
        """See `Dataset.receipt`."""
        container = self._full.container
        receipt = None if is_remote(container) else read_receipt(os.fspath(container))
        return receipt and replace(receipt, results=tuple(self.mirrors.values()))

    @property
    def dataset_id(self) -> str:
        """The id of the acquisition; "" for a dataset of another writer."""
        return dataset_id(self._full.container)

    @property
    def summary_metadata(self) -> Mapping[str, Any]:
        return self._full.summary_metadata

    @property
    def display_settings(self) -> Mapping[str, Any]:
        return self._full.display_settings

    def looks(self) -> Mapping[AxisValue | None, ChannelLook]:
        return self._looks.find(self._levels[0].axis_values().get(CHANNEL, ()))

    @property
    def extent(self) -> str:
        return count_text(len(self._full), "frame")

    def axis_values(self) -> Mapping[str, Sequence[AxisValue]]:
        """Those of `keys`, row and column of tiles included."""
        seen = self._full.axis_values()
        values = self._levels[0].frame_array().values if len(self._full) else {}
        return {name: values.get(name, seen[name]) for name in axis_order(seen, self._full.declared_order)}

    def refresh(self) -> Iterable[dict[str, AxisValue]]:
        """Look for new frames and levels; keys of new frames, which are made as they are taken."""
        rows = self._full.refresh()
        for reader in self._readers[1:]:
            reader.refresh()
        self.find_levels()
        return self._full.keys(rows)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def keys(self) -> Iterator[dict[str, AxisValue]]:
        """The axes of every frame, in order of first arrival."""
        return self._full.keys()

    def newest_key(self) -> dict[str, AxisValue] | None:
        """The axes of the last frame of the index."""
        count = len(self._full)
        return self._full.key(count - 1) if count else None

    def read_frame(self, axes: Mapping[str, AxisValue]) -> NDArray[Any]:
        """The frame with exactly these axes. Raises FrameNotFound, CorruptDataset."""
        return self._full.read_pixels(self._full.row(axes))

    def read_frames(
        self, keys: slice | range | Sequence[Mapping[str, AxisValue]], out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """See `Dataset.read_frames`."""
        full = self._full
        if not len(full):
            raise DatasetError(f"{self.path}: holds no frame yet, so shape and dtype are not known")
        rows: NDArray[np.int64]
        if isinstance(keys, slice):
            rows = full.latest_rows()[keys]
        elif isinstance(keys, range):
            rows = full.latest_rows()[np.asarray(keys, np.int64)]
        else:
            rows = np.array([full.row(key) for key in keys], np.int64)
        return full.read_together(rows, out)

    def read_metadata(self, axes: Mapping[str, AxisValue]) -> dict[str, Any]:
        """The metadata of the frame with exactly these axes. Raises as `read_frame`."""
        return self._full.read_metadata(self._full.row(axes))

    def frame_times(self) -> NDArray[np.datetime64]:
        """Capture times, one for each of `keys`; NaT where there is none."""
        texts = (self._full.metadata_bytes(self._full.row(key)) for key in self.keys())
        times = (np.iinfo(np.int64).min if time is None else time for time in map(time_in_text, texts))  # of NaT
        return np.fromiter(times, np.int64).view("datetime64[ns]")

    def frames(self) -> Iterator[tuple[dict[str, AxisValue], NDArray[Any]]]:
        """Every frame with its key, in order of arrival."""
        rows = self._full.latest_rows()
        with closing(self._full.read_frames(rows)) as frames:
            for key, (_, frame) in zip(self._full.keys_at(rows), frames, strict=True):
                yield key, frame

    def find_levels(self) -> None:
        """Add the levels that have appeared below the last one."""
        with self._lock, following_links(self.follows_links):
            if self._full.level:  # a lower level by itself
                return
            while (reader := self._readers[-1].next_level()) is not None:
                self._levels.append(self._level(reader))
                self._readers.append(reader)

    def followed(self, level: int) -> FollowedLevel:
        """A level to be followed, which may still have to appear."""
        return FollowedLevel(self, level)

    @property
    def readers(self) -> Sequence[NDTiffReader]:
        """Those of the levels seen so far, the full resolution first."""
        return self._readers

    def _level(self, reader: NDTiffReader) -> FrameLevel:
        return FrameLevel(reader, self._readers[0], follows_links=self.follows_links, is_stitched=self._is_stitched)


class FollowedLevel:
    """A level that may still have to appear. name is for errors, failure that of the view which made the level, if it
    failed before the end, as of the last refresh.
    """

    def __init__(self, source: NDTiffSource, level: int) -> None:
        self.name = f"{source.path}, level {level}"
        self.failure = ""
        self._source = source
        self._level = level

    def refresh(self) -> bool:
        """Look for new frames; False if nothing more will come. The state is read before the frames."""
        full = self._source.readers[0]
        full.refresh()
        is_lower = self._level > 0 or full.level > 0
        writing = full.writing or (is_lower and full.making_levels)
        self.failure = full.levels_state.failure if is_lower else ""
        reader = self.reader()
        if reader is None:
            self._source.find_levels()
        elif self._level:
            reader.refresh()
        return writing

    def reader(self) -> NDTiffReader | None:
        """None while the level is missing."""
        readers = self._source.readers
        return readers[self._level] if self._level < len(readers) else None


def follow_keys(
    followed: FollowedLevel, timeout_s: float | None, poll_s: float, *, replaced: bool = False
) -> Iterator[dict[str, AxisValue]]:
    """Every key once, from the first frame on, in order of arrival, until the writer has ended.

    replaced: a key comes again whenever its frame was written again. Raises TimeoutError when no new frame came
    within timeout_s of the last one, DatasetError if the level never appeared, or its view failed.
    """
    seen = 0
    last_news = time.monotonic()
    while True:
        looked = time.monotonic()  # before the refresh: the next one sees frames that come while this program pauses
        writing = followed.refresh()
        reader = followed.reader()
        count = len(reader) if reader is not None else 0  # after the state: another thread may have refreshed meanwhile
        if reader is not None and count > seen:
            rows = range(seen, count)
            yield from map(reader.key, rows) if replaced else reader.keys(rows)
            seen = count
            last_news = time.monotonic()  # after the yields: the consumer's own time does not count
        elif followed.failure:
            raise DatasetError(f"{followed.name} is incomplete: the view that makes it failed {followed.failure}")
        elif not writing:
            if reader is None:
                raise DatasetError(f"{followed.name}: the level is missing")
            return
        elif timeout_s is not None and looked - last_news >= timeout_s:
            raise TimeoutError(f"{followed.name}: no new frame within {timeout_s} s after frame {seen}; not complete")
        else:
            time.sleep(poll_s)
