"""Previews: JPEG pictures of frames, each rendered once for all who look at it."""

from __future__ import annotations

import asyncio
import functools
import io
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.description.channels import CHANNEL, contrast_of
from acqstream.grid.block_mean import picture_ratio, small_picture
from acqstream.web.answers import tag_of
from acqstream.web.page.picture_source import Crop, FramePlace, PictureSource, ThinnedPicture, chosen_axes
from acqstream.web.request_gate import GateClosed

BINS = 96
JPEG_QUALITY = 85
_SAMPLE_STEP = 2  # along y and x: every fourth pixel counts for contrast


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFacts:
    """low and high are the values shown black and white. auto_low and auto_high are those that the frame suggests.

    histogram has BINS counts of every fourth pixel, from 0 (or the smallest value, if that is negative) to
    histogram_end. saturated is the share of pixels at the largest value of `bits`; None where that is not known.
    """

    low: float
    high: float
    auto_low: float
    auto_high: float
    histogram: tuple[int, ...]
    histogram_end: float
    saturated: float | None


def facts_of(frame: NDArray[Any], bits: int | None, limits: tuple[float, float] | None) -> PictureFacts:
    """Look at a frame (Y, X) or (Y, X, 3). limits: values for black and white; None: chosen by the frame."""
    sample = frame[::_SAMPLE_STEP, ::_SAMPLE_STEP]
    auto = (0.0, 255.0) if frame.ndim == 3 else contrast_of(sample)
    low, high = limits if limits is not None else auto
    largest = float(2**bits - 1) if bits is not None else None
    end = max(1.25 * auto[1], high)
    end = end if largest is None else min(end, largest)
    begin = min(0.0, float(sample.min()))
    counts, _ = np.histogram(sample, BINS, (begin, max(end, begin + 1)))
    saturated = None if largest is None else float(np.count_nonzero(sample >= largest) / sample.size)
    return PictureFacts(
        low=low,
        high=high,
        auto_low=auto[0],
        auto_high=auto[1],
        histogram=tuple(counts.tolist()),
        histogram_end=end,
        saturated=saturated,
    )


def jpeg_bytes(picture: NDArray[np.uint8]) -> bytes:
    """A picture (Y, X) or (Y, X, 3) as a JPEG file."""
    from PIL import Image

    target = io.BytesIO()
    Image.fromarray(picture).save(target, "JPEG", quality=JPEG_QUALITY)
    return target.getvalue()


NEWEST_KEPT_S = 0.25  # a newest frame counts as the newest for so long: four pictures per second
MAX_KEPT_BYTES = 16 * 2**20
_FACTS_BYTES = 4096  # of a small picture it is the larger part
MAX_IN_PROGRESS = 16
MIN_SIDE, MAX_SIDE = 64, 2048

Borrow = Callable[[Path], AbstractContextManager[PictureSource]]
"""Lends the pictures of the dataset in a folder."""


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """fixed: values of axes, as text; others are those of the newest frame. limits: black and white.

    None: those of the channel, or with is_auto of the frame. crop: None for all of the frame.
    """

    folder: Path
    fixed: tuple[tuple[str, str], ...]
    max_side: int
    limits: tuple[float, float] | None
    is_auto: bool = False
    crop: Crop | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """jpeg: a file. count: frames published when it was made. steps: stored pixels (y, x) for one of the picture.

    start: the stored pixel (y, x) of its first one.
    """

    jpeg: bytes
    tag: str
    place: FramePlace
    facts: PictureFacts
    count: int
    steps: tuple[int, int]
    start: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Newest:
    place: FramePlace
    count: int
    found_at_s: float


class _Drawing:
    """A picture that is being made. Its methods run one after the other, in any thread; some read files.

    n_waiting counts the requests that wait for it.
    """

    made: asyncio.Future[Preview]

    def __init__(self, borrow: Borrow, request: PreviewRequest) -> None:
        self._borrow = borrow
        self.request = request
        self.n_waiting = 0
        self._place: FramePlace
        self._count = 0
        self._picture: ThinnedPicture | None = None
        self._lent = ExitStack()  # the source, so that it is not closed between two parts
        self._bits: int | None = None
        self._limits = request.limits

    def find(self, newest: _Newest | None) -> tuple[FramePlace, int]:
        """The frame, and how many there are."""
        if newest is not None:
            self._place, self._count = newest.place, newest.count
        else:
            with self._borrow(self.request.folder) as source:
                self._place = source.find(chosen_axes(self.request.fixed, source.axes()))
                self._count = source.count
        return self._place, self._count

    def read(self) -> int | None:
        """Read a part, and return its bytes; None after the last one."""
        if self._picture is None:
            source = self._lent.enter_context(self._borrow(self.request.folder))
            self._picture, self._bits = source.picture(self._place, self.request.crop), source.shape()[2]
            if self._limits is None and not self.request.is_auto:
                look = source.looks().get(self._place.key.get(CHANNEL))
                self._limits = None if look is None else look.limits
        return next(self._picture.parts, None)

    def close(self) -> None:
        """Give the source back."""
        self._lent.close()

    def draw(self) -> Preview:
        """The picture, after all parts."""
        assert self._picture is not None
        request, place, pixels, steps = self.request, self._place, self._picture.pixels, self._picture.steps
        facts = facts_of(pixels, self._bits, self._limits)
        jpeg = jpeg_bytes(small_picture(pixels, facts.low, facts.high, request.max_side))
        ratio = picture_ratio(pixels.shape, request.max_side)
        steps = steps[0] * ratio, steps[1] * ratio
        return Preview(
            jpeg, tag_of(request, place.tag, place.number), place, facts, self._count, steps, self._picture.start
        )


