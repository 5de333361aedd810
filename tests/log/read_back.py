"""What our reader, other people's readers and the files themselves say about a dataset, against what was written."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ndstorage
import numpy as np
import tifffile
import xxhash
from numpy.typing import NDArray

import acqstream
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION
from acqstream.formats.ndtiff.index_entries import EntryBatch, parse_entries
from acqstream.formats.ndtiff.page_walk import PageChain
from acqstream.formats.ndtiff.pages import StackPage
from acqstream.formats.ndtiff.pixels import PIXEL_TYPES
from acqstream.log import journal, journal_file
from acqstream.storage.files.read_file import ReadFile
from tests.log.make_frames import Frame


def check_dataset(
    folder: Path, frames: Sequence[Frame], *, complete: bool = True, oracles: bool = True, tiff_pages: bool = True
) -> None:
    """Every frame is there as it was written, for every reader, and nothing else; the files agree with each other.

    tiff_pages: no page is left of a frame that was refused after it had been written.
    """
    check_ours(folder, frames, complete=complete)
    if tiff_pages:
        check_files(folder, frames)
    if oracles:
        check_ndstorage(folder, frames)
    if oracles and tiff_pages:
        check_tifffile_pages(folder, frames)


def check_ours(folder: Path, frames: Sequence[Frame], *, complete: bool = True) -> None:
    with acqstream.open(folder) as dataset:
        assert list(dataset.keys()) == [frame.axes for frame in frames]
        for frame in frames:
            image = dataset.read_frame(frame.axes)
            assert (image.dtype, image.shape) == (frame.image.dtype, frame.image.shape)
            assert np.array_equal(image, frame.image), f"frame {frame.header.number}"
            assert dataset.read_metadata(frame.axes) == frame.metadata
        assert dataset.complete == complete


@contextlib.contextmanager
def open_ndstorage(folder: Path | str) -> Iterator[Any]:
    """The dataset as ndstorage opens it."""
    with contextlib.redirect_stdout(io.StringIO()):
        oracle = ndstorage.Dataset(str(folder))
    try:
        yield oracle
    finally:
        oracle.close()


@contextlib.contextmanager
def open_pyramid(folder: Path | str) -> Iterator[Any]:
    """As ndstorage opens a tiled dataset: it forgets a file on the way, and its `close` raises."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        oracle = ndstorage.Dataset(str(folder))
    try:
        yield oracle
    finally:
        for level in oracle.res_levels.values():
            level.close()


def check_ndstorage(folder: Path, frames: Sequence[Frame]) -> None:
    with open_ndstorage(folder) as oracle:
        assert len(oracle.index) == len(frames)
        for frame in frames:
            assert oracle.has_image(**frame.axes)
            if frame.image.ndim == 2:  # it returns RGB in its own form
                assert np.array_equal(oracle.read_image(**frame.axes), frame.image), f"frame {frame.header.number}"
            assert oracle.read_metadata(**frame.axes) == frame.metadata


def check_tifffile_pages(folder: Path, frames: Sequence[Frame]) -> None:
    """Every stack as plain pages in file order: together the frames in order of their numbers."""
    seen = 0
    for path in stack_paths(folder):
        with tifffile.TiffFile(path, is_ndtiff=False) as tiff:
            for page in tiff.pages:
                frame = frames[seen]
                assert np.array_equal(page.asarray(), frame.image), f"frame {frame.header.number}"
                assert isinstance(page, tifffile.TiffPage)
                assert page.tags[51123].value == frame.metadata
                seen += 1
    assert seen == len(frames)


def check_files(folder: Path, frames: Sequence[Frame]) -> None:
    """Journal, index, pages and lengths agree."""
    entries = read_index(folder)
    records = read_journal(folder)
    records = records[records["flags"] == journal.FRAME]
    assert len(entries.names) == len(records) == len(frames)
    assert list(records["number"]) == [frame.header.number for frame in frames]
    for frame, name, numbers, record in zip(frames, entries.names, entries.numbers, records, strict=True):
        payload = (stack_folder(folder) / name.decode()).read_bytes()[int(record["offset"]) :][: int(record["length"])]
        assert payload == frame.image.tobytes()
        assert int(record["checksum"]) == xxhash.xxh3_64_intdigest(payload)
        assert int(numbers["pixel_offset"]) == int(record["offset"])
        assert int(numbers["pixel_type"]) == int(record["pixel_type"])
        assert PIXEL_TYPES[int(record["pixel_type"])] == frame.header.pixel_type
    used = {name.decode() for name in entries.names}
    for path in stack_paths(folder):
        check_finished(path, has_pages=path.name in used)
    assert not list(folder.rglob("*.part"))


def check_finished(path: Path, *, has_pages: bool) -> None:
    """The page chain ends in 0, and the file with its last page."""
    pages = read_pages(path)
    assert bool(pages) == has_pages
    if pages:
        assert pages[-1].next == 0
        ends = [max(page.pixels + page.pixel_bytes, page.metadata + page.metadata_bytes) for page in pages]
        assert path.stat().st_size == max(ends)


def stack_folder(folder: Path) -> Path:
    """Where the stack files of a dataset lie."""
    return folder / FULL_RESOLUTION if (folder / FULL_RESOLUTION).is_dir() else folder


def stack_paths(folder: Path) -> list[Path]:
    """The stack files in order of their numbers."""
    return sorted(stack_folder(folder).glob("*.tif"), key=lambda path: (len(path.name), path.name))


def read_pages(path: Path) -> list[StackPage]:
    file = ReadFile(path)
    pages = list(PageChain(file, struct.unpack("<I", file.read(4, 4))[0]).pages())
    file.close()
    return pages


def read_index(folder: Path) -> EntryBatch:
    content = (stack_folder(folder) / "NDTiff.index").read_bytes()
    entries = parse_entries(content)
    assert entries.consumed == len(content)
    return entries


def read_journal(folder: Path) -> NDArray[np.void]:
    content = journal_file.read_journal(folder / journal.JOURNAL_NAME)
    assert not content.unread_bytes
    assert len(content.prefix) == len(content.records)
    return content.records
