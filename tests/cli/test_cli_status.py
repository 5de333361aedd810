from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from acqstream.errors import DaemonUnavailable
from acqstream.model.receipt import MissingFrames
from acqstream.model.state import AcquisitionState
from acqstream.model.status import AcquisitionStatus, DaemonStatus, LoadStatus, UnfinishedViewStatus, ViewProcessStatus
from tests.command import command

RUNNING = AcquisitionStatus(
    name="cells",
    state="RUNNING",
    io="direct",
    transport="shm",
    received=1200,
    published=1100,
    durable=1000,
    queue_frames=100,
    queue_bytes=838_860_800,
    payload_bytes=9_227_468_800,
    bytes_per_s=1.5e9,
    seconds_left=14_800.0,
    warnings=(("disk_low", "20 GB free", "2026-11-22T09:00:00.000+00:00"),),
)
MIRROR = UnfinishedViewStatus(path="/data/old", mirror="null", state="failed", behind=1200, reason="no such luck")


def daemon(*acquisitions: AcquisitionStatus, **more: Any) -> DaemonStatus:
    return DaemonStatus(
        endpoint="tcp://127.0.0.1:5271",
        version="0.1.0",
        data="/data",
        uptime_s=75.0,
        free_bytes=2 * 10**12,
        memory_budget_bytes=10**9,
        memory_used_bytes=5 * 10**8,
        memory_peak_bytes=6 * 10**8,
        acquisitions=acquisitions,
        **{"views": ViewProcessStatus(pid=7, mirrors=(MIRROR,)), **more},
    )


def test_what_had_no_room_in_the_answer_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = daemon(RUNNING, left_out={"acquisitions": 0, "mirrors": 3, "warnings": 1200})
    assert show(monkeypatch, answer) == 0
    assert "not shown, to keep this short: 3 mirrors, 1,200 warnings\n" in capsys.readouterr().out


def show(monkeypatch: pytest.MonkeyPatch, answer: DaemonStatus, *options: str) -> int:
    monkeypatch.setattr("acqstream.client.daemon_requests.fetch_status", lambda endpoint, *, timeout_s: answer)
    return command("status", *options)


def test_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(monkeypatch, daemon(RUNNING)) == 0
    out = capsys.readouterr().out
    for text in (
        "up 1 min 15 s",
        "2 TB free",
        "cells",
        "RUNNING",
        "1,100",
        "1.5 GB/s",
        "4 h 6 min",
        "warning disk_low: 20 GB free",
        "mirror null of /data/old: failed, 1,200 frames behind (no such luck)",
    ):
        assert text in out


