"""Stack files: whole blocks, space reserved, a name only when the header is there."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acqstream.errors import DiskFull, StorageError
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.files.stack_file import PRIVATE_SUFFIX, StackFile, finish_file
from acqstream.storage.page_memory import PageMemory
from tests.host_system import allocated_bytes, needs_a_real_disk
from tests.storage.scripted_disk import ScriptedDisk

BLOCK = 4096


def blocks(count: int, fill: int = 1) -> memoryview:
    view = PageMemory(count * BLOCK).view
    view[:] = bytes([fill]) * len(view)
    return view


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk, and one in memory: file systems differ in what they can."""
    if request.param == "disk":
        yield tmp_path
        return
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no file system in memory")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def begun(disk: ScriptedDisk, folder: Path) -> StackFile:
    file = StackFile(disk, str(folder / "a.tif"))
    file.begin(blocks(1))
    return file


@pytest.mark.parametrize("can_direct", [True, False])
@pytest.mark.parametrize("can_reserve", [True, False])
def test_written_patched_and_cut(folder: Path, can_direct: bool, can_reserve: bool) -> None:
    disk = ScriptedDisk()
    disk.can_direct, disk.can_reserve = can_direct, can_reserve
    file = StackFile(disk, str(folder / "a.tif"))
    assert [path.name for path in folder.iterdir()] == ["a.tif" + PRIVATE_SUFFIX]
    file.begin(blocks(1))
    assert [path.name for path in folder.iterdir()] == ["a.tif"]
    for number in range(3):
        assert file.end == os.stat(file.path).st_size == BLOCK * (1 + 2 * number)
        file.write([blocks(1, 2), blocks(1, 3)], file.end)
    file.sync()
    assert file.io == ("direct" if file.direct else "buffered")
    assert can_direct or file.io == "buffered"
    assert bool(file.buffered_reason) is not file.direct
    file.finish([(10, b"patched")], 5 * BLOCK + 77)
    expected = bytearray(b"\1" * BLOCK + (b"\2" * BLOCK + b"\3" * BLOCK) * 3)
    expected[10:17] = b"patched"
    assert (folder / "a.tif").read_bytes() == expected[: 5 * BLOCK + 77]
    # What was reserved is given back. A file system may count a block of its own (an extent tree) to the file.
    assert allocated_bytes(file.path) <= 8 * BLOCK
    assert not disk._names


