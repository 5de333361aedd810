"""Frames of one kind that follow one another, as columns: an object for each would cost more than its pixels do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from acqstream.model.axes import AxisValue, axes_json
from acqstream.model.frame_header import FrameHeader
from acqstream.model.pixel_type import PixelType


@dataclass(frozen=True, slots=True)
class FrameRun:
    """Frames number, number + 1, ...: an item of each column per frame, what it means as in `FrameHeader`.

    axes has a column for each axis; all frames have the same axes. As a sequence it gives single headers.
    """

    number: int
    pixel_type: PixelType
    height: int
    width: int
    axes: Mapping[str, Sequence[AxisValue]]
    axes_texts: list[bytes]
    metadata: list[bytes]
    checksums: list[int | None]
    times_ns: list[int | None]
    metadata_checksums: list[int | None]

    @staticmethod
    def of(headers: Sequence[FrameHeader]) -> FrameRun:
        """These headers, at least one, as columns. Raises KeyError where they have not the same axes."""
        first = headers[0]
        return FrameRun(
            first.number,
            first.pixel_type,
            first.height,
            first.width,
            {name: [header.axes[name] for header in headers] for name in first.axes},
            [header.axes_text or axes_json(header.axes) for header in headers],
            [header.metadata for header in headers],
            [header.checksum for header in headers],
            [header.time_ns for header in headers],
            [header.metadata_checksum for header in headers],
        )

    @staticmethod
    def joined(runs: Sequence[FrameRun]) -> FrameRun:
        """Runs of one kind, each where the one before ends, as one; its axes are only in axes_texts."""
        first = runs[0]
        if len(runs) == 1:
            return first
        return FrameRun(
            first.number,
            *first.kind,
            {},
            list(chain.from_iterable(run.axes_texts for run in runs)),
            list(chain.from_iterable(run.metadata for run in runs)),
            list(chain.from_iterable(run.checksums for run in runs)),
            list(chain.from_iterable(run.times_ns for run in runs)),
            list(chain.from_iterable(run.metadata_checksums for run in runs)),
        )

    def __len__(self) -> int:
        return len(self.metadata)

    def __getitem__(self, position: int) -> FrameHeader:
        number = range(self.number, self.next_number)[position]
        return FrameHeader(
            number,
            *self.kind,
            {name: column[position] for name, column in self.axes.items()},
            self.metadata[position],
            self.checksums[position],
            self.times_ns[position],
            self.axes_texts[position],
            self.metadata_checksums[position],
        )

    def __iter__(self) -> Iterator[FrameHeader]:
        return map(self.__getitem__, range(len(self)))

    @property
    def next_number(self) -> int:
        return self.number + len(self.metadata)

    @property
    def kind(self) -> tuple[PixelType, int, int]:
        """Pixel type, height and width."""
        return self.pixel_type, self.height, self.width

    @property
    def frame_bytes(self) -> int:
        """Bytes of the pixels of each frame."""
        return self.height * self.width * self.pixel_type.pixel_bytes

    @property
    def payload_bytes(self) -> int:
        """Bytes of the pixels of all frames."""
        return len(self.metadata) * self.frame_bytes

    def first(self, count: int) -> FrameRun:
        """The first `count` of these frames, or all of them."""
        return FrameRun(
            self.number,
            *self.kind,
            {name: column[:count] for name, column in self.axes.items()},
            self.axes_texts[:count],
            self.metadata[:count],
            self.checksums[:count],
            self.times_ns[:count],
            self.metadata_checksums[:count],
        )
