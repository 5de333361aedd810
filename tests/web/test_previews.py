"""Pictures are rendered once for all who look, at most four times a second, and within bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.description.channels import ChannelLook
from acqstream.errors import CorruptDataset
from acqstream.web.page.picture_source import Crop, FramePlace, ThinnedPicture
from acqstream.web.previews import MAX_IN_PROGRESS, MAX_KEPT_BYTES, Preview, PreviewRequest, Previews, kept_size
from acqstream.web.request_gate import GateClosed
from tests.waiting import WAIT_S

FOLDER = Path("cells")


class CountedFrames:
    """Stands in for a source and its shelf: the newest frame is `newest`, and reading waits for `gate`."""

    format = "ndtiff"

    def __init__(self) -> None:
        self.newest = 0
        self.gate = threading.Event()
        self.gate.set()
        self.is_damaged = False
        self.n_read = 0
        self.n_parts = 0
        self.paced: list[int] = []

    @property
    def count(self) -> int:
        return self.newest + 1

    @contextmanager
    def borrow(self, _folder: Path) -> Iterator[CountedFrames]:
        yield self

    async def pace(self, count: int) -> None:
        self.paced.append(count)

    def axes(self) -> Mapping[str, Sequence[Any]]:
        return {"time": range(self.newest + 1)}

    def find(self, fixed: Mapping[str, Any]) -> FramePlace:
        number = fixed.get("time", self.newest)
        return FramePlace({"time": number}, number, f"tag{number}")

    def picture(self, place: FramePlace, crop: Crop | None = None) -> ThinnedPicture:
        assert self.gate.wait(WAIT_S)
        self.n_read += 1
        if self.is_damaged:
            raise CorruptDataset("bytes are missing", path="cells")
        pixels = np.random.default_rng(place.number).integers(0, 4096, (64, 64)).astype(np.uint16)
        return ThinnedPicture(pixels, (1, 3), self._parts())

    def _parts(self) -> Iterator[int]:
        for _ in range(self.n_parts):
            self.n_read += 1
            yield 7

    def looks(self) -> dict[None, ChannelLook]:
        return {None: ChannelLook("", "#ffffff", (5.0, 500.0))}

    def shape(self) -> tuple[tuple[int, ...], str, int | None]:
        return (64, 64), "uint16", 12


def asked(**values: Any) -> PreviewRequest:
    return PreviewRequest(**{"folder": FOLDER, "fixed": (), "max_side": 64, "limits": (0.0, 4095.0), **values})


def run(frames: CountedFrames, body: Callable[[Previews], Awaitable[None]], threads: int = 4) -> Previews:
    """Run a coroutine with previews of these frames."""
    kept: list[Previews] = []

    async def main() -> None:
        with ThreadPoolExecutor(threads) as pool:

            async def in_thread(function: Callable[..., Preview], *arguments: Any) -> Preview:
                return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

            kept.append(Previews(frames.borrow, in_thread, frames.pace))  # type: ignore[arg-type]
            try:
                await body(kept[0])
            finally:
                frames.gate.set()

    asyncio.run(main())
    return kept[0]


def test_many_who_ask_at_once_get_one_rendering() -> None:
    frames = CountedFrames()
    frames.gate.clear()

    async def body(previews: Previews) -> None:
        tasks = [asyncio.ensure_future(previews.get(asked())) for _ in range(50)]
        await asyncio.sleep(0)
        frames.gate.set()
        found = await asyncio.gather(*tasks)
        assert len({id(one) for one in found}) == 1

    assert run(frames, body).n_rendered == 1


def test_the_newest_frame_is_looked_for_four_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = CountedFrames()

    async def body(previews: Previews) -> None:
        loop = asyncio.get_running_loop()
        now = [loop.time()]
        monkeypatch.setattr(loop, "time", lambda: now[0])
        for _ in range(16):  # a frame every 1/16 s: sums of it are exact
            frames.newest += 1
            found = await previews.get(asked())
            assert frames.newest - found.place.number < 5
            now[0] += 1 / 16

    assert run(frames, body).n_rendered == 4


def test_a_picture_in_parts_keeps_the_rate_and_ends_when_all_have_left() -> None:
    frames = CountedFrames()
    frames.n_parts = 1000

    async def body(previews: Previews) -> None:
        found = await previews.get(asked())
        assert found.steps == (1, 3)
        assert frames.paced == [7] * 1000
        frames.n_parts, frames.n_read, frames.newest = 10**9, 0, 1
        task = asyncio.ensure_future(previews.get(asked(fixed=(("time", "1"),))))
        other = asyncio.ensure_future(previews.get(asked(fixed=(("time", "1"),))))
        while frames.n_read < 10:
            await asyncio.sleep(0)
        task.cancel()
        before = frames.n_read
        while frames.n_read < before + 10:  # the other one is waiting
            await asyncio.sleep(0)
        other.cancel()
        while previews.n_in_progress:
            await asyncio.sleep(0)
        assert previews.n_rendered == 1

    run(frames, body)


def test_a_picture_is_kept_for_who_asks_later() -> None:
    frames = CountedFrames()
    frames.newest = 5

    async def body(previews: Previews) -> None:
        first = await previews.get(asked(fixed=(("time", "3"),)))
        frames.newest = 9
        assert (await previews.get(asked(fixed=(("time", "3"),)))).tag == first.tag
        assert (await previews.get(asked(fixed=(("time", "4"),)))).tag != first.tag
        stated = await previews.get(asked(fixed=(("time", "3"),), limits=None))
        own = await previews.get(asked(fixed=(("time", "3"),), limits=None, is_auto=True))
        assert len({first.tag, stated.tag, own.tag}) == 3
        assert (stated.facts.low, stated.facts.high) == (5, 500)  # of the channel
        assert (own.facts.low, own.facts.high) == (own.facts.auto_low, own.facts.auto_high) != (5, 500)

    assert run(frames, body).n_rendered == 4


def test_pictures_that_are_kept_are_bounded() -> None:
    frames = CountedFrames()
    frames.newest = 10_000

    async def body(previews: Previews) -> None:
        sizes = 0
        for number in range(40):
            made = await previews.get(asked(fixed=(("time", str(number)),)))
            assert kept_size(asked(), made) > len(made.jpeg) + 4000, "facts count"
            sizes += len(made.jpeg)
            kept = [kept_size(key[0], one) for key, one in previews._kept.items()]
            assert previews._kept_bytes == sum(kept) <= MAX_KEPT_BYTES
        assert sizes > MAX_KEPT_BYTES

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acqstream.web.previews.MAX_KEPT_BYTES", 20_000)
        patch.setitem(globals(), "MAX_KEPT_BYTES", 20_000)
        run(frames, body)


def test_too_many_at_a_time_are_refused() -> None:
    frames = CountedFrames()
    frames.newest = 100
    frames.gate.clear()

    async def body(previews: Previews) -> None:
        tasks = [
            asyncio.ensure_future(previews.get(asked(fixed=(("time", str(number)),))))
            for number in range(MAX_IN_PROGRESS)
        ]
        await asyncio.sleep(0)
        with pytest.raises(GateClosed):
            await previews.get(asked(fixed=(("time", "99"),)))
        frames.gate.set()
        await asyncio.gather(*tasks)
        await previews.get(asked(fixed=(("time", "99"),)))

    run(frames, body)


def test_a_pixel_of_the_picture_stands_for_stored_ones() -> None:
    frames = CountedFrames()

    async def body(previews: Previews) -> None:
        for max_side, steps in ((64, (1, 3)), (32, (2, 6)), (21, (4, 12))):
            assert (await previews.get(asked(max_side=max_side))).steps == steps

    run(frames, body)


def test_who_leaves_ends_it_for_nobody_else() -> None:
    frames = CountedFrames()
    frames.gate.clear()

    async def body(previews: Previews) -> None:
        leaver, stayer = (asyncio.ensure_future(previews.get(asked())) for _ in range(2))
        await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.sleep(0)
        frames.gate.set()
        assert (await stayer).place.number == 0

    run(frames, body)


def test_an_error_is_not_kept() -> None:
    frames = CountedFrames()
    frames.is_damaged = True

    async def body(previews: Previews) -> None:
        with pytest.raises(CorruptDataset):
            await previews.get(asked())
        frames.is_damaged = False
        assert (await previews.get(asked())).place.number == 0

    run(frames, body)
