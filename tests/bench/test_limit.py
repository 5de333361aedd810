from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from acqstream.bench import limit
from acqstream.bench.limit import Transfer, measure_limit
from acqstream.bench.measurement import Measurement
from acqstream.storage.files.disk import LocalDisk


def test_writes_all_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "WRITE_BYTES", 64 * 1024)
    measured = measure_limit(tmp_path, 300_001)
    assert measured.payload_bytes == 300_001
    assert measured.frames == 5
    assert measured.seconds > 0
    assert "in flight" in measured.note
    assert list(tmp_path.iterdir()) == []


def test_says_when_the_page_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "WRITE_BYTES", 64 * 1024)
    open_file = LocalDisk.open

    def refuse_direct(disk: LocalDisk, path: str, *, create: bool, direct: bool = False) -> int:
        if direct:
            Path(path).touch()
            raise OSError(22, "Invalid argument", path)
        return open_file(disk, path, create=create)

    monkeypatch.setattr(LocalDisk, "open", refuse_direct)
    assert measure_limit(tmp_path, 100_000).note.startswith("buffered")


def test_the_time_ends_when_all_is_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    monkeypatch.setattr(limit, "WRITE_BYTES", 64 * 1024)
    monkeypatch.setattr(LocalDisk, "fdatasync", lambda _disk, fd: forced.append(fd))
    measure_limit(tmp_path, 100_000)
    assert len(forced) == 2  # with one write in flight, and with two


def test_the_faster_of_one_and_two_in_flight_counts() -> None:
    def run(depth: int) -> Measurement:
        return Transfer(array("q", [1]), seconds=1 / depth, cpu_s=0.0).measurement(10**6, "producer", f"{depth}")

    assert limit._faster(run).note == "2"
