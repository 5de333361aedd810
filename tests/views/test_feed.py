"""The feed: every published frame, from wherever it is."""

from __future__ import annotations

import gc
import shutil
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff import read_ahead
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.log.log import Log
from acqstream.log.recent_frames import GroupTable
from acqstream.storage.files import read_file
from acqstream.storage.files.read_file import BlockFile
from acqstream.storage.page_memory import PageMemory
from acqstream.views import frame_feed
from acqstream.views.frame_feed import DiskAllowance, FrameFeed, Lease, Waiting
from tests.log.make_frames import (
    LEAST_LIMIT_BYTES,
    MIB,
    Frame,
    frame_of,
    frames_of,
    mixed_frames,
    spec_of,
    write_log,
)
from tests.storage.scripted_disk import ScriptedDisk
from tests.views.shared_log import source_of
from tests.waiting import until


def take(feed: FrameFeed, cursor: int, limit_bytes: int) -> Sequence[Lease]:
    """No frames while the feed waits for something."""
    found = feed.take(cursor, limit_bytes)
    return () if isinstance(found, Waiting) else found


GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"
WHOLE = ["java_rgb", "java_rollover", "java_uint8_odd", "py_rollover", "py_string_axes", "real_v2_flat", "torn_index"]
KINDS: dict[str, list[Frame]] = {
    "small": frames_of(200),
    "large": frames_of(20, (600, 500)),
    "mixed": mixed_frames(40),
    "rgb": frames_of(30, (40, 50, 3), "|u1"),
    "odd": frames_of(50, (7, 5), "|u1"),
}


def take_all(feed: FrameFeed, cursor: int = 0, limit_bytes: int = MIB) -> tuple[list[NDArray[Any]], int]:
    """Copies of all frames from `cursor` on, and how many came from memory."""
    images, from_memory = [], 0
    while leases := take(feed, cursor, limit_bytes):
        for lease in leases:
            assert lease.row == cursor
            images.append(lease.pixels.copy())
            assert lease.is_intact()
            from_memory += lease.is_from_memory
            cursor += 1
    return images, from_memory


def check(images: Sequence[NDArray[Any]], frames: Sequence[Frame]) -> None:
    assert len(images) == len(frames)
    for image, frame in zip(images, frames, strict=True):
        assert image.dtype == frame.image.dtype
        assert np.array_equal(image, frame.image)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("from_memory", [True, False])
def test_every_frame_comes_from_memory_or_from_the_stack(tmp_path: Path, kind: str, from_memory: bool) -> None:
    frames = KINDS[kind]
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        images, count = take_all(source.feed(from_memory=from_memory))
        check(images, frames)
        assert count == (len(frames) if from_memory else 0)


def test_what_memory_has_no_more_is_read_and_what_it_has_is_not(tmp_path: Path) -> None:
    frames = frames_of(60, (600, 500))  # twice the memory
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        images, count = take_all(source.feed())
        check(images, frames)
        assert 15 < count < 35


def test_over_stack_files_and_gaps(tmp_path: Path) -> None:
    frames = frames_of(10, (600, 500))
    later = frames_of(10, (600, 500), first=15)
    with source_of(tmp_path / "cells", stack_limit_bytes=LEAST_LIMIT_BYTES) as source:
        source.put(frames)
        source.log.skip(10, 5, "never came")
        source.put(later)
        check(take_all(source.feed())[0], frames + later)
        check(take_all(source.feed(from_memory=False))[0], frames + later)
        assert len(list((tmp_path / "cells").glob("*.tif"))) > 2


def test_a_growing_dataset_is_followed(tmp_path: Path) -> None:
    frames = frames_of(90)
    with source_of(tmp_path / "cells") as source:
        source.put(frames[:30])
        feed = source.feed()
        assert len(take_all(feed)[0]) == 30
        assert feed.take(30, MIB) is Waiting.FRAMES
        source.put(frames[30:])
        check(take_all(feed, 30)[0], frames[30:])


