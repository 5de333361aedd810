"""Virtual cameras: each sends its frames to a daemon, at a steady rate or as fast as it can."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from acqstream.client.producer import create
from acqstream.client.run import Run
from acqstream.errors import AcquisitionFailed
from acqstream.model.acquisition_spec import AxisSpec
from acqstream.model.axes import AxisValue
from acqstream.model.receipt import Receipt
from acqstream.simulate import pattern
from acqstream.simulate.axes_counter import AxesCounter, TileScan
from acqstream.simulate.pattern import burn_number
from acqstream.simulate.scene import SceneCamera

_LOG = logging.getLogger(__name__)
PIXEL_SIZE_UM = 0.5  # of cells and tiles
Z_STEP_UM = 2.0  # of cells
_POLL_S = 0.1
_STOPPED = "stopped by the user, or because another camera failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraPlan:
    """Settings of one camera: frames of `shape` (Y, X) or (Y, X, 3), dtype "uint8" or "uint16".

    fps None means as fast as the daemon takes them. bits are the significant bits, None for all of the dtype.
    pattern "scene" shows cells (`scene`). "noise" is faster: without tiles the pattern of the frame's number
    (`pattern`), with them a window of a virtual sample. With tiles `axes` count the scans, row and column go
    fastest, and all tiles of a scan are windows of one picture. levels: of the pyramid, None for as many as are needed.
    is_numbered: the frame's number is burned into a corner. data: data directory, in place of endpoint.
    """

    name: str
    endpoint: str | None
    frames: int
    shape: tuple[int, ...]
    dtype: str
    axes: AxesCounter
    fps: float | None = None
    bits: int | None = None
    mirrors: tuple[str | Mapping[str, Any], ...] = ()
    number_if_taken: bool = False
    tiles: TileScan | None = None
    levels: int | None = None
    data: Path | None = None
    pattern: Literal["scene", "noise"] = "noise"
    is_numbered: bool = False

    def axes_at(self, number: int) -> dict[str, AxisValue]:
        """The axes of frame `number`."""
        if self.tiles is None:
            return self.axes.at(number)
        row, column = self.tiles.cell(number)
        return {**self.axes.at(number // self.tiles.count), "row": row, "column": column}

    def fill(self, image: NDArray[Any], number: int) -> dict[str, Any]:
        """Write frame `number` into `image`; its metadata."""
        picture, y, x = number, 0, 0
        if self.tiles is not None:
            picture //= self.tiles.count
            y, x = self.tiles.origin(self.tiles.cell(number), self.shape)
        self._draw(image, picture, y, x)
        if self.is_numbered:
            burn_number(image, number, 2 ** (self.bits or 8 * image.itemsize) - 1)
        if self.tiles is None:
            return {"number": number}
        stage = {"XPositionPix": x, "YPositionPix": y, "PixelSizeUm": PIXEL_SIZE_UM}
        return {"number": number, **stage, "XPositionUm": x * PIXEL_SIZE_UM, "YPositionUm": y * PIXEL_SIZE_UM}

    def _draw(self, image: NDArray[Any], picture: int, y: int, x: int) -> None:
        """Draw the window at (y, x) of a picture."""
        if self.pattern == "scene":
            camera = SceneCamera(self.axes)
            index = camera.index(picture)
            image[:] = camera.scene.window(y, x, self.shape, self.dtype, bits=self.bits, index=index)
        elif self.tiles is None:
            pattern.fill(image, picture, self.bits)
        else:
            image[:] = pattern.window(y, x, self.shape, self.dtype, bits=self.bits, picture=picture)


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraResult:
    """The result of one camera's run.

    late_frames were put after the next one was due already; warnings are texts that the daemon sent on the way.
    """

    name: str
    receipt: Receipt
    seconds: float
    sent: int
    late_frames: int
    warnings: tuple[str, ...] = ()


class CameraProgress(Protocol):
    """Called from the camera's thread after each frame: camera name, frames sent, frames published."""

    def __call__(self, name: str, sent: int, published: int) -> None: ...


