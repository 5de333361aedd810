"""A pass over all frames, against reading one after the other."""

from __future__ import annotations

import gc
import mmap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import CorruptDataset, StorageError
from acqstream.formats.ndtiff import read_ahead as read_ahead_module
from acqstream.storage.files import read_file
from acqstream.storage.platform import Files
from acqstream.storage.platform.posix_files import PosixFiles
from tests.formats.ndtiff.ndtiff_bytes import Folder, entry, image
from tests.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data", {"k": 1})


def check(folder: Folder) -> int:
    """All frames, kept until the end, are those of `read_frame`; how many there are."""
    with acqstream.open(folder.path) as ds:
        frames = list(ds.frames())
        assert sorted(map(repr, ds.keys())) == sorted(repr(key) for key, _ in frames)
        for key, frame in frames:
            expected = ds.read_frame(key)
            assert (frame.shape, frame.dtype) == (expected.shape, expected.dtype)
            assert np.array_equal(frame, expected)
            assert frame.flags.writeable
        return len(frames)


@pytest.mark.parametrize("piece_bytes", [100, 5000, 2**20])
@pytest.mark.parametrize("direct", [True, False])
def test_frames_of_any_kind(folder: Folder, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, direct: bool) -> None:
    monkeypatch.setattr(read_ahead_module, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(read_ahead_module, "_ROWS", 11)
    if not direct:
        monkeypatch.setattr(read_file, "FILES", PosixFiles())
    kinds: list[tuple[tuple[int, ...], str]] = [((3, 4), "<u2"), ((5, 7), "|u1"), ((60, 70), "<u2"), ((2, 9, 3), "|u1")]
    for t in range(40):
        if t % 15 == 14:
            folder.start_stack(f"a_NDTiffStack_{t // 15 + 1}.tif")
        folder.add({"time": t, "c": "ab"[t % 2]}, image(t, *kinds[t * t % 7 % 4]))
    assert check(folder) == 40


def test_other_byte_order(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data", order=">")
    for t in range(5):
        folder.add({"time": t}, image(t))
    assert check(folder) == 5


def test_no_frames(folder: Folder) -> None:
    assert check(folder) == 0


def test_a_frame_written_again_comes_once_in_its_last_place(folder: Folder) -> None:
    for n, t in enumerate([0, 1, 0, 2, 1, 0, 3]):
        folder.add({"time": t}, image(n))
    with acqstream.open(folder.path) as ds:
        assert [key["time"] for key, _ in ds.frames()] == [2, 1, 0, 3]
    assert check(folder) == 4


def test_a_file_that_cannot_be_read_directly_is_read_otherwise(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.add({"time": 0}, image(0))
    opened: list[int] = []
    real_open, real_read = Files.open_for_reading, Files.pread_into

    def open_and_note(files: Files, path: str, *, direct: bool = False) -> int:
        descriptor = real_open(files, path, direct=direct)
        if direct:
            opened.append(descriptor)
        return descriptor

    def refuse_direct(files: Files, descriptor: int, *rest: Any) -> int:
        if descriptor in opened:
            raise OSError(22, "Invalid argument")
        return real_read(files, descriptor, *rest)

    monkeypatch.setattr(Files, "open_for_reading", open_and_note)
    monkeypatch.setattr(Files, "pread_into", refuse_direct)
    assert check(folder) == 1


def test_frames_before_a_missing_one_come_first(folder: Folder) -> None:
    for t in range(6):
        folder.add({"time": t}, image(t))
    folder.publish(entry({"time": 6}, (2**31, 4, 3, 1, 0, 300, 9, 0)))
    seen = []
    with acqstream.open(folder.path) as ds:
        with pytest.raises(CorruptDataset, match="beyond the end"):
            for key, _ in ds.frames():
                seen.append(key["time"])
    assert seen == list(range(6))


def test_a_missing_stack_file_is_told_when_it_is_its_turn(folder: Folder) -> None:
    folder.add({"time": 0}, image(0))
    folder.publish(entry({"time": 1}, name="gone.tif"))
    seen = []
    with acqstream.open(folder.path) as ds:
        with pytest.raises(CorruptDataset, match="it is missing"):
            for key, _ in ds.frames():
                seen.append(key["time"])
    assert seen == [0]


def test_memory_is_used_again_but_never_under_a_frame(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead_module, "PIECE_BYTES", 2**15)
    made: list[int] = []
    real = mmap.mmap

    def make(descriptor: int, length: int, **options: int) -> mmap.mmap:
        made.append(length)
        return real(descriptor, length, **options)

    monkeypatch.setattr(mmap, "mmap", make)
    for t in range(40):
        folder.add({"time": t}, image(t, (128, 128)))
    with acqstream.open(folder.path) as ds:
        kept = [frame for n, (_, frame) in enumerate(ds.frames()) if n % 13 == 0]
        assert len(made) <= 12
        for n, frame in enumerate(kept):
            assert np.array_equal(frame, image(13 * n, (128, 128)))


def test_a_small_frame_is_its_own_and_keeps_few_neighbours(folder: Folder) -> None:
    count = 300
    for t in range(count):
        folder.add({"time": t}, image(t, (6, 5)))
    with acqstream.open(folder.path) as ds:
        frames = [frame for _, frame in ds.frames()]
    for frame in frames[::2]:
        frame[:] = 0
    assert len(frames) == count
    for t, frame in enumerate(frames):
        assert np.array_equal(frame, image(t, (6, 5)) if t % 2 else np.zeros((6, 5)))
        owner = frame
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        assert owner.base is None  # no part of the memory for pieces
        assert owner.nbytes <= 80 * frame.nbytes


def test_frames_after_a_short_read_are_read_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for t in range(40):
        folder.add({"time": t}, image(t, (50, 40)))
    real = read_file.BlockFile.read_blocks

    def read_half(file: read_file.BlockFile, offset: int, memory: memoryview) -> int:
        count = real(file, offset, memory) // 2
        memory[count:] = bytes(len(memory) - count)
        return count

    monkeypatch.setattr(read_file.BlockFile, "read_blocks", read_half)
    assert check(folder) == 40


def test_stopping_early_leaves_no_threads(folder: Folder) -> None:
    for t in range(40):
        folder.add({"time": t}, image(t))
    with acqstream.open(folder.path) as ds:
        frames = ds.frames()
        next(frames)
        del frames
        gc.collect()
    until(lambda: not any(thread.name.startswith("read-ahead") for thread in threading.enumerate()), "they end")


def test_frames_before_a_bad_place_of_the_disk_come_first(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for t in range(6):
        folder.add({"time": t}, image(t))
    seen = []
    with acqstream.open(folder.path) as ds:
        _, bad = ds.levels[0].source.reader.stored_frame(4)  # type: ignore[attr-defined]
        real = Files.pread_into

        def read(files: Files, descriptor: int, buffer: memoryview, offset: int) -> int:
            if offset <= bad.pixels < offset + len(buffer):
                raise OSError(5, "Input/output error")
            return real(files, descriptor, buffer, offset)

        monkeypatch.setattr(Files, "pread_into", read)
        with pytest.raises(StorageError, match="Input/output error"):
            for key, _ in ds.frames():
                seen.append(key["time"])
    assert seen == [0, 1, 2, 3]
