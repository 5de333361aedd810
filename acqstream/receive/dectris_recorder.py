"""Records each series of a DECTRIS detector as one dataset, from its start message to its end message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.errors import FrameRefused, ProtocolError
from acqstream.receive.dectris_stream import (
    SeriesImage,
    SeriesStart,
    channel_image,
    check_start,
    parse_dectris,
)
from acqstream.receive.frame_order import MAX_LOST
from acqstream.receive.recorder import Recorder


class DectrisRecorder(Recorder):
    """Writes the messages of DECTRIS Stream V2: every image is one frame for each channel."""

    silence_ends = False  # a detector may wait for its trigger; the end message ends a series
    _start: SeriesStart | None = None
    _series: int | None = None
    _channels: tuple[str, ...] = ()
    _next_image = 0

    def take(self, parts: Sequence[bytes | memoryview]) -> None:
        """Store one message, or count it as refused. Raises the run's error, which ends the recording."""
        try:
            if len(parts) != 1:
                raise ProtocolError(f"a message of {len(parts)} parts; expected one")
            message = parse_dectris(bytes(parts[0]))
            if isinstance(message, SeriesStart):
                self._take_start(message)
            elif isinstance(message, SeriesImage):
                self._take_image(message)
            else:
                self._take_end(message.series)
        except ProtocolError as error:
            self._count_refused(str(error))

    def _take_start(self, start: SeriesStart) -> None:
        self.end(f"series {start.series} began")
        self._start, self._series = start, start.series
        self._channels, self._next_image = start.channels, 0
        check_start(start)
        if start.kind is not None:
            self._open(start.kind)

    def _take_image(self, message: SeriesImage) -> None:
        if message.series != self._series:
            self.end(f"series {message.series} began")
            self._start, self._series, self._channels, self._next_image = None, message.series, (), 0
            self.tally.warn("no_start", f"series {message.series}: its start message did not arrive")
        lost = message.image - self._next_image
        if not 0 <= lost <= MAX_LOST:
            raise ProtocolError(f"image_id {message.image}; {self._next_image} is next in series {message.series}")
        channels = self._channels or tuple(message.data)
        try:
            if set(message.data) != set(channels):
                raise ProtocolError(f"channels {sorted(message.data)}; expected {sorted(channels)}")
            images = [channel_image(message.data[name]) for name in channels]
        except ProtocolError as error:
            self._refuse_image(message.image, str(error))
            return
        self._channels = channels
        if self._run is None:
            self._open((images[0].shape, images[0].dtype.newbyteorder("<").str))
        self._declare_images(self._next_image, message.image, "did not arrive")
        self._next_image = message.image + 1
        for name, image in zip(channels, images, strict=True):
            self._put(message, name, image)

    def _put(self, message: SeriesImage, channel: str, image: NDArray[Any]) -> None:
        assert self._run is not None
        axes: dict[str, int | str] = {"time": message.image}
        if len(self._channels) > 1:
            axes["channel"] = channel
        try:
            self._run.put(image, axes, meta={"Stream": dict(message.metadata)})
        except (ProtocolError, FrameRefused) as error:
            text = f"image {message.image}, channel {channel}: {error}"
            self._count_refused(text)
            self.tally.sent += 1
            self._run.skip(1, reason=text)  # raises if the run itself has failed
            return
        self.tally.frames += 1
        self.tally.sent += 1

    def _take_end(self, series: int) -> None:
        if series != self._series:
            raise ProtocolError(f"series {series} ends, but series {self._series} is open")
        start = self._start
        if self._run is not None and start is not None and start.images is not None:
            stop = min(start.images, self._next_image + MAX_LOST)
            self._declare_images(self._next_image, stop, "did not arrive before the end of the series")
        self.end(f"series {series} ended")
        self._start = self._series = None

    def _open(self, kind: tuple[tuple[int, ...], str]) -> None:
        start = {} if self._start is None else dict(self._start.metadata)
        series = {"format": "dectris", "series_id": self._series, "start": start}
        self._run = self._create((kind[0], np.dtype(kind[1]).str), series)

    def _declare_images(self, first: int, stop: int, what: str) -> None:
        """Declare images first <= image_id < stop as lost."""
        if stop <= first or self._run is None:
            return
        numbers = f"{first} to {stop - 1}" if stop - first > 1 else f"{first}"
        count = (stop - first) * max(1, len(self._channels))
        text = f"stream image {numbers} {what}"
        self.tally.lose(count, text)
        self._run.skip(count, reason=text)

    def _refuse_image(self, image: int, text: str) -> None:
        self._count_refused(f"image {image}: {text}")
        if self._run is not None:  # else the next image that is stored declares this one
            self.tally.sent += max(1, len(self._channels))
            self._declare_images(self._next_image, image, "did not arrive")
            self._next_image = image + 1
            self._run.skip(max(1, len(self._channels)), reason=f"stream image {image} was refused: {text}")

    def _count_refused(self, text: str) -> None:
        self.tally.refused += 1
        self.tally.warn("refused", text)