@dataclass(slots=True)
class _Pace:
    """Paces frames, and counts late ones."""

    interval_s: float
    started: float
    late_frames: int = 0

    def wait(self, number: int, stop: threading.Event) -> None:
        due = self.started + number * self.interval_s
        early_s = due - time.monotonic()
        if early_s > 0:
            stop.wait(early_s)
        elif early_s < -self.interval_s:
            self.late_frames += 1


def several(plan: CameraPlan, count: int) -> list[CameraPlan]:
    """`plan` for `count` cameras, named NAME-1, NAME-2 ...; one camera keeps the name."""
    if count == 1:
        return [plan]
    return [replace(plan, name=f"{plan.name}-{index + 1}") for index in range(count)]


def run_cameras(plans: Sequence[CameraPlan], progress: CameraProgress | None = None) -> list[CameraResult]:
    """Run all cameras at the same time, each in a thread of its own; results in the order of `plans`.

    When one fails the others stop and their acquisitions end as canceled; the first error is raised. An interrupt
    (Ctrl-C) stops all of them in the same way, and their receipts record it. A camera that never started has no result.
    """
    stop = threading.Event()
    futures: list[Future[CameraResult]] = []
    with ThreadPoolExecutor(len(plans), thread_name_prefix="camera") as pool:
        try:
            for plan in plans:  # inside: cameras that run already are stopped by an interrupt here, too
                futures.append(pool.submit(run_camera, plan, stop, progress))
            _wait_for(futures)
        except KeyboardInterrupt:
            _LOG.info("stopping the cameras")
        finally:
            stop.set()
    return [future.result() for future in futures]


def _wait_for(futures: Sequence[Future[CameraResult]]) -> None:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()


def run_camera(plan: CameraPlan, stop: threading.Event, progress: CameraProgress | None = None) -> CameraResult:
    """Send the frames of one camera until all are sent or `stop` is set, then close."""
    started = time.monotonic()
    image = np.empty(plan.shape, plan.dtype)
    plan.fill(image, 0)  # the first one takes longest: not at the camera's rate
    tiles = plan.tiles
    run = create(
        plan.name,
        endpoint=plan.endpoint,
        data=plan.data,
        summary=_summary(plan),
        tiles=None if tiles is None else {"overlap": tiles.overlap},
        levels="auto" if plan.levels is None else plan.levels,
        mirrors=plan.mirrors or None,
        axes=[AxisSpec(axis.name, axis.size, labels=axis.labels) for axis in plan.axes.axes] if tiles is None else None,
        expect=plan.frames,
        frame=(plan.shape, plan.dtype),
        on_exists="number" if plan.number_if_taken else "error",
    )
    pace = _Pace(1 / plan.fps if plan.fps else 0.0, time.monotonic())
    sent = 0
    receipt: Receipt | None
    try:
        with run:
            sent = _send(plan, image, run, pace=pace, stop=stop, progress=progress)
            receipt = run.close() if sent == plan.frames else run.close("canceled", _STOPPED)
    except AcquisitionFailed as error:
        receipt = run.receipt
        if error.code != "incomplete" or receipt is None:
            raise  # else the receipt lists the missing frames
    return CameraResult(
        name=run.name,
        receipt=receipt,
        seconds=time.monotonic() - started,
        sent=sent,
        late_frames=pace.late_frames if plan.fps else 0,
        warnings=tuple(f"{warning.code}: {warning.text}" for warning in run.warnings),
    )


def _summary(plan: CameraPlan) -> dict[str, Any]:
    distances: dict[str, Any] = {}
    if plan.tiles is not None or plan.pattern == "scene":
        distances["PixelSizeUm"] = PIXEL_SIZE_UM
    if plan.pattern == "scene" and any(axis.name == "z" for axis in plan.axes.axes):
        distances["z-step_um"] = Z_STEP_UM
    return {"Source": "acqstream simulate", **distances}


def _send(
    plan: CameraPlan,
    image: NDArray[Any],
    run: Run,
    *,
    pace: _Pace,
    stop: threading.Event,
    progress: CameraProgress | None,
) -> int:
    for number in range(plan.frames):
        meta = plan.fill(image, number)
        if plan.fps:
            pace.wait(number, stop)
        if stop.is_set():
            return number
        run.put(image, plan.axes_at(number), meta=meta, bits=plan.bits)
        if progress is not None:
            progress(plan.name, number + 1, run.progress.published)
    return plan.frames