def test_a_run_that_waits_and_a_disk_that_stands_still(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = replace(RUNNING, state="PAUSED", paused="no space", stall="fdatasync of a.tif")
    assert show(monkeypatch, daemon(waiting)) == 0
    out = capsys.readouterr().out
    assert "  ALARM  PAUSED: disk full: no space. Free space on this disk" in out
    assert "STALLED" not in out, "one alarm, the worst"
    assert show(monkeypatch, daemon(replace(waiting, state="RUNNING", paused=""))) == 0
    assert "  ALARM  STALLED: fdatasync of a.tif: frames wait in memory" in capsys.readouterr().out


def test_the_sentence_of_a_planned_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    planned = replace(RUNNING, expected=2000, to_come_bytes=7_500_000_000, short_bytes=0, seconds_to_end=0.0)
    assert show(monkeypatch, daemon(replace(planned, skipped=2, gaps=(MissingFrames(7, 2, ""),)))) == 0
    out = capsys.readouterr().out
    now = datetime.now().astimezone()
    assert any(
        f"cells: RUNNING, 998 of 2,000 frames safe · ends {time:%H:%M} · 7.5 GB to come, fits\n" in out
        for time in (now, now - timedelta(minutes=1))
    )
    assert "  gaps   2 frames skipped: 7 to 8\n" in out


@pytest.mark.parametrize("state", [*AcquisitionState])
def test_everything_fits_80_columns(
    state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, path = "細胞 " + "n" * 96, "/data/" + "/".join(["folder of somebody"] * 20)
    big, why = 10**12, "it stands " + "still " * 40
    mirror = replace(MIRROR, path=path, behind=1, reason=why, mirror="m" * 32)
    run = replace(RUNNING, name=name, state=state, io="buffered", io_why=why, transport_why=why, stall=why, paused=why)
    run = replace(run, sent=big, received=big, published=big, durable=big - 1, queue_frames=1, queue_bytes=big)
    answer = daemon(run, RUNNING, replace(run, warnings=(("x", why, ""),) * 9), left_out={"mirrors": 1, "warnings": 2})
    answer = replace(answer, data=path, endpoint="ipc://" + path, views=ViewProcessStatus(mirrors=(mirror,) * 3))
    assert show(monkeypatch, replace(answer, load=LoadStatus(processor_percent=1.0, disk="d" * 90))) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if cell_len(line) > 80] == []
    assert [part for part in ("1 frames", "1 mirrors", "1 warnings") if f" {part}" in out] == []
    assert "".join(path.split()) in "".join(out.split())  # folded, and complete
    assert out.count("細胞") > 10


def test_the_load(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    load = LoadStatus(
        processors=4,
        processor_percent=37.4,
        daemon_processor_percent=140.0,
        daemon_memory_bytes=300_000_000,
        available_memory_bytes=20_000_000_000,
        total_memory_bytes=32_000_000_000,
        disk="nvme0n1",
        disk_write_bytes_per_s=1.2e9,
        disk_busy_percent=81.2,
        priority="nice 0",
    )
    assert show(monkeypatch, daemon(load=load)) == 0
    out = capsys.readouterr().out
    assert "load   37% of 4 processors, 20 GB of 32 GB memory available\n" in out
    assert "daemon 140% of one processor, 300 MB memory, priority nice 0\n" in out
    assert "disk   nvme0n1 writes 1.2 GB/s, 81% busy\n" in out
    assert show(monkeypatch, daemon()) == 0
    assert "load" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["compiled", "numpy"])
def test_the_kernels_of_the_views(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(monkeypatch, daemon(views=ViewProcessStatus(kernels=name))) == 0
    assert f"views  {name} kernels\n" in capsys.readouterr().out
    assert show(monkeypatch, daemon()) == 0
    assert "kernels" not in capsys.readouterr().out


def test_idle(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(monkeypatch, daemon()) == 0
    assert "no acquisition is running" in capsys.readouterr().out


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(monkeypatch, daemon(RUNNING), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["acquisitions"][0]["durable"] == 1000
    assert printed["views"]["mirrors"][0]["mirror"] == "null"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[DaemonStatus | Exception]:
    """The answers to `status --watch`, in order; then comes Ctrl-C."""
    answers: list[DaemonStatus | Exception] = []

    def fetch(endpoint: str | None, *, timeout_s: float) -> DaemonStatus:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(wait_s: float) -> None:
        if not answers:
            raise KeyboardInterrupt

    monkeypatch.setattr("acqstream.client.daemon_requests.fetch_status", fetch)
    monkeypatch.setattr("acqstream.cli.status.time.sleep", pause)
    return answers


GONE = DaemonUnavailable("no daemon answers at tcp://127.0.0.1:5271")


def watch(*options: str) -> int:
    return command("status", "--watch", *options)


def test_a_watch_without_a_terminal_prints_one_status_a_time(
    looks: list[DaemonStatus | Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    looks += [daemon(RUNNING), GONE, daemon(replace(RUNNING, received=1300))]
    assert watch() == 0
    captured = capsys.readouterr()
    first, second = captured.out.split("\n\nacqstream 0.1.0 at")
    assert ("received 1,200" in first, "received 1,300" in second) == (True, True)
    assert "\x1b" not in captured.out
    assert captured.err.startswith("acqstream: no daemon answers")
    looks += [daemon(), daemon()]
    assert watch("--json") == 0
    assert capsys.readouterr().out.count('"uptime_s": 75.0') == 2


def test_a_watch_on_a_terminal_stays_in_place_and_fits(
    looks: list[DaemonStatus | Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 10)))
    monkeypatch.setenv("TERM", "xterm")
    looks += [daemon(RUNNING), daemon(*[RUNNING] * 9), GONE]
    assert watch() == 0
    out = capsys.readouterr().out
    _, long, gone = out.split("\x1b[2J")
    assert len(long.splitlines()) == 9
    assert long.splitlines()[-1].startswith("...")
    assert "acqstream: no daemon answers" in gone
    assert all(cell_len(line) <= 80 for line in long.splitlines())


def test_a_watch_of_nothing_ends_as_a_status_does(
    looks: list[DaemonStatus | Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    looks.append(GONE)
    assert watch() == 69


def test_no_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        assert command("status", "--endpoint", endpoint, "--timeout", "0.05") == 69
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert endpoint in err
    assert "acqstream serve --data DIR" in err
