"""Previews: JPEG pictures of frames, each rendered once for all who look at it."""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from acqstream.web.answers import tag_of
from acqstream.web.dataset_shelf import DatasetShelf
from acqstream.web.picture import PictureFacts, facts_of, jpeg_bytes, picture_ratio, small_picture
from acqstream.web.picture_source import FramePlace, chosen_axes
from acqstream.web.request_gate import GateClosed

NEWEST_KEPT_S = 0.25  # a newest frame counts as the newest for so long: four pictures per second
MAX_KEPT_BYTES = 16 * 2**20
MAX_IN_PROGRESS = 16
MIN_SIDE, MAX_SIDE = 64, 2048


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """fixed: values of axes, as text; others are those of the newest frame. limits: black and white; None: chosen."""

    folder: Path
    fixed: tuple[tuple[str, str], ...]
    max_side: int
    limits: tuple[float, float] | None


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


class Previews:
    """Renders in threads by `run`, and keeps the latest pictures. Used by the loop's thread.

    n_rendered counts pictures that were rendered.
    """

    def __init__(self, shelf: DatasetShelf, run: Callable[..., Awaitable[Preview]]) -> None:
        self._shelf = shelf
        self._run = run
        self._kept: OrderedDict[tuple[PreviewRequest, str], Preview] = OrderedDict()
        self._kept_bytes = 0
        self._in_progress: dict[PreviewRequest, asyncio.Future[Preview]] = {}
        self._newest: OrderedDict[tuple[Path, tuple[tuple[str, str], ...]], _Newest] = OrderedDict()
        self.n_rendered = 0

    async def get(self, request: PreviewRequest) -> Preview:
        """Return a picture of the frame. Raises FrameNotFound, DatasetError, GateClosed for one too many at a time.

        Requests that come while the same one is rendered get its picture.
        """
        running = self._in_progress.get(request)
        if running is None:
            if len(self._in_progress) >= MAX_IN_PROGRESS:
                raise GateClosed
            running = asyncio.ensure_future(self._make(request))
            self._in_progress[request] = running
            running.add_done_callback(functools.partial(self._end, request))
        return await asyncio.shield(running)  # one client that leaves does not end it for the others

    def _end(self, request: PreviewRequest, done: asyncio.Future[Preview]) -> None:
        del self._in_progress[request]
        if not done.cancelled():
            done.exception()  # fetched, so that it is not reported when all clients have left

    async def _make(self, request: PreviewRequest) -> Preview:
        newest = self._newest.get((request.folder, request.fixed))
        now_s = asyncio.get_running_loop().time()
        if newest is not None and now_s - newest.found_at_s >= NEWEST_KEPT_S:
            newest = None
        preview = await self._run(self._render, request, newest)
        if newest is None:
            self._newest[request.folder, request.fixed] = _Newest(preview.place, preview.count, now_s)
            self._newest.move_to_end((request.folder, request.fixed))
            if len(self._newest) > 2 * MAX_IN_PROGRESS:
                self._newest.popitem(last=False)
        self._keep((request, preview.place.tag), preview)
        return preview

    def _render(self, request: PreviewRequest, newest: _Newest | None) -> Preview:
        """Find and draw a frame, in a thread."""
        with self._shelf.borrow(request.folder) as source:
            if newest is not None:
                place, count = newest.place, newest.count
            else:
                place, count = source.find(chosen_axes(request.fixed, source.axes())), source.count
            kept = self._kept.get((request, place.tag))
            if kept is not None:
                return replace(kept, place=place, count=count)
            pixels = source.pixels(place)
            bits = source.shape()[2]
            steps = source.steps()
        facts = facts_of(pixels, bits, request.limits)
        self.n_rendered += 1
        jpeg = jpeg_bytes(small_picture(pixels, facts.low, facts.high, request.max_side))
        ratio = picture_ratio(pixels.shape, request.max_side)
        steps = steps[0] * ratio, steps[1] * ratio
        return Preview(jpeg, tag_of(request, place.tag, place.number), place, facts, count, steps)

    def _keep(self, key: tuple[PreviewRequest, str], preview: Preview) -> None:
        old = self._kept.pop(key, None)
        self._kept_bytes += len(preview.jpeg) - (len(old.jpeg) if old is not None else 0)
        self._kept[key] = preview
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1].jpeg)
