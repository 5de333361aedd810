"""Files of Windows: what other processes may do with them, and what fails. Runs on Windows and under Wine."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.storage.page_memory import PageMemory
from acqstream.storage.platform import windows_files, windows_names
from acqstream.storage.platform.windows_files import WindowsFiles

pytestmark = pytest.mark.skipif(sys.platform != "win32", reason="calls of Windows: `tools/run.py test-windows`")
BLOCK = 4096


@pytest.fixture
def files() -> WindowsFiles:
    return WindowsFiles()


@pytest.fixture
def fd(files: WindowsFiles, tmp_path: Path) -> Iterator[int]:
    """A file with 100 bytes that stays open through the test."""
    fd = files.open(str(tmp_path / "file"), create=True)
    files.pwritev(fd, [bytes(range(100))], 0)
    yield fd
    files.close(fd)


def test_an_open_file_is_renamed_and_its_handle_follows(files: WindowsFiles, fd: int, tmp_path: Path) -> None:
    reader = files.open_for_reading(str(tmp_path / "file"))
    files.replace(str(tmp_path / "file"), str(tmp_path / "other"))
    files.pwritev(fd, [b"new"], 0)
    assert files.pread(reader, 3, 0) == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["other"]
    files.sync_directory(str(tmp_path))
    files.close(reader)


def test_the_name_of_a_removed_file_is_free_at_once(files: WindowsFiles, fd: int, tmp_path: Path) -> None:
    files.unlink(str(tmp_path / "file"))
    files.close(files.open(str(tmp_path / "file"), create=True))
    assert files.pread(fd, 3, 0) == b"\0\1\2"


def test_a_file_that_another_program_opened_is_waited_for(files: WindowsFiles, tmp_path: Path) -> None:
    """Python opens a file so that nobody can rename it."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open("rb") as other:
        with pytest.raises(PermissionError, match="Windows error 32"):
            files.replace(str(path), str(tmp_path / "new"))
        soon = threading.Timer(0.1, other.close)
        soon.start()
        files.replace(str(path), str(tmp_path / "new"))
        soon.join()
    assert (tmp_path / "new").read_bytes() == b"x"


def test_other_programs_can_open_what_is_being_written(files: WindowsFiles, fd: int, tmp_path: Path) -> None:
    assert (tmp_path / "file").read_bytes() == bytes(range(100))


