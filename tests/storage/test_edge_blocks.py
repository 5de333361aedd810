"""Blocks that two runs of a file share: neither loses a byte, whoever writes first, last, or at the same time."""

from __future__ import annotations

import errno
import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.storage import in_place_file
from acqstream.storage.block_file import BLOCK_BYTES
from acqstream.storage.edge_blocks import EdgeBlocks
from acqstream.storage.in_place_file import InPlaceFiles
from acqstream.storage.local_store import LocalStore
from acqstream.storage.platform.capabilities import gathers_writes
from acqstream.storage.store import Run
from tests.storage.scripted_disk import ScriptedDisk
from tests.storage.unforced_disk import UnforcedDisk

HEAD = 16
STEP = 4 * BLOCK_BYTES
LENGTH = HEAD + 8 * STEP
runs_of_blocks = st.tuples(st.integers(0, 31), st.integers(1, 12))
cuts = st.lists(st.integers(0, 32), min_size=2, max_size=8, unique=True).map(sorted)


@pytest.fixture(autouse=True)
def short_runs_are_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place_file, "MIN_DIRECT_BYTES", 2 * BLOCK_BYTES)


def run_at(offset: int, length: int, seed: int) -> Run:
    """Random bytes in two pieces of memory, each of which lies as in the file."""
    random, pieces = np.random.default_rng(seed), []
    for start, end in ((0, length // 2), (length // 2, length)):
        memory = np.empty(2 * BLOCK_BYTES + length, np.uint8)
        begin = (offset + start - memory.ctypes.data) % BLOCK_BYTES
        memory[begin : begin + end - start] = random.integers(1, 256, end - start, np.uint8)
        pieces.append(memory[begin : begin + end - start].data)
    return offset, pieces


def joined(run: Run) -> bytes:
    return b"".join(bytes(piece) for piece in run[1])


def write_both(files: InPlaceFiles, path: Path, expected: bytearray, runs: list[Run]) -> None:
    files.write(str(path), runs)
    for offset, content in runs:
        data = b"".join(bytes(piece) for piece in content)
        expected[offset : offset + len(data)] = data


@pytest.mark.parametrize("most", [0, 1, 100])
@given(calls=st.lists(cuts, max_size=12), small=st.lists(runs_of_blocks), data=st.data())
@settings(max_examples=60)
def test_a_file_has_the_last_bytes_that_were_written(
    most: int,
    calls: list[list[int]],
    small: list[tuple[int, int]],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Runs of blocks behind a head of 16 bytes, over those of earlier calls and beside them, and short ones between."""
    path = tmp_path_factory.mktemp("run") / "a"
    expected = bytearray(LENGTH)
    path.write_bytes(expected)
    files = InPlaceFiles(UnforcedDisk())
    files._edges = EdgeBlocks(most)
    for number, cut in enumerate(calls):
        spans = data.draw(st.lists(st.sampled_from(list(itertools.pairwise(cut))), unique=True))
        runs = [
            run_at(HEAD + first * BLOCK_BYTES, (end - first) * BLOCK_BYTES, 10 * number + at)
            for at, (first, end) in enumerate(spans)
        ]
        write_both(files, path, expected, runs)
        for first, count in small[number : number + 1]:
            write_both(files, path, expected, [(first * 1000, [bytes([count]) * 5 * count])])
    assert path.read_bytes() == expected


def test_runs_side_by_side_read_nothing_and_leave_nothing_behind(tmp_path: Path) -> None:
    """The first layer of blocks, then the second one: what both have in common is remembered between them only."""
    disk, expected = ScriptedDisk(UnforcedDisk()), bytearray(LENGTH)
    (tmp_path / "a").write_bytes(expected)
    files = InPlaceFiles(disk)
    first, second = ([(HEAD + at * STEP, STEP) for at in range(start, 8, 2)] for start in (0, 1))
    write_both(files, tmp_path / "a", expected, [run_at(*run, seed) for seed, run in enumerate(first)])
    if gathers_writes() and files._can_direct:
        assert len(disk.of("pwritev")) == 4  # one for each run
        assert files._edges._count == 8
        disk.calls.clear()
    write_both(files, tmp_path / "a", expected, [run_at(*run, 9 + seed) for seed, run in enumerate(second)])
    assert (tmp_path / "a").read_bytes() == expected
    if gathers_writes() and files._can_direct:
        assert not disk.of("pread")
        assert len(disk.of("pwritev")) == 5  # the end of the file is in no complete block
        assert files._edges._count <= 1


@pytest.mark.parametrize("at", [0, STEP, 2 * STEP])
def test_a_run_waits_for_the_one_beside_it(tmp_path: Path, at: int) -> None:
    disk = ScriptedDisk(UnforcedDisk())
    path = tmp_path / "a"
    path.write_bytes(bytes(LENGTH))
    files = InPlaceFiles(disk)
    one, other = run_at(HEAD + STEP, STEP, 1), run_at(HEAD + at, STEP, 2)
    stall = disk.stall("pwritev")
    threads = [threading.Thread(target=files.write, args=(str(path), [run])) for run in (one, other)]
    threads[0].start()
    assert stall.entered.wait(30)
    threads[1].start()
    threads[1].join(0.05)
    assert threads[1].is_alive()
    assert len(disk.of("pwritev")) == 1
    stall.go.set()
    for thread in threads:
        thread.join(30)
    found = path.read_bytes()
    assert found[HEAD + at :][:STEP] == joined(other)
    if at != STEP:
        assert found[HEAD + STEP :][:STEP] == joined(one)


def test_runs_apart_do_not_wait(tmp_path: Path) -> None:
    disk = ScriptedDisk(UnforcedDisk())
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(LENGTH))
    files, stall = InPlaceFiles(disk), disk.stall("pwritev")
    first = threading.Thread(target=files.write, args=(str(tmp_path / "a"), [run_at(HEAD, STEP, 1)]))
    first.start()
    assert stall.entered.wait(30)
    files.write(str(tmp_path / "a"), [run_at(HEAD + 2 * STEP, STEP, 2)])
    files.write(str(tmp_path / "b"), [run_at(HEAD, STEP, 3)])
    stall.go.set()
    first.join(30)


def test_after_an_error_blocks_are_read_again(tmp_path: Path) -> None:
    disk, expected = ScriptedDisk(UnforcedDisk()), bytearray(LENGTH)
    path = tmp_path / "a"
    path.write_bytes(expected)
    files = InPlaceFiles(disk)
    write_both(files, path, expected, [run_at(HEAD + STEP, STEP, 1)])
    disk.fail("pwritev", code=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        files.write(str(path), [run_at(HEAD, STEP, 2)])
    assert files._edges._held == set()
    expected[HEAD + STEP + 1000] = 0
    with path.open("r+b") as file:  # what is on the disk counts now, not what is remembered
        file.seek(HEAD + STEP + 1000)
        file.write(b"\0")
    write_both(files, path, expected, [run_at(HEAD, STEP, 3)])
    assert path.read_bytes() == expected


@pytest.mark.parametrize("how", ["delete", "put", "rename", "clear"])
def test_another_file_of_that_name_gets_nothing_of_the_last_one(tmp_path: Path, how: str) -> None:
    store = LocalStore(tmp_path / "store", UnforcedDisk())
    run = run_at(HEAD, STEP, 1)

    def write(one: Run) -> None:
        store.write("a", [one], head=[b"h" * HEAD], length=LENGTH)

    write(run)
    if how == "put":
        store.put("a", [bytes(LENGTH)])
    elif how == "rename":
        store.put("b", [bytes(LENGTH)])
        store.rename("b", "a")
    elif how == "delete":
        store.delete("a")
    else:
        store.clear()
    after = run_at(HEAD + STEP, STEP, 2)
    write(after)
    found = store.get("a")
    assert found is not None
    assert found[HEAD : HEAD + STEP] == bytes(STEP)
    assert found[HEAD + STEP :] == joined(after) + bytes(LENGTH - HEAD - 2 * STEP)


def test_no_more_blocks_are_remembered_than_allowed() -> None:
    edges = EdgeBlocks(most=3)
    for number in range(20):
        with edges.hold(f"file {number % 4}", [(STEP * number + 1, STEP * number + 2)], lambda _: b"old") as blocks:
            blocks[STEP * number] = b"%d" % number
    assert sum(map(len, edges._known.values())) == edges._count == 3
    with edges.hold("file 3", [(STEP * 19 + 2, STEP * 19 + 3)], lambda _: b"old") as blocks:
        assert blocks[STEP * 19] == b"19"
    with edges.hold("file 0", [(1, 2)], lambda _: b"old") as blocks:
        assert blocks[0] == b"old"