def test_frames_that_were_not_used_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_of(12, (600, 500))
    runs: list[list[int]] = []
    read_frames = NDTiffReader.read_frames

    def note(reader: NDTiffReader, rows: NDArray[np.int64], *more: Any) -> Any:
        runs.append(rows.tolist())
        return read_frames(reader, rows, *more)

    monkeypatch.setattr(NDTiffReader, "read_frames", note)
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        feed = source.feed(from_memory=False)
        images: list[NDArray[Any]] = []
        while leases := take(feed, len(images), 2 * MIB):  # of which only the first is used
            assert [lease.row for lease in leases] == list(range(len(images), min(12, len(images) + 4)))
            images.append(leases[0].pixels.copy())
        check(images, frames)
        assert [lease.row for lease in take(feed, 3, 1)] == [3]
        assert [lease.row for lease in take(feed, 9, 1)] == [9]
    assert runs == [list(range(12)), list(range(3, 12)), list(range(9, 12))]


def test_a_lease_that_was_overtaken_is_taken_again_from_the_stack(tmp_path: Path) -> None:
    frames = frames_of(60, (600, 500))
    with source_of(tmp_path / "cells") as source:
        source.put(frames[:20])
        feed = source.feed()
        lease = take(feed, 3, 1)[0]
        assert lease.is_from_memory
        assert lease.is_intact()
        source.put(frames[20:])
        assert not lease.is_intact()
        again = take(feed, 3, 1)[0]
        assert not again.is_from_memory
        assert np.array_equal(again.pixels, frames[3].image)


def test_nothing_is_in_memory_once_the_log_has_ended(tmp_path: Path) -> None:
    frames = frames_of(10)
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        feed = source.feed()
        lease = take(feed, 0, 1)[0]
        source.log.close()
        source.table.end()
        assert not lease.is_intact()
        images, count = take_all(feed)
        check(images, frames)
        assert count == 0


def test_no_disk_reads_while_the_log_has_a_backlog(tmp_path: Path) -> None:
    is_free = False
    frames = frames_of(60, (600, 500))
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        feed = source.feed(may_read=lambda: is_free)
        assert feed.take(0, MIB) is Waiting.LOG
        assert take(feed, 59, MIB)  # from memory: no disk
        is_free = True
        check(take_all(feed)[0], frames)


def test_a_take_stops_at_its_limit(tmp_path: Path) -> None:
    frames = frames_of(200)
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        frame_bytes = frames[0].image.nbytes
        for feed in (source.feed(), source.feed(from_memory=False)):
            assert 1 <= len(take(feed, 0, 1)) <= 2
            assert 8 <= len(take(feed, 0, 10 * frame_bytes)) <= 11


@pytest.mark.parametrize("name", WHOLE)
def test_datasets_of_other_writers(name: str) -> None:
    reader = open_readers(GOLDEN / name / "data")[0]
    images, _ = take_all(FrameFeed(reader))
    assert len(images) == len(reader) > 0
    for row, image in enumerate(images):
        assert np.array_equal(image, reader.read_pixels(row))
    reader.close()


def test_a_frame_that_is_cut_off_is_an_error_and_those_before_it_are_not(tmp_path: Path) -> None:
    frames = frames_of(5, (600, 500))
    write_log(tmp_path / "cells", frames)
    stack = next((tmp_path / "cells").glob("*.tif"))
    with stack.open("r+b") as file:
        file.truncate(stack.stat().st_size - 700_000)
    feed = FrameFeed(open_readers(tmp_path / "cells")[0])
    leases = take(feed, 0, 100 * MIB)
    check([lease.pixels for lease in leases], frames[:3])
    with pytest.raises(CorruptDataset, match="beyond the end of the file"):
        take(feed, 3, MIB)
    feed.reader.close()


def test_compressions_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "py_uint16" / "data", tmp_path / "cells")
    index = tmp_path / "cells" / "NDTiff.index"
    content = index.read_bytes()
    index.write_bytes(content[: content.index(b".tif") + 20] + b"\7\0\0\0" + content[content.index(b".tif") + 24 :])
    reader = NDTiffReader(tmp_path / "cells", tmp_path / "cells")
    with pytest.raises(UnsupportedFeature, match="compression 7"):
        FrameFeed(reader).take(0, MIB)
    reader.close()