def test_places_in_a_file_are_independent_of_threads(files: WindowsFiles, fd: int) -> None:
    def write(start: int) -> None:
        for n in range(start, 1000, 4):
            files.pwritev(fd, [n.to_bytes(4, "little"), b"1234"], 8 * n)

    threads = [threading.Thread(target=write, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.size(fd) == 8000
    content = files.pread(fd, 9000, 0)
    assert [int.from_bytes(content[8 * n : 8 * n + 4], "little") for n in range(1000)] == list(range(1000))
    assert files.pread(fd, 10, 8000) == b""


def test_lengths_grow_with_holes_and_shrink(files: WindowsFiles, fd: int) -> None:
    files.truncate(fd, 2**33)
    assert files.size(fd) == 2**33
    assert files.data_ranges(fd, 2**33)[0][0] == 0
    assert files.pread(fd, 3, 2**32) == b"\0\0\0"
    files.truncate(fd, 10)
    assert (files.size(fd), files.pread(fd, 100, 0)) == (10, bytes(range(10)))


def test_a_file_that_is_mapped_elsewhere_is_not_cut(files: WindowsFiles, fd: int, tmp_path: Path) -> None:
    with (tmp_path / "file").open("rb") as other, mmap.mmap(other.fileno(), 0, access=mmap.ACCESS_READ):
        with pytest.raises(OSError, match="Windows error") as caught:
            files.truncate(fd, 10)
        assert caught.value.errno == errno.EBUSY
    files.truncate(fd, 10)


def test_a_lock_is_refused_to_others_and_keeps_nobody_from_reading(files: WindowsFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second = files.open_lock_file(path), files.open_for_reading(path)
    assert files.try_lock(first)
    assert not files.try_lock(second)
    files.pwritev(first, [bytes(2**21)], 0)
    assert len(files.pread(second, 2**22, 0)) == 2**21
    files.close(first)
    assert files.try_lock(second)
    files.close(second)


def test_paths_beyond_260_characters(files: WindowsFiles, tmp_path: Path) -> None:
    folder = str(tmp_path)
    for _ in range(6):
        folder = f"{folder}/{'x' * 60}"
        files.mkdir(folder)
    files.close(files.open(f"{folder}/file", create=True))
    files.replace(f"{folder}/file", f"{folder}/new")
    assert files.path_status(f"{folder}/new").is_regular
    files.unlink(f"{folder}/new")
    with pytest.raises(FileNotFoundError):
        files.path_status(f"{folder}/new")


def test_a_file_is_known_again_by_its_identity(files: WindowsFiles, fd: int, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    own = files.status(fd)
    assert own == files.path_status(path)
    assert (own.size, own.is_regular) == (100, True)
    assert own.modified_ns == pytest.approx((tmp_path / "file").stat().st_mtime_ns, abs=1e9)
    files.close(files.open(str(tmp_path / "new"), create=True))
    files.unlink(path)
    files.replace(str(tmp_path / "new"), path)
    assert files.path_status(path).identity != own.identity


def test_folders_are_no_files(files: WindowsFiles, tmp_path: Path) -> None:
    reader = files.open_for_reading(str(tmp_path))
    assert not files.status(reader).is_regular
    files.close(reader)
    with pytest.raises(IsADirectoryError):
        files.unlink(str(tmp_path))
    with pytest.raises(PermissionError):
        files.open(str(tmp_path), create=False)


def test_what_cannot_be_asked_for_its_kind_is_an_error(files: WindowsFiles, tmp_path: Path) -> None:
    fd = files.open(str(tmp_path / "file"), create=True)
    files.close(fd)
    with pytest.raises(OSError, match="Windows error 6"):
        files.status(fd)


def test_the_real_place_of_an_open_file(files: WindowsFiles, fd: int, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    assert files.real_path(fd, "anything") == os.path.realpath(path)


def test_direct_calls_are_checked_before_the_system_gets_them(
    files: WindowsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows_files, "_sector_bytes", lambda _: 512)
    memory = PageMemory(4 * BLOCK).view
    memory[:] = bytes(range(256)) * 64
    fd = files.open(str(tmp_path / "file"), create=True, direct=True)
    assert files.pwritev(fd, [memory[:BLOCK], memory[BLOCK:]], 0) == 4 * BLOCK
    for buffer, offset in ((memory[:100], 0), (memory[8 : BLOCK + 8], 0), (memory[:BLOCK], 100)):
        with pytest.raises(OSError, match="direct I/O") as caught:
            files.pwritev(fd, [buffer], offset)
        assert caught.value.errno == errno.EINVAL
    files.truncate(fd, 3 * BLOCK + 5)
    assert files.size(fd) == 3 * BLOCK + 5
    files.close(fd)
    buffered = files.open(str(tmp_path / "file"), create=False)  # may get the same number
    files.pwritev(buffered, [b"xyz"], 1)
    assert files.pread(buffered, 5, 0) == b"\0xyz\4"
    files.close(buffered)


def test_without_a_known_sector_size_there_is_no_direct_io(
    files: WindowsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows_files, "_sector_bytes", lambda _: 0)
    with pytest.raises(OSError, match="sector size") as caught:
        files.open(str(tmp_path / "file"), create=True, direct=True)
    assert caught.value.errno == errno.EINVAL
    (tmp_path / "file").unlink()  # its handle is closed


def test_the_way_without_posix_names_is_used_where_the_file_system_lacks_them(
    files: WindowsFiles, fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows_names, "_set_information", lambda *_: 87)
    files.replace(str(tmp_path / "file"), str(tmp_path / "other"))
    files.unlink(str(tmp_path / "other"))
    files.close(files.open(str(tmp_path / "other"), create=True))
    assert files.pread(fd, 2, 0) == b"\0\1"


def test_the_null_file_takes_all_and_has_nothing(files: WindowsFiles) -> None:
    fd = files.open_null()
    assert files.pwritev(fd, [b"abc"], 0) == 3
    assert files.size(fd) == 0
    files.close(fd)


def test_free_space_is_a_number_of_bytes(files: WindowsFiles, tmp_path: Path) -> None:
    assert files.free_bytes(str(tmp_path)) > 2**20
    with pytest.raises(OSError, match="Windows error"):
        files.free_bytes(str(tmp_path / "absent"))
