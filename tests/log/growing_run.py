"""A run that grows while a test looks at it: at a steady rate, with pictures that tell their time and plane."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from acqstream.log.log import Log
from tests.log.make_frames import Axes, dim_frame, wait_for

CHANNELS = ("A", "B")
PLANES = 2
FRAMES_PER_TIME = len(CHANNELS) * PLANES
BLOCK = 16  # side in pixels
N_BITS = 12  # of a picture's number
SHAPE = (4 * BLOCK, N_BITS * BLOCK)
LOW, HIGH = 200, 600  # both are seen


def picture_value(at: int, plane: int) -> int:
    """A number that tells time and plane, never 0."""
    return at * PLANES + plane + 1


def blocks_of(number: int) -> NDArray[np.uint16]:
    """A bright picture whose upper blocks are the bits of a number, the highest one at the left."""
    picture = np.full(SHAPE, HIGH, np.uint16)
    for bit in range(N_BITS):
        if not number >> bit & 1:
            left = (N_BITS - 1 - bit) * BLOCK
            picture[: 2 * BLOCK, left : left + BLOCK] = LOW
    return picture


class GrowingRun:
    """Frames of two channels and planes, as long as the `with` block lasts. frames_per_s: of all together.

    is_flat: pixels of a frame are `picture_value` of its time and plane; else they are `blocks_of` it.
    """

    def __init__(self, log: Log, frames_per_s: float, *, is_flat: bool = True) -> None:
        self._log = log
        self._frames_per_s = frames_per_s
        self._is_flat = is_flat
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="growing-run")
        self._done_s: list[float] = []  # when each time was complete

    def __enter__(self) -> GrowingRun:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def wait_for_time(self, at: int) -> None:
        """Until a time is complete for readers."""
        wait_for(self._log, lambda: self._log.cursors().published >= FRAMES_PER_TIME * (at + 1))

    def complete_before(self, age_s: float) -> int:
        """The newest time that was complete so long ago; -1 without one."""
        until_s = time.monotonic() - age_s
        return sum(done_s <= until_s for done_s in self._done_s) - 1

    def _write(self) -> None:
        number, next_s = 0, time.monotonic()
        while not self._ended.wait(max(0.0, next_s - time.monotonic())):
            at, rest = divmod(number, FRAMES_PER_TIME)
            plane, channel = divmod(rest, len(CHANNELS))
            axes: Axes = {"time": at, "z": plane, "channel": CHANNELS[channel]}
            frame = dim_frame(number, axes, SHAPE, elapsed_ms=1000 * at * FRAMES_PER_TIME / self._frames_per_s)
            value = picture_value(at, plane)
            frame.image[...] = value if self._is_flat else blocks_of(value)
            self._log.append(frame.header, frame.image)
            if rest == FRAMES_PER_TIME - 1:
                self._done_s.append(time.monotonic())
            number += 1
            next_s += 1 / self._frames_per_s
