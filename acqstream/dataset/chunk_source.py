"""The source of a dataset in a chunk format: arrays, no single frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from acqstream.arrays.channel_looks import CHANNEL, ChannelLook, channel_looks, settings_of
from acqstream.arrays.shown_array import shown_axes
from acqstream.dataset.chunk_level import ChunkLevel
from acqstream.formats.chunk_format import ChunkArrayReader, ChunkFormat
from acqstream.model.axes import AxisValue
from acqstream.model.view_spec import MirrorResult
from acqstream.storage.boundary import following_links
from acqstream.storage.read_place import place_of


class ChunkSource:
    """A Source over the readers of all levels of an array."""

    def __init__(self, opened: Path, chunk_format: ChunkFormat[Any], *, follows_links: bool) -> None:
        self.format = chunk_format.name
        self._format = chunk_format
        self._opened = opened
        self._follows_links = follows_links
        self._readers: list[ChunkArrayReader] = []
        self._levels: list[ChunkLevel] = []
        self._find_levels()
        self.path = self._readers[0].path.path

    @property
    def levels(self) -> Sequence[ChunkLevel]:
        return tuple(self._levels)

    @property
    def complete(self) -> bool:
        """False while chunks may come, as far as a writer of ours has noted it."""
        return self._readers[0].complete

    @property
    def writing(self) -> bool:
        """The opposite of `complete`: a chunk format has no other note of it."""
        return not self.complete

    @property
    def state(self) -> None:
        """None: the daemon writes its state beside the frames."""

    @property
    def mirrors(self) -> tuple[MirrorResult, ...]:
        """None: they are recorded beside the frames."""
        return ()

    @property
    def summary_metadata(self) -> Mapping[str, Any]:
        """Attributes of the array in its format."""
        return self._readers[0].spec.attributes

    @property
    def display_settings(self) -> Mapping[str, Any]:
        """Colours and contrast as the note of our writer has them; empty without one."""
        return settings_of(self._readers[0].spec.looks)

    def looks(self) -> Mapping[AxisValue | None, ChannelLook]:
        """As the note of our writer has them, else by the names of the channels."""
        level, spec = self._levels[0], self._readers[0].spec
        axis = next((axis for axis in shown_axes(spec) if axis.name == CHANNEL), None)
        values: Sequence[AxisValue | None] = axis.values if axis is not None else [None]
        places = axis.places if axis is not None else [0]
        looks: Sequence[ChannelLook] = [spec.looks[at] for at in places if at < len(spec.looks)]
        if len(looks) < len(places):
            looks = channel_looks(level.labels.get(CHANNEL, values), self.summary_metadata, {})
        return dict(zip(values, looks, strict=True))

    @property
    def extent(self) -> str:
        spec = self._readers[0].spec
        return "no frame yet" if 0 in spec.shape and self.writing else f"{spec.shape} {spec.dtype}"

    def axis_values(self) -> Mapping[str, Sequence[AxisValue]]:
        return self._levels[0].axis_values()

    def refresh(self) -> list[dict[str, AxisValue]]:
        """Read the metadata again, of all levels, and add new levels. The list is empty, as arrays have no frames."""
        for reader in self._readers:
            reader.refresh()
        self._find_levels()
        return []

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def _find_levels(self) -> None:
        with following_links(self._follows_links):
            readers = self._format.open(place_of(self._opened))[len(self._readers) :]
        for number, reader in enumerate(readers, len(self._readers)):
            self._levels.append(ChunkLevel(reader, self._opened, number, follows_links=self._follows_links))
        self._readers += readers
