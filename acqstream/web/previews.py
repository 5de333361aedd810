"""Previews: JPEG pictures of frames, each rendered once for all who look at it."""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acqstream.arrays.channel_looks import CHANNEL
from acqstream.web.answers import tag_of
from acqstream.web.dataset_shelf import DatasetShelf
from acqstream.web.picture import PictureFacts, facts_of, jpeg_bytes, picture_ratio, small_picture
from acqstream.web.picture_source import FramePlace, chosen_axes
from acqstream.web.request_gate import GateClosed
from acqstream.web.thinned_picture import ThinnedPicture

NEWEST_KEPT_S = 0.25  # a newest frame counts as the newest for so long: four pictures per second
MAX_KEPT_BYTES = 16 * 2**20
MAX_IN_PROGRESS = 16
MIN_SIDE, MAX_SIDE = 64, 2048


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """fixed: values of axes, as text; others are those of the newest frame. limits: black and white.

    None: those of the channel, or with is_auto of the frame.
    """

    folder: Path
    fixed: tuple[tuple[str, str], ...]
    max_side: int
    limits: tuple[float, float] | None
    is_auto: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """jpeg: a file. count: frames published when it was made. steps: stored pixels (y, x) for one of the picture."""

    jpeg: bytes
    tag: str
    place: FramePlace
    facts: PictureFacts
    count: int
    steps: tuple[int, int]


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

    def __init__(self, shelf: DatasetShelf, request: PreviewRequest) -> None:
        self._shelf = shelf
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
            with self._shelf.borrow(self.request.folder) as source:
                self._place = source.find(chosen_axes(self.request.fixed, source.axes()))
                self._count = source.count
        return self._place, self._count

    def read(self) -> int | None:
        """Read a part, and return its bytes; None after the last one."""
        if self._picture is None:
            source = self._lent.enter_context(self._shelf.borrow(self.request.folder))
            self._picture, self._bits = source.picture(self._place), source.shape()[2]
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
        return Preview(jpeg, tag_of(request, place.tag, place.number), place, facts, self._count, steps)


class Previews:
    """Renders in threads by `run`, and keeps the latest pictures. Used by the loop's thread.

    Each part of a picture is a call of its own, so that others who read files have their turn. pace: waits for the
    bound on bytes per second, for those of large planes. n_rendered counts pictures that were rendered.
    """

    def __init__(
        self, shelf: DatasetShelf, run: Callable[..., Awaitable[Any]], pace: Callable[[int], Awaitable[None]]
    ) -> None:
        self._shelf = shelf
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
            drawing = self._in_progress[request] = _Drawing(self._shelf, request)
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
        self._kept_bytes += len(preview.jpeg) - (len(old.jpeg) if old is not None else 0)
        self._kept[key] = preview
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1].jpeg)