@needs_a_real_disk
def test_a_name_only_after_the_header_is_forced(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    begun(disk, tmp_path).close()
    kinds = [call.kind for call in disk.calls if call.kind != "size"]
    assert kinds[-8:] == ["pwritev", "fdatasync", "close", "replace", "open", "reserve", "sync_directory", "close"]


def test_direct_io_refused_at_the_first_write(tmp_path: Path) -> None:
    class Accepting(LocalDisk):
        """Opens for direct I/O wherever it is, as FUSE does."""

        def open(self, path: str, *, create: bool, direct: bool = False) -> int:
            return super().open(path, create=create)

    disk = ScriptedDisk(Accepting())
    disk.fail("pwritev", 1, errno.EINVAL)
    file = begun(disk, tmp_path)
    assert file.io == "buffered"
    file.write([blocks(2, 5)], BLOCK)
    file.finish([], 3 * BLOCK)
    assert (tmp_path / "a.tif").read_bytes() == b"\1" * BLOCK + b"\5" * 2 * BLOCK
    assert not disk._names


def test_einval_later_on_is_an_error(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    file = begun(disk, tmp_path)
    disk.fail("pwritev", 1, errno.EINVAL)
    with pytest.raises(StorageError, match="cannot write 4096 bytes at byte 4096"):
        file.write([blocks(1)], BLOCK)
    file.close()


@pytest.mark.parametrize("most", [100, 4096, 5000, 12287])
def test_short_writes(tmp_path: Path, most: int) -> None:
    disk = ScriptedDisk()
    file = begun(disk, tmp_path)
    disk.shorten(most)
    file.write([blocks(2, 2), blocks(2, 3)], BLOCK)
    file.finish([], 5 * BLOCK)
    assert (tmp_path / "a.tif").read_bytes() == b"\1" * BLOCK + b"\2" * 2 * BLOCK + b"\3" * 2 * BLOCK


@needs_a_real_disk
@pytest.mark.parametrize("when", [1, 2, 3])  # for the private name, for the name, for frames
def test_a_failed_reservation_is_given_back_and_the_write_goes_on(tmp_path: Path, when: int) -> None:
    disk = ScriptedDisk()
    disk.fail("reserve", when, errno.ENOSPC)
    file = begun(disk, tmp_path)
    file._reserved = min(file._reserved, 2 * BLOCK)
    for number in range(3):
        file.write([blocks(2, number)], file.end)
    assert disk.delivered == 1
    assert [call.offset for call in disk.of("truncate")] == [0 if when == 1 else BLOCK]
    assert len(disk.of("reserve")) == when  # not tried again
    assert os.stat(file.path).st_size == file.end == 7 * BLOCK
    file.close()


@needs_a_real_disk
def test_space_is_reserved_in_steps(tmp_path: Path) -> None:
    class SmallDisk(ScriptedDisk):
        def free_bytes(self, path: str) -> int:
            return 16 * 10 * BLOCK

    disk = SmallDisk()
    file = begun(disk, tmp_path)
    for _ in range(30):
        file.write([blocks(1)], file.end)
    first, *reserved = [(call.offset, call.length) for call in disk.of("reserve")]
    assert reserved[0] == first  # the file was closed for its name, which frees space on Windows
    assert [offset for offset, _ in reserved] == [
        sum(length for _, length in reserved[:n]) for n in range(len(reserved))
    ]
    assert max(length for _, length in reserved) <= 11 * BLOCK
    assert 3 <= len(reserved) <= 4
    file.close()


def test_a_full_disk_is_told_as_such(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    file = begun(disk, tmp_path)
    disk.fail("pwritev", 1, errno.ENOSPC)
    with pytest.raises(DiskFull):
        file.write([blocks(1)], BLOCK)
    assert file.end == BLOCK
    file.close()


@pytest.mark.parametrize("kind", ["create", "free_bytes", "truncate"])
def test_a_file_that_cannot_be_made_leaves_nothing_open(tmp_path: Path, kind: str) -> None:
    disk = ScriptedDisk()
    disk.fail("reserve", 1, errno.ENOSPC)  # leads to the truncation
    disk.fail(kind)
    with pytest.raises(StorageError, match="cannot create"):
        StackFile(disk, str(tmp_path / "a.tif"))
    assert not disk._names


@pytest.mark.parametrize(
    "kind",
    ["pwritev", "fdatasync", "close", "replace", pytest.param("open", marks=needs_a_real_disk), "sync_directory"],
)
def test_a_file_that_cannot_begin_is_discarded(tmp_path: Path, kind: str) -> None:
    disk = ScriptedDisk()
    disk.fail(kind)
    file = StackFile(disk, str(tmp_path / "a.tif"))
    with pytest.raises(StorageError):
        file.begin(blocks(1))
    file.discard()
    assert not list(tmp_path.iterdir())
    assert not disk._names


@pytest.mark.parametrize("kind", ["open", "pwritev", "truncate", "fdatasync", "close"])
def test_finishing_may_be_tried_again(tmp_path: Path, kind: str) -> None:
    disk = ScriptedDisk()
    file = begun(disk, tmp_path)
    file.write([blocks(1, 2)], BLOCK)
    disk.fail(kind)
    with pytest.raises(StorageError, match="cannot finish"):
        file.finish([(0, b"p")], BLOCK + 5)
    file.finish([(0, b"p")], BLOCK + 5)
    assert (tmp_path / "a.tif").read_bytes() == b"p" + b"\1" * (BLOCK - 1) + b"\2" * 5
    assert not disk._names


def test_a_left_over_private_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ("a.tif" + PRIVATE_SUFFIX)).write_bytes(b"x" * 10_000)
    file = begun(ScriptedDisk(), tmp_path)
    assert (tmp_path / "a.tif").stat().st_size == BLOCK
    file.close()


def test_a_file_that_a_program_has_mapped_stays_longer_until_it_is_finished_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Windows cuts no file off that is mapped (error 1224)."""
    disk = ScriptedDisk()
    file = begun(disk, tmp_path)
    file.write([blocks(2, 7)], BLOCK)
    disk.fail("truncate", 1, errno.EBUSY)
    file.finish([(8, b"end")], BLOCK + 100)
    assert os.stat(file.path).st_size == 3 * BLOCK
    assert Path(file.path).read_bytes()[8:11] == b"end"
    assert disk.calls[-2].kind == "fdatasync"
    assert "a program has mapped it" in caplog.text
    finish_file(disk, file.path, [(8, b"end")], BLOCK + 100)
    assert os.stat(file.path).st_size == BLOCK + 100


def test_any_other_failure_to_cut_a_file_is_an_error(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    file = begun(disk, tmp_path)
    disk.fail("truncate", 1, errno.EIO)
    with pytest.raises(StorageError, match="cannot finish"):
        file.finish([], 100)
