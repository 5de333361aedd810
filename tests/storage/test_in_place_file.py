"""Runs written inside files, past the page cache where they are aligned."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from acqstream.errors import DiskFull
from acqstream.storage.files.direct_file import MIN_DIRECT_BYTES, InPlaceFiles
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.page_memory import PageMemory
from acqstream.storage.stores.local_store import LocalStore
from acqstream.storage.stores.shard_file import ShardFile
from acqstream.storage.stores.shard_index import ShardReader
from tests.storage.scripted_disk import ScriptedDisk
from tests.storage.shard_indices import StartIndex
from tests.storage.unforced_disk import UnforcedDisk

LENGTH = 3 * MIN_DIRECT_BYTES


class OpeningDisk(UnforcedDisk):
    """Notes how files were opened, and refuses direct I/O if asked to."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__()
        self.opened: list[bool] = []
        self.refuses = refuses
        self.written: list[int] = []  # bytes of each call
        self._direct: set[int] = set()

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        self.opened.append(direct)
        if direct and self.refuses == "open":
            raise OSError(errno.EINVAL, "no direct I/O here")
        fd = super().open(path, create=create, direct=direct and self.refuses != "write")
        if direct:
            self._direct.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._direct.discard(fd)
        super().close(fd)

    def pwritev(self, fd, buffers, offset: int) -> int:
        if fd in self._direct and self.refuses == "write":
            raise OSError(errno.EINVAL, "no direct I/O here")
        self.written.append(super().pwritev(fd, buffers, offset))
        return self.written[-1]


def aligned(length: int, seed: int = 1) -> memoryview:
    memory = np.frombuffer(PageMemory(length).view, np.uint8)
    memory[:] = np.random.default_rng(seed).integers(0, 256, length, np.uint8)
    return memory.data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(bytes(LENGTH))
    return tmp_path / "a"


@pytest.mark.parametrize("refuses", ["", "open", "write"])
def test_aligned_runs_go_past_the_page_cache_where_that_is_possible(path: Path, refuses: str) -> None:
    disk, data = OpeningDisk(refuses), aligned(MIN_DIRECT_BYTES)
    files = InPlaceFiles(disk)
    assert files.write(str(path), [(MIN_DIRECT_BYTES, [data])]) == MIN_DIRECT_BYTES
    assert path.read_bytes() == bytes(MIN_DIRECT_BYTES) + bytes(data) + bytes(MIN_DIRECT_BYTES)
    assert disk.opened in ([[True, False]] if refuses else [[True], [True, False]])  # some systems have none
    is_direct = len(disk.opened) == 1
    files.write(str(path), [(0, [data])])
    assert disk.opened[-1] is is_direct  # it is not tried again


@pytest.mark.parametrize(
    ("offset", "length", "shift"),
    [(1, MIN_DIRECT_BYTES, 0), (0, 4096, 0), (0, MIN_DIRECT_BYTES - 1, 0), (0, MIN_DIRECT_BYTES, 1)],
)
def test_other_runs_go_through_the_page_cache(path: Path, offset: int, length: int, shift: int) -> None:
    disk, data = OpeningDisk(), aligned(length + shift)[shift:]
    InPlaceFiles(disk).write(str(path), [(offset, [data])])
    assert disk.opened == [False]
    assert path.read_bytes()[offset : offset + length] == bytes(data)


@pytest.mark.parametrize("refuses", ["", "open", "write"])
def test_blocks_inside_a_run_go_past_the_page_cache(path: Path, refuses: str) -> None:
    """The run begins 16 bytes behind a boundary, in the file and in memory, and is in pieces that end anywhere."""
    disk, data = OpeningDisk(refuses), aligned(MIN_DIRECT_BYTES + 3 * 4096)[16:-80]
    files = InPlaceFiles(disk)
    pieces = [data[:5000], data[5000:5010], data[5010:300_000], data[300_000:]]
    assert files.write(str(path), [(16, pieces), (16 + len(data) + 1, [b"end"])]) == len(data) + 3
    found = path.read_bytes()
    assert found[:16] == bytes(16)
    assert found[16 : 16 + len(data)] == bytes(data)
    assert found[16 + len(data) :][:4] == bytes(1) + b"end"
    assert len(found) == LENGTH
    assert not (refuses and files._can_direct)
    if files._can_direct:  # some systems have no direct I/O
        assert disk.written[0] == (len(data) + 16) // 4096 * 4096 - 4096
        assert disk.written[1:3] == [4096 - 16, (16 + len(data)) % 4096]
    files.write(str(path), [(16, [data])])
    assert path.read_bytes() == found