def test_frames_of_one_number_written_twice_come_twice(tmp_path: Path) -> None:
    first, second = frame_of(0), frame_of(1, axes={"time": 0})
    with Log(tmp_path / "cells", spec_of(replace_duplicates=True), memory=PageMemory(4 * MIB).view) as log:
        for frame in (first, second):
            log.append(frame.header, frame.image)
    reader = open_readers(tmp_path / "cells")[0]
    check(take_all(FrameFeed(reader))[0], [first, second])
    reader.close()


def doubled(pixels: NDArray[Any]) -> NDArray[Any]:
    return pixels * 2


@pytest.mark.parametrize("adopts", [True, False])
def test_frames_are_digested_before_they_are_published(tmp_path: Path, adopts: bool) -> None:
    frames, disk = frames_of(12, (600, 500)), ScriptedDisk()
    with source_of(tmp_path / "cells", disk=disk) as source:
        source.put(frames[:1])
        feed = source.feed(may_read=lambda: False)
        stall = disk.stall("fdatasync", part="Stack")
        if adopts:
            source.adopt(frames[1:])
        else:
            for frame in frames[1:]:
                source.log.append(frame.header, frame.image)
        assert len(take(feed, 0, MIB)) == 1
        while feed.look_ahead(doubled, 100, MIB):
            pass
        assert feed.take(1, MIB) is Waiting.FRAMES
        assert source.log.cursors().published == 1
        stall.go.set()
        assert source.log.wait_for_published(12)
        leases = take(feed, 1, 100 * MIB)
        assert [lease.row for lease in leases] == list(range(1, 12))
        for lease, frame in zip(leases, frames[1:], strict=True):
            assert lease.is_from_memory
            assert lease.is_intact()
            assert np.array_equal(lease.digest, frame.image * 2)


def test_a_frame_that_is_overwritten_while_it_is_digested_is_read_again(tmp_path: Path) -> None:
    frames, disk = frames_of(3, (600, 500)), ScriptedDisk()
    with source_of(tmp_path / "cells", disk=disk) as source:
        source.put(frames[:1])
        feed = source.feed()
        take(feed, 0, MIB)
        stall = disk.stall("fdatasync", part="Stack")
        places = source.adopt(frames[1:])

        def digest(pixels: NDArray[Any]) -> NDArray[Any]:
            """Meanwhile all is published, and the producer uses its memory again."""
            stall.go.set()
            assert source.log.wait_for_published(3)
            for place in places:
                place[:] = b"x" * len(place)
            return pixels.copy()

        assert feed.look_ahead(digest, 100, 1)
        assert not feed.look_ahead(digest, 100, MIB)
        leases = take(feed, 1, 100 * MIB)
        assert [lease.digest for lease in leases] == [None, None]
        check([lease.pixels for lease in leases], frames[1:])


def test_no_more_digests_are_kept_than_was_agreed(tmp_path: Path) -> None:
    frames, disk = frames_of(12, (600, 500)), ScriptedDisk()
    with source_of(tmp_path / "cells", disk=disk) as source:
        source.put(frames[:1])
        feed = source.feed()
        take(feed, 0, MIB)
        stall = disk.stall("fdatasync", part="Stack")
        source.adopt(frames[1:])
        digested = []

        def digest(pixels: NDArray[Any]) -> int:
            digested.append(pixels)
            return len(digested)

        while feed.look_ahead(digest, 3, 100 * MIB):
            pass
        assert len(digested) == 3
        stall.go.set()
        assert source.log.wait_for_published(12)
        images = []
        for row in range(1, 12):
            lease = take(feed, row, 1)[0]
            assert lease.digest == (row if row < 4 else None)
            images.append(lease.pixels)
        check(images[3:], frames[4:])


def test_frames_that_went_to_another_file_are_read_there(tmp_path: Path) -> None:
    """They lie there where other ones were to lie, before the first file failed."""
    frames, disk = frames_of(20, (600, 500)), ScriptedDisk()
    with source_of(tmp_path / "cells", disk=disk, stack_limit_bytes=LEAST_LIMIT_BYTES) as source:
        source.put(frames[:1])
        feed = source.feed()
        assert feed.has(0)
        stall = disk.stall("fdatasync", part="Stack.tif")
        disk.fail("fdatasync", part="Stack.tif")
        source.adopt(frames[1:])
        while feed.look_ahead(doubled, 100, MIB):
            pass
        stall.go.set()
        assert source.log.wait_for_published(20)
        assert source.log.notes.warnings
        images = []
        for row in range(1, 20):
            lease = take(feed, row, 1)[0]
            assert not lease.is_from_memory
            images.append(lease.pixels.copy())
        check(images, frames[1:])


