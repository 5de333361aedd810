"""Notes in a dataset's folder: in order, once, after torn ones, and never more than there may be."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from acqstream.errors import AcquisitionRefused, CorruptDataset, DatasetLocked, DiskFull, StorageError
from acqstream.formats.ndtiff.folders import NOTES_NAME, read_notes
from acqstream.log import dataset_files
from acqstream.log.dataset_files import NoteFile
from acqstream.model.run_note import RunNote
from acqstream.storage.files.append_file import AppendFile
from acqstream.storage.files.disk import LocalDisk


def note(number: int, text: str = "a note") -> RunNote:
    return RunNote(f"{text} {number}", 1_790_000_000_000_000_000 + number, number, id=f"note-{number}")


def texts(folder: Path) -> list[str]:
    return [one.text for one in read_notes(folder)[0]]


def test_notes_are_kept_in_order_and_each_once(tmp_path: Path) -> None:
    file = NoteFile(LocalDisk(), str(tmp_path))
    assert not (tmp_path / NOTES_NAME).exists()
    for number in (0, 1, 0, 2):
        file.add(note(number))
    again = NoteFile(LocalDisk(), str(tmp_path))  # as after a restart of the daemon
    assert again.add(RunNote("sent again", 5, 99, id="note-1")).frame == 1
    again.add(note(3))
    file.add(note(4))  # it has seen neither of the last two
    assert read_notes(tmp_path) == (tuple(map(note, range(5))), "")


def test_a_torn_note_is_left_out_then_cut_off(tmp_path: Path) -> None:
    NoteFile(LocalDisk(), str(tmp_path)).add(note(0))
    path = tmp_path / NOTES_NAME
    path.write_bytes(path.read_bytes() + note(1).line()[:30])
    notes, trouble = read_notes(tmp_path)
    assert [one.text for one in notes] == ["a note 0"]
    assert "torn" in trouble
    assert str(path) in trouble
    NoteFile(LocalDisk(), str(tmp_path)).add(note(2))
    assert read_notes(tmp_path) == ((note(0), note(2)), "")


def test_a_damaged_file_is_named_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / NOTES_NAME
    path.write_bytes(b"rubbish\n" + note(0).line())
    before = path.read_bytes()
    with pytest.raises(CorruptDataset, match="line 1 is not a note") as info:
        NoteFile(LocalDisk(), str(tmp_path)).add(note(1))
    assert NOTES_NAME in str(info.value)
    assert path.read_bytes() == before
    with pytest.raises(CorruptDataset, match="line 1 is not a note"):
        read_notes(tmp_path)


def test_there_are_never_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_files, "MAX_NOTES", 2)
    file = NoteFile(LocalDisk(), str(tmp_path))
    for number in range(2):
        file.add(note(number))
    with pytest.raises(AcquisitionRefused, match="has 2 notes") as info:
        file.add(note(2))
    assert info.value.code == "too_many_notes"
    assert file.add(note(1)).frame == 1  # it is there
    assert len(texts(tmp_path)) == 2


def test_the_file_is_never_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_files, "MAX_NOTES_BYTES", 300)
    file = NoteFile(LocalDisk(), str(tmp_path))
    with pytest.raises(AcquisitionRefused, match=r"notes; expected"):
        for number in range(10):
            file.add(note(number))
    assert 0 < (tmp_path / NOTES_NAME).stat().st_size <= 300
    (tmp_path / NOTES_NAME).write_bytes(b"x" * 400)
    with pytest.raises(CorruptDataset, match="more than 300 bytes"):
        file.add(note(99))


class FullDisk(LocalDisk):
    """Takes half of each line while it is full; or fails to force it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = self.fails_to_force = False

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        if self.is_full:
            super().pwritev(fd, [bytes(buffers[0])[:20]], offset)
            raise OSError(errno.ENOSPC, "no space")
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        if self.fails_to_force:
            raise OSError(errno.EIO, "the disk failed")
        super().fdatasync(fd)


def test_a_full_disk_refuses_the_note_and_leaves_the_others(tmp_path: Path) -> None:
    disk = FullDisk()
    file = NoteFile(disk, str(tmp_path))
    file.add(note(0))
    disk.is_full = True
    with pytest.raises(DiskFull):
        file.add(note(1))
    assert read_notes(tmp_path) == ((note(0),), "")
    disk.is_full = False
    file.add(note(1))
    assert read_notes(tmp_path) == ((note(0), note(1)), "")


def test_a_note_that_was_not_forced_is_none(tmp_path: Path) -> None:
    disk = FullDisk()
    file = NoteFile(disk, str(tmp_path))
    file.add(note(0))
    disk.fails_to_force = True
    with pytest.raises(StorageError, match="force"):
        file.add(note(1))
    disk.fails_to_force = False
    assert texts(tmp_path) == ["a note 0"]
    file.add(note(1))  # sent again
    assert texts(tmp_path) == ["a note 0", "a note 1"]


def test_two_programs_take_turns(tmp_path: Path) -> None:
    files = [NoteFile(LocalDisk(), str(tmp_path)) for _ in range(2)]

    def add(at: int) -> None:
        for number in range(20):
            files[at].add(note(100 * at + number))

    threads = [threading.Thread(target=add, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(tmp_path)
    assert len(set(found)) == len(found) == 40
    assert [one for one in found if len(one) < len("a note 100")] == [f"a note {number}" for number in range(20)]


class ComesSecond(LocalDisk):
    """Another program adds the first note just before the file is made here."""

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        if create:
            NoteFile(LocalDisk(), str(Path(path).parent)).add(note(0))
        return super().open(path, create=create, direct=direct)


def test_another_program_makes_the_file_at_the_same_moment(tmp_path: Path) -> None:
    NoteFile(ComesSecond(), str(tmp_path)).add(note(1))
    assert texts(tmp_path) == ["a note 0", "a note 1"]


def test_a_program_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = NoteFile(LocalDisk(), str(tmp_path))
    file.add(note(0))
    other = AppendFile(LocalDisk(), str(tmp_path / NOTES_NAME), create=False)
    other.lock()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 40:
            other.close()

    monkeypatch.setattr("acqstream.storage.files.directory_lock.time.sleep", pause)
    file.add(note(1))
    assert texts(tmp_path) == ["a note 0", "a note 1"]
    assert len(pauses) == 40


def test_a_file_that_another_program_keeps_locked_is_refused(tmp_path: Path) -> None:
    file = NoteFile(LocalDisk(), str(tmp_path), attempts=3)
    file.add(note(0))
    other = AppendFile(LocalDisk(), str(tmp_path / NOTES_NAME), create=False)
    other.lock()
    try:
        with pytest.raises(DatasetLocked, match=NOTES_NAME):
            file.add(note(1))
    finally:
        other.close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    folder = tmp_path / "cells"
    folder.mkdir()
    try:
        (folder / NOTES_NAME).symlink_to(victim)
    except OSError as error:
        pytest.skip(f"no links here: {error}")
    with pytest.raises(StorageError):
        NoteFile(LocalDisk(), str(folder)).add(note(0))
    assert victim.read_bytes() == b""


class ShortReads(LocalDisk):
    """Gives a few bytes at a time, as some network mounts do."""

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return super().pread(fd, min(length, 100), offset)


def test_a_short_read_is_no_torn_note(tmp_path: Path) -> None:
    for number in range(20):
        NoteFile(LocalDisk(), str(tmp_path)).add(note(number))
    NoteFile(ShortReads(), str(tmp_path)).add(note(20))
    assert len(texts(tmp_path)) == 21
