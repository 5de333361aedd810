"""The disk that refuses what Windows refuses."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.files.read_file import ReadFile
from acqstream.storage.files.stack_file import StackFile
from acqstream.storage.page_memory import PageMemory
from tests import windows_like

windows_like_disk = pytest.importorskip("tests.storage.windows_like_disk", exc_type=ImportError)  # fcntl
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases and /proc are Linux")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> LocalDisk:
    if not windows_like.is_chosen():
        windows_like_disk.take_over(monkeypatch.setattr)
    return LocalDisk()


@pytest.fixture
def writer(disk: LocalDisk, tmp_path: Path) -> Iterator[int]:
    """A file that is open for writing: folder/a."""
    (tmp_path / "folder").mkdir()
    descriptor = disk.open(str(tmp_path / "folder" / "a"), create=True)
    yield descriptor
    disk.close(descriptor)


def test_a_file_open_for_writing_keeps_its_name(disk: LocalDisk, writer: int, tmp_path: Path) -> None:
    path, other = tmp_path / "folder" / "a", tmp_path / "b"
    other.write_bytes(b"b")
    with pytest.raises(PermissionError, match=r"WinError 32"):
        disk.unlink(str(path))
    with pytest.raises(PermissionError, match=r"WinError 32"):
        disk.replace(str(path), str(other))
    with pytest.raises(PermissionError, match=r"WinError 5\b"):
        disk.replace(str(other), str(path))
    assert path.exists()
    assert other.read_bytes() == b"b"


def test_a_file_open_in_another_process_keeps_its_name(disk: LocalDisk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    code = "import sys; file = open(sys.argv[1], 'xb'); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(PermissionError, match="WinError 32"):
            disk.unlink(str(path))
        process.communicate()
    disk.unlink(str(path))
    assert not path.exists()


def test_readers_block_neither_new_names_nor_removal(disk: LocalDisk, tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"a")
    other.write_bytes(b"b")
    readers = [ReadFile(path), ReadFile(other)]
    disk.replace(str(path), str(other))
    disk.unlink(str(other))
    assert [reader.read(0, 1) for reader in readers] == [b"a", b"b"]


@pytest.mark.parametrize("is_reader", [True, False])
def test_a_folder_with_an_open_file_keeps_its_name(disk: LocalDisk, tmp_path: Path, is_reader: bool) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    path = folder / "below" / "a"
    path.write_bytes(b"a")
    descriptor = os.open(path, os.O_RDONLY if is_reader else os.O_RDWR)
    with pytest.raises(PermissionError, match=r"WinError 5\b"):
        disk.replace(str(folder), str(tmp_path / "other"))
    os.close(descriptor)
    disk.replace(str(folder), str(tmp_path / "other"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(PermissionError, match=r"WinError 5\b"):
        disk.replace(str(tmp_path / "other"), str(tmp_path / "empty"))


def test_a_mapped_file_is_not_cut(disk: LocalDisk, writer: int, tmp_path: Path) -> None:
    disk.pwritev(writer, [bytes(10_000)], 0)
    with mmap.mmap(writer, 0, prot=mmap.PROT_READ):
        with pytest.raises(OSError, match="WinError 1224") as raised:
            disk.truncate(writer, 5000)
        assert raised.value.errno == errno.EBUSY
        disk.truncate(writer, 20_000)
    disk.truncate(writer, 5000)
    assert disk.size(writer) == 5000


@pytest.mark.parametrize(("start", "length", "offset"), [(0, 100, 0), (0, 4096, 512), (512, 4096, 0)])
def test_direct_calls_are_aligned(disk: LocalDisk, tmp_path: Path, start: int, length: int, offset: int) -> None:
    try:
        descriptor = disk.open(str(tmp_path / "a"), create=True, direct=True)
    except OSError:
        pytest.skip("no direct I/O here")
    memory = PageMemory(8192).view
    with pytest.raises(AssertionError, match="not aligned"):
        disk.pwritev(descriptor, [memory[start : start + length]], offset)
    assert disk.pwritev(descriptor, [memory], 4096) == 8192
    if not start:
        with pytest.raises(AssertionError, match="not aligned"):
            disk.pread(descriptor, length, offset)
    disk.close(descriptor)


def test_reserved_space_is_freed_with_the_last_close(disk: LocalDisk, writer: int, tmp_path: Path) -> None:
    path = str(tmp_path / "b")
    descriptor = disk.open(path, create=True)
    if not disk.reserve(descriptor, 0, 2**20):
        pytest.skip("no reservation here")
    assert os.stat(path).st_blocks * 512 >= 2**20
    disk.close(descriptor)
    assert os.stat(path).st_blocks * 512 < 2**20


def test_a_stack_has_its_space_back_with_its_name(disk: LocalDisk, tmp_path: Path) -> None:
    file = StackFile(disk, str(tmp_path / "a.tif"))
    file.begin(PageMemory(4096).view)
    assert os.stat(file.path).st_blocks * 512 >= file.reserved_ahead_bytes
    if not file.reserved_ahead_bytes:
        pytest.skip("no reservation here")
    file.close()
    assert os.stat(file.path).st_blocks * 512 < file.reserved_ahead_bytes
