"""Datasets to mirror, and what the arrays must be: computed with numpy alone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore
from numpy.typing import NDArray

from acqstream.mirrors.mirror_plan import folder_of
from acqstream.mirrors.view_worker import view_maker
from acqstream.model.acquisition_spec import AxisSpec
from acqstream.model.view_spec import ViewSpec
from acqstream.views.checkpoint import view_folder
from acqstream.views.view_run import ViewRun
from tests.log.make_frames import Axes, Frame, frame_of
from tests.storage.unforced_disk import UnforcedDisk

ORDER = ("time", "position", "channel", "z")
PLAIN: dict[str, Any] = {"format": "n5", "layout": "array", "compression": "raw"}


def places_of(
    order: Sequence[str], sizes: Mapping[str, int], names: Mapping[str, Sequence[str]] | None = None
) -> list[Axes]:
    """All combinations, the last axis of `order` counts fastest."""
    found: list[Axes] = [{}]
    for axis in order:
        values: Sequence[Any] = (names or {}).get(axis) or range(sizes[axis])
        found = [{**place, axis: value} for place in found for value in values]
    return found


def frames_at(places: Iterable[Axes], shape: Sequence[int] = (21, 26), dtype: str = "<u2") -> list[Frame]:
    return [frame_of(number, shape, dtype, axes=axes) for number, axes in enumerate(places)]


def declared(order: Sequence[str], sizes: Mapping[str, int]) -> tuple[AxisSpec, ...]:
    return tuple(AxisSpec(axis, sizes[axis]) for axis in order)


def shuffled(places: Sequence[Axes], seed: int) -> list[Axes]:
    return random.Random(seed).sample(places, len(places))


def array_of(frames: Iterable[Frame], order: Sequence[str] = ORDER) -> NDArray[Any]:
    """(axes in `order` that the frames have..., z, [c,] y, x): positions are values, names in order of arrival."""
    frames = list(frames)
    axes = [axis for axis in order if axis in frames[0].axes and axis != "z"] + ["z"]
    known: dict[str, list[Any]] = {axis: [] for axis in axes}
    for frame in frames:
        for axis in axes:
            value: Any = frame.axes.get(axis, 0)
            if (isinstance(value, str) or value < 0) and value not in known[axis]:
                known[axis].append(value)
    spots: list[tuple[Any, ...]] = [
        tuple(known[axis].index(value) if (value := frame.axes.get(axis, 0)) in known[axis] else value for axis in axes)
        for frame in frames
    ]
    sizes = [max(spot[n] for spot in spots) + 1 for n in range(len(axes))]
    image = frames[0].image
    colours = image.shape[2:]
    found = np.zeros((*sizes[:-1], *colours, sizes[-1], *image.shape[:2]), image.dtype)
    for spot, frame in zip(spots, frames, strict=True):
        if colours:
            found[(*spot[:-1], slice(None), spot[-1])] = np.moveaxis(frame.image, 2, 0)
        else:
            found[spot] = frame.image
    return found


def halved(array: NDArray[Any], steps: Sequence[int]) -> NDArray[Any]:
    """Means of blocks of `steps` items, half up; a rest is left out, unless there is nothing else."""
    found = array.astype(np.float64)
    for axis, step in enumerate(steps):
        size = found.shape[axis]
        whole = max(1, size // step)
        parts = [
            found.take(range(n * step, min((n + 1) * step, size)), axis).mean(axis, keepdims=True) for n in range(whole)
        ]
        found = np.concatenate(parts, axis)
    return np.floor(found + 0.5).astype(array.dtype)


def run_of(folder: Path, settings: Mapping[str, Any] = PLAIN, name: str = "n5", **more: Any) -> ViewRun:
    names = ("memory_mb", "threads", "is_remade", "container", "runner")
    view = {key: more.pop(key) for key in names if key in more}
    more.setdefault("disk", UnforcedDisk())
    spec = ViewSpec(str(settings["format"]), settings, name)
    own = view_folder(view["container"], "view") if "container" in view else folder_of(folder, spec)
    return ViewRun(folder, name, view_maker(spec, **view), folder=own, **more)


def finish(run: ViewRun, timeout_s: float = 50.0) -> ViewRun:
    """Step until nothing is left to do."""
    end = time.monotonic() + timeout_s
    try:
        while (wait_s := run.step()) is not None:
            assert time.monotonic() < end, f"still {run.progress()} {run.reason}"
            time.sleep(min(wait_s, 0.005))
    finally:
        run.close()
    return run


def read_plain(container: Path, level: int = 0) -> NDArray[Any]:
    """A level of a mirror in the layout `array`, by another library."""
    kvstore = {"driver": "file", "path": f"{container}/s{level}"}
    found: NDArray[Any] = tensorstore.open({"driver": "n5", "kvstore": kvstore}).result().read().result()
    return found.T


def check_plain(
    folder: Path, frames: Sequence[Frame], steps: Sequence[Sequence[int]] = (), name: str = "cells.n5"
) -> None:
    """All levels of the mirror; steps: what each takes together of the one before, along z, y, x."""
    right = array_of(frames)
    container = folder.with_name(name)
    assert np.array_equal(read_plain(container), right)
    for level, step in enumerate(steps, 1):
        right = halved(right, (*(1 for _ in right.shape[:-3]), *step))
        assert np.array_equal(read_plain(container, level), right), level
