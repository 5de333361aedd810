"""The benchmark of reading for real, tiny: that it works and measures what it says, not how fast."""

from __future__ import annotations

from pathlib import Path

import pytest

import acqstream
from acqstream.bench import limit, reading
from acqstream.bench.comparison import BenchSettings
from acqstream.bench.limit import measure_direct_reads
from acqstream.bench.reading import run_reading_benchmark, write_large_index
from acqstream.errors import ConfigError
from tests.formats.ndtiff.ndtiff_bytes import Folder, image


def settings(directory: Path) -> BenchSettings:
    return BenchSettings(
        directory=directory,
        payload_bytes=3_000_000,
        pairs=2,
        situations=(((256, 256), "uint16"),),
        daemon_memory_mb=64,
    )


@pytest.mark.slow
@pytest.mark.timeout_s(120)
def test_every_row_runs(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    report = run_reading_benchmark(settings(tmp_path), lambda *news: told.append(news), frames=1000)
    opening, in_order, alone = report.situations
    assert [row.name for row in opening.rows] == ["ndstorage", "acqstream"]
    assert [row.name for row in in_order.rows] == ["limit", "frames", "read_frames"]
    assert [row.name for row in alone.rows] == ["pread", "read_frame"]
    assert opening.frames == 1000
    assert in_order.frames == 22
    assert in_order.rows[1].runs[0].payload_bytes == 22 * 2 * 256**2
    assert set(opening.rows[1].to_peers) == {"ndstorage"}
    assert in_order.rows[1].to_limit is not None
    assert set(alone.rows[1].to_peers) == {"pread"}
    assert [done for _, done, _ in told] == list(range(told[-1][2]))
    assert list(tmp_path.iterdir()) == []


def test_refuses_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a directory"):
        run_reading_benchmark(settings(tmp_path / "nowhere"), lambda *news: None)


def test_the_dataset_to_open_is_one(tmp_path: Path) -> None:
    path = write_large_index(tmp_path, 350)
    assert path.name == "300"
    with acqstream.open(path) as ds:
        assert ds.shape == (3, 4, 25, 32, 32)
        assert not ds.read_frame(time=2, channel="Brightfield", z=24).any()
        assert len(list(ds.frames())) == 300
    measured = reading.measure_opening(path)
    assert measured.frames == 300
    assert measured.note.endswith("bytes per frame")


def test_frames_and_bare_reads_take_the_same_bytes(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    for t in range(5):
        folder.add({"time": t}, image(t))
    for what in ("frames", "read_frames", "read_frame", "pread"):
        measured = reading.measure(what, folder.path)
        assert measured.payload_bytes == measured.frames * 24
        assert measured.frames % 5 == 0


def test_direct_reads_take_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "READ_BYTES", 8192)
    (tmp_path / "a").write_bytes(bytes(30_000))
    (tmp_path / "b").write_bytes(bytes(8192))
    measured = measure_direct_reads([tmp_path / "a", tmp_path / "b"])
    assert (measured.payload_bytes, measured.frames) == (38_192, 5)
