from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.bench import limit
from acqstream.bench.comparison import BenchSettings
from acqstream.bench.limit import measure_copy
from acqstream.bench.mirror import (
    ALONE_ROWS,
    LIVE_ROWS,
    PACED_ROWS,
    MirrorPlan,
    chosen_plan,
    run_mirror_benchmark,
    stacks_of,
)
from acqstream.bench.workload import Workload
from acqstream.errors import ConfigError
from acqstream.storage.files.disk import write_all
from bench import block_peer, mirror_peers
from bench.block_peer import compress_blocks, write_blocks


def test_stacks_are_whole_or_less_than_one() -> None:
    assert [stacks_of((32, 32), size).frames for size in (2048 * 300, 2048 * 128, 2048 * 127, 1)] == [256, 128, 127, 1]


def test_mirrors_are_chosen_by_name() -> None:
    usual = chosen_plan(())
    assert (usual.live, usual.paced, usual.alone) == (LIVE_ROWS, PACED_ROWS, ALONE_ROWS)
    some = chosen_plan(("n5", "wkw one level paced", "ome-zarr raw"))
    assert ([*some.live], [*some.paced]) == (["n5"], ["wkw one level paced"])
    assert [row.name for row in some.alone] == ["ome-zarr raw"]
    with pytest.raises(ConfigError, match=r"unknown mirrors \['n6'\]"):
        chosen_plan(("n5", "n6"))


def test_tensorstore_writes_the_frames_and_they_are_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorstore")
    forced: list[Path] = []
    monkeypatch.setattr(block_peer, "force", forced.append)
    workload = Workload((20, 30), "uint16", 11, pool_bytes=5 * 1200)
    measured = write_blocks(tmp_path, workload, (4, 16, 16), {"type": "raw"})
    assert measured.payload_bytes == 11 * 1200
    assert forced == [tmp_path]
    pool = workload.pool()
    with acqstream.open(tmp_path / "peer.n5") as array:
        stored = array.levels[0].read()
    assert stored.shape == (11, 20, 30)
    # whole runs of 4 frames are handed out in turn
    assert np.array_equal(stored, np.stack([pool[number % 4] for number in range(11)]))


def test_lz4_compresses_as_many_bytes_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def compress(block: memoryview, *, store_size: bool) -> bytes:
        assert not store_size
        taken.append(len(block))
        return b""

    monkeypatch.setattr("lz4.block.compress", compress)
    compress_blocks(Workload((70, 64), "uint16", 40, pool_bytes=33 * 8960))
    assert set(taken) == {32**3 * 2}
    assert sum(taken) >= 40 * 8960 > sum(taken) - 32**3 * 2


def test_a_copy_has_all_whole_blocks_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "READ_BYTES", 8192)
    sources = [tmp_path / "a", tmp_path / "b"]
    for n, source in enumerate(sources):
        source.write_bytes(bytes([n + 1]) * (5 * 4096 + n))
    written: dict[tuple[int, int], bytes] = {}

    def note(disk: object, fd: int, buffers: list[memoryview], offset: int, *, step: int) -> int:
        written[fd, offset] = bytes(buffers[0])
        return write_all(disk, fd, buffers, offset, step=step)  # type: ignore[arg-type]

    monkeypatch.setattr("acqstream.bench.limit.write_all", note)
    measured = measure_copy(sources, tmp_path)
    assert measured.payload_bytes == 10 * 4096
    assert sorted(tmp_path.iterdir()) == sources
    whole = b"".join(content for _, content in sorted(written.items()))
    assert whole[: 10 * 4096] == b"\1" * 5 * 4096 + b"\2" * 5 * 4096


@pytest.mark.slow
@pytest.mark.timeout_s(120)
@pytest.mark.skipif(sys.platform == "win32", reason="needs ipc")
def test_a_run_for_real(tmp_path: Path) -> None:
    settings = BenchSettings(directory=tmp_path, payload_bytes=2_200_000, pairs=1, rows=("ipc",), daemon_memory_mb=64)
    live = {"both": LIVE_ROWS["n5 and wkw"]}
    plan = MirrorPlan(shape=(128, 96), alone_shape=(64, 96), live=live, paced=live, alone=ALONE_ROWS[:3])
    full, paced, alone = run_mirror_benchmark(settings, lambda *news: None, plan=plan).tables
    assert [row["row"] for row in full.rows] == ["without", "both"]
    assert [row["row"] for row in paced.rows] == ["both"]
    for row in (*full.rows[1:], *paced.rows):
        for name in ("mirror_cpu_s_per_gb", "mirror_peak_mb", "computed_mb"):
            assert float(row[name] or 0) > 0, (row, name)
    assert all(float(row["mirrors_done_s"] or 0) > 0 for row in full.rows[1:])
    assert all(float(row["done_after_last_frame_s"] or 0) > 0 for row in paced.rows)
    assert [row["row"] for row in alone.rows] == ["n5 raw", "n5 blosc-lz4", "wkw raw"]
    for row in alone.rows:
        assert float(row["gb_per_s"] or 0) > float(row["checked_gb_per_s"] or 0) > 0
        assert row["beside"] == "direct copy"
        assert float(row["ratio"] or 0) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout_s(120)
def test_other_writers_run_beside_a_mirror(tmp_path: Path) -> None:
    settings = BenchSettings(directory=tmp_path, payload_bytes=2_200_000, pairs=2, rows=("tcp",), daemon_memory_mb=64)
    names = ("n5 raw", "wkw lz4", "ome-zarr raw beside writers", "precomputed raw shards")
    news: list[tuple[str, int, int]] = []
    report = mirror_peers.run_peers_benchmark(settings, lambda *step: news.append(step), names=names, shape=(64, 96))
    (table,) = report.tables
    assert {row["row"] for row in table.rows} == set(names)
    peers = [peer for row in mirror_peers.ROWS if row.name in names for peer in row.peers]
    assert [row["beside"] for row in table.rows] == [peer.name for peer in peers]
    for row, peer in zip(table.rows, peers, strict=True):
        assert peer.absent or float(row["ratio"] or 0) > 0, row
    if not any(peer.absent for peer in peers):
        assert [done for _, done, _ in news] == list(range(news[-1][2]))
    with pytest.raises(ConfigError, match=r"unknown mirrors \['n6'\]"):
        mirror_peers.run_peers_benchmark(settings, lambda *step: None, names=("n6",))
    assert list(tmp_path.iterdir()) == []
