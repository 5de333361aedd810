"""A copy of the folder, made at any moment of a run, opens everywhere with every listed frame right."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tifffile

import acqstream
from acqstream.errors import CorruptDataset, FrameNotFound
from acqstream.formats.ndtiff.index_entries import EntryBatch, parse_entries
from acqstream.integrity.recover import recover
from tests.log.make_frames import Frame, mixed_frames, start_log
from tests.log.read_back import check_dataset, open_ndstorage

LIMIT_BYTES = 7_600_000
FRAMES_PER_COPY = 6
INDEX = "NDTiff.index"


@pytest.mark.promise("no-half-frame")
@pytest.mark.parametrize(
    ("copies", "index_first"),
    [
        (40, True),
        (40, False),
        pytest.param(200, True, marks=pytest.mark.slow),
        pytest.param(200, False, marks=pytest.mark.slow),
    ],
)
def test_every_listed_frame_of_a_copy_is_right(tmp_path: Path, copies: int, index_first: bool) -> None:
    frames = mixed_frames(20 * FRAMES_PER_COPY)
    seen = 0
    for run in range(copies // 20):
        source = tmp_path / f"cells{run}"
        for copy in copies_of_a_run(source, frames, tmp_path / "copy", index_first=index_first):
            seen += check_copy(copy, frames, all_inside=index_first)
            shutil.rmtree(copy)
        check_dataset(source, frames)
        assert len(list(source.glob("*.tif"))) > 2
    assert seen > copies * FRAMES_PER_COPY


def copies_of_a_run(source: Path, frames: list[Frame], target: Path, *, index_first: bool) -> Iterator[Path]:
    """Copies made while a thread puts frames, a few more for each copy."""
    permits = threading.Semaphore(0)
    log = start_log(source, limit=LIMIT_BYTES)
    log.wait_until_open()

    def produce() -> None:
        for frame in frames:
            permits.acquire()
            log.append(frame.header, frame.image)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for number in range(len(frames) // FRAMES_PER_COPY):

            def go_on(number: int = number) -> None:
                permits.release(FRAMES_PER_COPY)
                if number % 4 == 3:  # something is published while the copy is made
                    log.wait_for_published(log.cursors().published + 1, 1.0)

            copy_folder(source, target, go_on, index_first=index_first)
            yield target
    finally:
        permits.release(len(frames))
        producer.join()
        log.close()


def copy_folder(source: Path, target: Path, go_on: Callable[[], None], *, index_first: bool) -> None:
    target.mkdir()
    if index_first:
        shutil.copyfile(source / INDEX, target / INDEX)
        go_on()
    for path in sorted(source.iterdir(), key=lambda path: path.suffix != ".tif"):
        if path.name != INDEX:
            with contextlib.suppress(FileNotFoundError):  # renamed or replaced since it was listed
                shutil.copyfile(path, target / path.name)
    if not index_first:
        go_on()
        shutil.copyfile(source / INDEX, target / INDEX)


def check_copy(copy: Path, frames: list[Frame], *, all_inside: bool) -> int:
    """Listed frames are a prefix; those whose bytes were copied are right, of others no pixels come. Their number."""
    entries = parse_entries((copy / INDEX).read_bytes())
    inside = [is_inside(copy, entries, position) for position in range(len(entries.names))]
    assert entries.axes == [frame.axes for frame in frames[: len(inside)]]
    assert all(inside) or not all_inside
    with acqstream.open(copy) as dataset:
        assert sum(inside) <= len(list(dataset.keys())) <= len(inside)  # frames that were not copied are left out
        for frame, whole in zip(frames, inside, strict=False):
            if whole:
                assert np.array_equal(dataset.read_frame(frame.axes), frame.image)
                assert dataset.read_metadata(frame.axes) == frame.metadata
            else:
                with pytest.raises((CorruptDataset, FrameNotFound)):
                    dataset.read_frame(frame.axes), dataset.read_metadata(frame.axes)
    with open_ndstorage(copy) as oracle:
        for frame, whole in zip(frames, inside, strict=False):
            if whole:
                assert np.array_equal(oracle.read_image(**frame.axes), frame.image)
                assert oracle.read_metadata(**frame.axes) == frame.metadata
    check_pages(copy, entries, frames, inside)
    whole_frames = inside.index(False) if False in inside else len(inside)
    recover(copy)
    with acqstream.open(copy) as dataset:
        keys = list(dataset.keys())
        assert len(keys) >= whole_frames
        for frame, axes in zip(frames, keys, strict=False):
            assert np.array_equal(dataset.read_frame(axes), frame.image)
    return sum(inside)


def is_inside(copy: Path, entries: EntryBatch, position: int) -> bool:
    path = copy / entries.names[position].decode()
    numbers = entries.numbers[position]
    pixel_bytes = 2 * int(numbers["width"]) * int(numbers["height"])
    metadata_end = int(numbers["metadata_offset"]) + int(numbers["metadata_length"])
    end = max(int(numbers["pixel_offset"]) + pixel_bytes, metadata_end)
    return path.exists() and end <= path.stat().st_size


def check_pages(copy: Path, entries: EntryBatch, frames: list[Frame], inside: list[bool]) -> None:
    """tifffile finds a page for every listed frame."""
    for name in sorted(set(entries.names)):
        wanted = {
            int(entries.numbers["pixel_offset"][position]): frames[position]
            for position, whole in enumerate(inside)
            if whole and entries.names[position] == name
        }
        if not wanted:
            continue
        with tifffile.TiffFile(copy / name.decode(), is_ndtiff=False) as tiff:
            number = 0
            while wanted:
                page = tiff.pages[number]
                frame = wanted.pop(page.dataoffsets[0], None)
                number += 1
                if frame is not None:
                    assert np.array_equal(page.asarray(), frame.image)
                    assert isinstance(page, tifffile.TiffPage)
                    assert page.tags[51123].value == frame.metadata