def test_runs_of_both_kinds_in_one_call(path: Path) -> None:
    disk, data = OpeningDisk(), aligned(MIN_DIRECT_BYTES)
    written = InPlaceFiles(disk).write(str(path), [(0, [data]), (LENGTH - 3, [b"end"]), (MIN_DIRECT_BYTES, [data])])
    assert written == 2 * MIN_DIRECT_BYTES + 3
    assert path.read_bytes() == bytes(data) * 2 + bytes(MIN_DIRECT_BYTES - 3) + b"end"
    assert sorted(disk.opened) == [False, True]  # each once


def test_runs_that_lie_one_after_the_other_are_one_write(path: Path) -> None:
    disk, half = OpeningDisk(), MIN_DIRECT_BYTES // 2
    first, second, last = (aligned(half, seed) for seed in range(3))
    runs = [(half, [first]), (2 * half, [second[:4096], second[4096:]]), (4 * half, [last])]
    assert InPlaceFiles(disk).write(str(path), runs) == 3 * half
    assert disk.written == [2 * half, half]
    assert disk.opened == [True, False]  # only together they are large enough for direct I/O
    assert path.read_bytes() == bytes(half) + bytes(first) + bytes(second) + bytes(half) + bytes(last) + bytes(half)


def test_a_full_disk_is_no_reason_to_try_otherwise(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    disk = LocalDisk()
    monkeypatch.setattr(disk, "pwritev", is_full, raising=False)
    with pytest.raises(OSError, match="full"):
        InPlaceFiles(disk).write(str(path), [(0, [aligned(MIN_DIRECT_BYTES)])])


@pytest.mark.parametrize("refuses", ["", "open", "write"])
def test_large_runs_of_a_shard_go_past_the_page_cache(tmp_path: Path, refuses: str) -> None:
    """Also behind chunks and indices of any length; every chunk is read back from where the index has it."""
    disk, index = OpeningDisk(refuses), StartIndex()
    store = LocalStore(tmp_path, disk)
    shard = ShardFile(store, "a", index, visible=True)
    chunks = [aligned(MIN_DIRECT_BYTES // 2, seed) for seed in range(3)]
    offsets, is_direct = [], False
    for number in range(2):
        shard.store([(3 + number, [b"of no length in particular"])])
        shard.sync()
        disk.opened.clear()
        offsets.append(shard.store([(0, [chunks[number]]), (1, [chunks[2]])]))
        is_direct = disk.opened[-1] if number == 0 else is_direct
        assert (True in disk.opened) == (is_direct or number == 0)  # some systems have none: it is not tried again
        shard.sync()
        reader = ShardReader(store, "a", index)
        assert [reader.read(slot) for slot in (0, 1)] == [bytes(chunks[number]), bytes(chunks[2])]
    assert not (is_direct and refuses)
    assert [offset % 4096 for offset in offsets] == [0, 0]
    again = ShardReader(store, "a", index)
    found = [again.read(slot) for slot in (0, 1, 3, 4)]
    assert found == [bytes(chunks[1]), bytes(chunks[2]), *[b"of no length in particular"] * 2]


def test_a_large_run_that_does_not_fit_is_cut_off(tmp_path: Path) -> None:
    disk = ScriptedDisk(UnforcedDisk())
    store = LocalStore(tmp_path, disk)
    assert store.append("a", [bytes(4096)]) == 0
    disk.shorten(8192)
    disk.fail("pwritev", 2, errno.ENOSPC, part="a")
    with pytest.raises(DiskFull):
        store.append("a", [aligned(MIN_DIRECT_BYTES)])
    assert (tmp_path / "a").read_bytes() == bytes(4096)
    data = aligned(MIN_DIRECT_BYTES)
    assert store.append("a", [data]) == 4096
    assert store.get("a", 4096) == bytes(data)
