from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acqstream.bench import limit
from acqstream.bench.limit import measure_limit, measure_paced_limit
from acqstream.storage.files.disk import LocalDisk, write_all


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


class Clock:
    """Time that passes in writes, as given, and while the benchmark waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, writes_s: list[float]) -> None:
        self.now_s = 0.0
        self.began_s: list[float] = []
        self._writes_s = iter(writes_s)
        seconds = SimpleNamespace(
            perf_counter=lambda: self.now_s,
            perf_counter_ns=lambda: round(self.now_s * 1e9),
            process_time=time.process_time,
            sleep=self.pass_by,
        )
        monkeypatch.setattr(limit, "time", seconds)
        monkeypatch.setattr(limit, "write_all", self.write)

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds

    def write(self, *arguments: Any, **how: Any) -> None:
        self.began_s.append(self.now_s)
        write_all(*arguments, **how)
        self.pass_by(next(self._writes_s))


def test_paced_writes_come_when_they_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "WRITE_BYTES", 64 * 1024)
    clock = Clock(monkeypatch, writes_s=[0.01, 0.08, 0.01, 0.01, 0.01])  # one is due every 0.05 s
    measured, behind_s = measure_paced_limit(tmp_path, 5 * 65536, 20 * 65536.0, 2 * 65536)
    assert measured.frames == 5
    assert clock.began_s == pytest.approx([0, 0.05, 0.13, 0.15, 0.2])
    assert measured.seconds == pytest.approx(0.21)
    assert behind_s == pytest.approx(0.03)
    assert measured.latency.max_ms == pytest.approx(80)
    assert measured.note.endswith("paced")
    assert list(tmp_path.iterdir()) == []
