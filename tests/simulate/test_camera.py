"""Cameras against a run that stands in for the daemon's client."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Literal, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from acqstream.errors import AcquisitionFailed
from acqstream.model.receipt import Receipt, Status
from acqstream.simulate import camera, pattern
from acqstream.simulate.axes_counter import TileScan, parse_axes
from acqstream.simulate.camera import CameraPlan, CameraResult, run_camera, run_cameras, several
from acqstream.simulate.pattern import burn_number
from acqstream.simulate.scene import Scene, SceneCamera

WAIT_S = 20.0


class FakeRun:
    def __init__(self, name: str, fail_at: int | None) -> None:
        self.name = name
        self.fail_at = fail_at
        self.frames: list[tuple[dict[str, Any], dict[str, Any] | None, NDArray[Any]]] = []
        self.times_s: list[float] = []
        self.closed: tuple[str, str] | None = None
        self.published = 0
        self.lost = 0
        self.warnings = (SimpleNamespace(code="disk_low", text="20 GB free"),)
        self.receipt: Receipt | None = None

    @property
    def progress(self) -> Self:
        return self

    def put(
        self, image: NDArray[Any], axes: dict[str, Any], /, *, meta: dict[str, Any] | None, bits: int | None
    ) -> None:
        if len(self.frames) == self.fail_at:
            raise AcquisitionFailed("the disk is gone")
        self.times_s.append(time.monotonic())
        self.frames.append((axes, meta, image.copy()))

    def close(self, status: Status = "completed", reason: str = "") -> Receipt:
        self.closed = (status, reason)
        self.receipt = Receipt(
            dataset_id="0", path="/data", status=status, sent=len(self.frames), stored=len(self.frames) - self.lost
        )
        if self.lost:
            raise AcquisitionFailed("frames are missing", code="incomplete")
        return self.receipt

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        return False


class FakeDaemon:
    def __init__(self) -> None:
        self.runs: dict[str, FakeRun] = {}
        self.options: dict[str, Any] = {}
        self.fail_at: dict[str, int] = {}
        self.lost = 0

    def create(self, name: str, **options: Any) -> FakeRun:
        self.options = options
        run = self.runs[name] = FakeRun(name, self.fail_at.get(name))
        run.lost = self.lost
        return run


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    fake = FakeDaemon()
    monkeypatch.setattr(camera, "create", fake.create)
    return fake


def plan(**changes: Any) -> CameraPlan:
    settings: dict[str, Any] = {
        "name": "cam",
        "endpoint": "tcp://127.0.0.1:1",
        "frames": 6,
        "shape": (8, 9),
        "dtype": "uint16",
        "axes": parse_axes("time,channel=A|B"),
    }
    return CameraPlan(**(settings | changes))


def test_sends_pattern_axes_and_number(daemon: FakeDaemon) -> None:
    result = run_camera(plan(bits=12, mirrors=("n5",)), threading.Event())
    assert result.receipt.complete
    assert (result.sent, result.late_frames) == (6, 0)
    axes, meta, image = daemon.runs["cam"].frames[3]
    assert axes == {"time": 1, "channel": "B"}
    assert meta == {"number": 3}
    assert np.array_equal(image, pattern.frame(3, (8, 9), "uint16", 12))
    assert result.warnings == ("disk_low: 20 GB free",)
    assert daemon.options["expect"] == 6
    assert daemon.options["mirrors"] == ("n5",)


def test_tiles_are_windows_of_the_sample(daemon: FakeDaemon) -> None:
    scan = TileScan(2, 3, (2, 4), snake=True)
    run_camera(plan(frames=12, bits=12, tiles=scan, levels=1), threading.Event())
    options = daemon.options
    assert (options["tiles"], options["levels"]) == ({"overlap": (2, 4)}, 1)
    frames = daemon.runs["cam"].frames
    assert [(axes["row"], axes["column"]) for axes, _, _ in frames[:6]] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 2),
        (1, 1),
        (1, 0),
    ]
    axes, meta, image = frames[9]
    assert axes == {"time": 0, "channel": "B", "row": 1, "column": 2}
    assert meta is not None
    assert (meta["YPositionPix"], meta["XPositionPix"], meta["XPositionUm"]) == (6, 10, 5.0)
    assert np.array_equal(image, pattern.window(6, 10, (8, 9), "uint16", bits=12, picture=1))


def test_cells_numbers_and_distances(daemon: FakeDaemon) -> None:
    axes = parse_axes("time,channel=DAPI|BF,z=3")
    run_camera(plan(shape=(40, 90), axes=axes, pattern="scene", is_numbered=True, bits=12), threading.Event())
    frames = daemon.runs["cam"].frames
    expected = SceneCamera(axes).frame(5, (40, 90), "uint16", 12)
    burn_number(expected, 5, 4095)
    assert np.array_equal(frames[5][2], expected)
    assert (frames[5][2] == 4095).sum() > 10
    assert frames[5][1] == {"number": 5}
    assert (daemon.options["summary"]["PixelSizeUm"], daemon.options["summary"]["z-step_um"]) == (0.5, 2.0)


def test_tiles_are_windows_of_the_scene(daemon: FakeDaemon) -> None:
    axes, scan = parse_axes("time,channel=DAPI|FITC"), TileScan(2, 2, (3, 4))
    run_camera(plan(frames=8, shape=(60, 70), axes=axes, tiles=scan, pattern="scene"), threading.Event())
    canvas = Scene().window(0, 0, (117, 136), "uint16", index=SceneCamera(axes).index(1))
    for key, _, image in daemon.runs["cam"].frames[4:]:
        y, x = key["row"] * 57, key["column"] * 66
        assert key["channel"] == "FITC"
        assert np.array_equal(image, canvas[y : y + 60, x : x + 70])


def test_an_incomplete_receipt_is_a_result(daemon: FakeDaemon) -> None:
    daemon.lost = 1
    result = run_camera(plan(), threading.Event())
    assert result.receipt.stored == 5
    assert not result.receipt.complete


def test_keeps_the_rate(daemon: FakeDaemon) -> None:
    run_camera(plan(frames=4, fps=200.0), threading.Event())
    times_s = daemon.runs["cam"].times_s
    assert times_s[-1] - times_s[0] >= 3 / 200 - 0.006  # the first may come late, none early


def test_several_run_side_by_side(daemon: FakeDaemon) -> None:
    shown: list[str] = []
    results = run_cameras(several(plan(), 3), lambda name, sent, published: shown.append(name))
    assert [result.name for result in results] == ["cam-1", "cam-2", "cam-3"]
    assert sorted(daemon.runs) == ["cam-1", "cam-2", "cam-3"]
    assert sorted(shown) == sorted(["cam-1", "cam-2", "cam-3"] * 6)
    assert several(plan(), 1) == [plan()]


def test_an_interrupt_ends_in_order(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Event()
    wait_for = camera._wait_for

    def waits(futures: Sequence[Future[CameraResult]]) -> None:
        waiting.set()
        wait_for(futures)

    def interrupt(name: str, sent: int, published: int) -> None:
        if sent == 3:
            assert waiting.wait(WAIT_S)  # else it could end the test's own lines
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(camera, "_wait_for", waits)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        (result,) = run_cameras([plan(frames=100_000, fps=1000.0)], interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.receipt.status == "canceled"
    assert result.sent < 100_000


def test_an_interrupt_while_cameras_are_started_stops_those_that_run(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedPool(ThreadPoolExecutor):
        def submit(self, *call: Any) -> Future[Any]:  # type: ignore[override]
            if call[1].name == "cam-2":
                raise KeyboardInterrupt
            return super().submit(*call)

    monkeypatch.setattr(camera, "ThreadPoolExecutor", InterruptedPool)
    (result,) = run_cameras(several(plan(frames=100_000, fps=1000.0), 2))
    assert (result.name, result.receipt.status) == ("cam-1", "canceled")
    assert result.sent < 100_000


def test_one_failure_stops_the_others(daemon: FakeDaemon) -> None:
    daemon.fail_at["cam-2"] = 2
    with pytest.raises(AcquisitionFailed, match="disk is gone"):
        run_cameras(several(plan(frames=100_000, fps=1000.0), 2))
    assert daemon.runs["cam-1"].closed is not None
    assert daemon.runs["cam-1"].closed[0] == "canceled"