def kept_size(request: PreviewRequest, preview: Preview) -> int:
    """About the memory that a picture takes with its facts and the axes it was asked for by, in bytes."""
    texts = [text for axis in (*request.fixed, *preview.place.key.items()) for text in map(str, axis)]
    return len(preview.jpeg) + _FACTS_BYTES + 4 * sum(map(len, texts))


class Previews:
    """Renders in threads by `run` what `borrow` lends, and keeps the latest pictures. Used by the loop's thread.

    Each part of a picture is a call of its own, so that others who read files have their turn. pace: waits for the
    bound on bytes per second, for those of large planes. n_rendered counts pictures that were rendered.
    """

    def __init__(
        self, borrow: Borrow, run: Callable[..., Awaitable[Any]], pace: Callable[[int], Awaitable[None]]
    ) -> None:
        self._borrow = borrow
        self._run = run
        self._pace = pace
        self._kept: OrderedDict[tuple[PreviewRequest, str], Preview] = OrderedDict()
        self._kept_bytes = 0
        self._in_progress: dict[PreviewRequest, _Drawing] = {}
        self._newest: OrderedDict[tuple[Path, tuple[tuple[str, str], ...]], _Newest] = OrderedDict()
        self.n_rendered = 0

    @property
    def n_in_progress(self) -> int:
        return len(self._in_progress)

    async def get(self, request: PreviewRequest) -> Preview:
        """Return a picture of the frame. Raises FrameNotFound, DatasetError, GateClosed for one too many at a time.

        Requests that come while the same one is rendered get its picture. When all of them have left, it ends.
        """
        drawing = self._in_progress.get(request)
        if drawing is None or drawing.made.done():
            if len(self._in_progress) >= MAX_IN_PROGRESS:
                raise GateClosed
            drawing = self._in_progress[request] = _Drawing(self._borrow, request)
            drawing.made = asyncio.ensure_future(self._make(drawing))
            drawing.made.add_done_callback(functools.partial(self._end, request))
        drawing.n_waiting += 1
        try:
            return await asyncio.shield(drawing.made)  # one client that leaves does not end it for the others
        finally:
            drawing.n_waiting -= 1

    def _end(self, request: PreviewRequest, done: asyncio.Future[Preview]) -> None:
        if self._in_progress[request].made is done:  # else the next one has begun
            del self._in_progress[request]
        if not done.cancelled():
            done.exception()  # fetched, so that it is not reported when all clients have left

    async def _make(self, drawing: _Drawing) -> Preview:
        request = drawing.request
        newest = self._newest.get((request.folder, request.fixed))
        now_s = asyncio.get_running_loop().time()
        if newest is not None and now_s - newest.found_at_s >= NEWEST_KEPT_S:
            newest = None
        place, count = await self._run(drawing.find, newest)
        if newest is None:
            self._newest[request.folder, request.fixed] = _Newest(place, count, now_s)
            self._newest.move_to_end((request.folder, request.fixed))
            if len(self._newest) > 2 * MAX_IN_PROGRESS:
                self._newest.popitem(last=False)
        kept = self._kept.get((request, place.tag))
        if kept is not None:
            preview = replace(kept, place=place, count=count)
        else:
            try:
                while (read_bytes := await self._run(drawing.read)) is not None:
                    if not drawing.n_waiting:
                        raise GateClosed
                    await self._pace(read_bytes)
            finally:
                drawing.close()
            self.n_rendered += 1
            preview = await self._run(drawing.draw)
        self._keep((request, preview.place.tag), preview)
        return preview

    def _keep(self, key: tuple[PreviewRequest, str], preview: Preview) -> None:
        old = self._kept.pop(key, None)
        self._kept_bytes += kept_size(key[0], preview) - (kept_size(key[0], old) if old is not None else 0)
        self._kept[key] = preview
        while self._kept_bytes > MAX_KEPT_BYTES:
            (request, _), left = self._kept.popitem(last=False)
            self._kept_bytes -= kept_size(request, left)
