"""The feed: every published frame, from wherever it is."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.errors import CorruptDataset, UnsupportedFeature
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.pipeline.log import Log
from acqstream.pipeline.views.feed import FrameFeed
from acqstream.storage.memory import PageMemory
from tests.pipeline.make_frames import (
    LEAST_LIMIT_BYTES,
    MIB,
    Frame,
    frame_of,
    frames_of,
    mixed_frames,
    spec_of,
    write_log,
)
from tests.pipeline.views.shared_log import source_of

GOLDEN = Path(__file__).parents[2] / "golden" / "ndtiff"
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
    while leases := feed.take(cursor, limit_bytes):
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
        assert feed.take(30, MIB) == []
        assert not feed.is_held
        source.put(frames[30:])
        check(take_all(feed, 30)[0], frames[30:])


def test_a_lease_that_was_overtaken_is_taken_again_from_the_stack(tmp_path: Path) -> None:
    frames = frames_of(60, (600, 500))
    with source_of(tmp_path / "cells") as source:
        source.put(frames[:20])
        feed = source.feed()
        lease = feed.take(3, 1)[0]
        assert lease.is_from_memory
        assert lease.is_intact()
        source.put(frames[20:])
        assert not lease.is_intact()
        again = feed.take(3, 1)[0]
        assert not again.is_from_memory
        assert np.array_equal(again.pixels, frames[3].image)


def test_nothing_is_in_memory_once_the_log_has_ended(tmp_path: Path) -> None:
    frames = frames_of(10)
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        feed = source.feed()
        lease = feed.take(0, 1)[0]
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
        assert feed.take(0, MIB) == []
        assert feed.is_held
        assert feed.take(59, MIB)  # from memory: no disk
        assert not feed.is_held
        is_free = True
        check(take_all(feed)[0], frames)


def test_a_take_stops_at_its_limit(tmp_path: Path) -> None:
    frames = frames_of(200)
    with source_of(tmp_path / "cells") as source:
        source.put(frames)
        frame_bytes = frames[0].image.nbytes
        for feed in (source.feed(), source.feed(from_memory=False)):
            assert 1 <= len(feed.take(0, 1)) <= 2
            assert 8 <= len(feed.take(0, 10 * frame_bytes)) <= 11


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
    leases = feed.take(0, 100 * MIB)
    check([lease.pixels for lease in leases], frames[:3])
    with pytest.raises(CorruptDataset, match="beyond the end of the file"):
        feed.take(3, MIB)
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