def test_a_little_is_read_while_the_log_has_a_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_feed, "SHARE", 0.0)  # a little once, and nothing more however long this takes
    frames, go, read = frames_of(4, (600, 500)), threading.Event(), NDTiffReader.read_frames

    def read_when_told(reader: NDTiffReader, *arguments: Any) -> Any:
        assert go.wait(20)
        return read(reader, *arguments)

    monkeypatch.setattr(NDTiffReader, "read_frames", read_when_told)
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        allowance = DiskAllowance(lambda: True, burst_s=1e-9)
        feed = FrameFeed(source.feed(from_memory=False).reader, allowance=allowance)
        assert feed.take(0, 1) is Waiting.READING
        go.set()
        (lease,) = until(lambda: take(feed, 0, 1), "the frame is read")
        assert np.array_equal(lease.pixels, frames[0].image)
        assert feed.take(1, 1) is Waiting.LOG
        feed.close()


@pytest.mark.parametrize("n_passed", [1, 3])
def test_frames_that_were_read_beside_and_came_from_memory_do_not_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_passed: int
) -> None:
    """The producer's memory reaches this process late, and the log has not released it yet: they are being read."""
    frames, go, read = frames_of(6, (600, 500)), threading.Event(), NDTiffReader.read_frames

    def read_when_told(reader: NDTiffReader, *arguments: Any) -> Any:
        assert go.wait(20)
        return read(reader, *arguments)

    monkeypatch.setattr(NDTiffReader, "read_frames", read_when_told)
    monkeypatch.setattr(GroupTable, "release", lambda *_: None)
    with source_of(tmp_path / "cells") as source:
        lend = source.hold_lent()
        source.adopt(frames)
        assert source.log.wait_for_published(6)
        reader = source.feed().reader
        feed = FrameFeed(reader, source.recent, allowance=DiskAllowance(lambda: True, burst_s=1e9))
        assert feed.take(0, 2 * frames[0].image.nbytes) is Waiting.READING  # two of them are read
        lend()
        images = [take(feed, row, 1)[0].pixels.copy() for row in range(n_passed)]
        source.table.end()
        go.set()
        while len(images) < 6:
            leases = until(lambda: take(feed, len(images), 1), "the next frame is read")
            assert leases[0].row == len(images)
            images.append(leases[0].pixels.copy())
        check(images, frames)
        feed.close()


def test_frames_are_read_ahead_and_a_jump_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_of(40, (600, 500))
    write_log(tmp_path / "cells", frames)
    reads: list[str] = []

    class Watched(BlockFile):
        def read_blocks(self, offset: int, memory: memoryview) -> int:
            reads.append(threading.current_thread().name)
            return super().read_blocks(offset, memory)

    monkeypatch.setattr(read_ahead, "BlockFile", Watched)
    feed = FrameFeed(open_readers(tmp_path / "cells")[0])
    check(take_all(feed, limit_bytes=MIB)[0], frames)
    assert reads
    assert all(name.startswith("read-ahead") for name in reads)
    for row in (5, 6, 3, 39, 0):
        (lease,) = take(feed, row, 1)
        assert np.array_equal(lease.pixels, frames[row].image)
    feed.close()
    until(lambda: not any(thread.name.startswith("read-ahead") for thread in threading.enumerate()), "they end")


def test_reads_that_begin_again_use_the_memory_of_those_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that is a little behind reads a few frames, many times. Its end gives the memory back."""
    frames, made = frames_of(40, (600, 500)), []
    write_log(tmp_path / "cells", frames)

    def count(length: int) -> PageMemory:
        memory = PageMemory(length)
        made.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(read_file, "PageMemory", count)
    feed = FrameFeed(open_readers(tmp_path / "cells")[0])
    for row in (5, 30, 3, 39, 0, 20, 8) * 3:
        (lease,) = take(feed, row, 1)
        assert np.array_equal(lease.pixels, frames[row].image)
        del lease
    assert 0 < len(made) <= 6
    feed.close()
    del feed
    gc.collect()
    assert not any(one() for one in made)
