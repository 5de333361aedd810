"""Precomputed mirrors of growing datasets, whose process is killed at any moment: other software reads them right."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
from numpy.typing import NDArray

import acqstream
from acqstream.log.log import Log
from acqstream.mirrors.comparison import compare
from acqstream.storage.local_store import LocalStore
from acqstream.views.view_progress import ViewState
from tests.log.make_frames import Axes, Frame, start_log
from tests.mirrors.mirror_cases import array_of, finish, frames_at, halved, places_of, run_of

SHAPE = (21, 26)
SETTINGS: dict[str, Any] = {"format": "precomputed", "levels": 2, "chunks": [4, 16, 16]}
TIMES, CHANNELS, DEPTH = 2, ("DAPI", "GFP"), 6
ALL_Z = places_of(("time", "channel", "z"), {"time": TIMES, "z": DEPTH}, {"channel": CHANNELS})
ONLY_TIME = places_of(("channel", "time"), {"time": 7}, {"channel": CHANNELS})
PARTS = ("cells.precomputed", "cells.precomputed.view")
KINDS: Mapping[str, Sequence[Axes]] = {"z": ALL_Z, "time as z": ONLY_TIME}


def read_volume(folder: Path, scale: int) -> NDArray[Any]:
    """(z, y, x), by another library."""
    kvstore = {"driver": "file", "path": str(folder)}
    spec = {"driver": "neuroglancer_precomputed", "kvstore": kvstore, "scale_index": scale}
    found: NDArray[Any] = tensorstore.open(spec, read=True).result()[..., 0].read().result()
    return found.T


def append(log: Log, frames: Sequence[Frame]) -> None:
    for frame in frames:
        log.append(frame.header, frame.image)
    assert log.wait_for_published(frames[-1].header.number + 1)


def step_until_waiting(cells: Path) -> None:
    run = run_of(cells, SETTINGS, name="precomputed")
    try:
        while run.progress().state is not ViewState.WAITING:
            run.step()
    finally:
        run.close()


def copy_before(monkeypatch: pytest.MonkeyPatch, puts: int, cells: Path, target: Path) -> list[str]:
    """Copy the mirror and its progress, as a kill leaves them, before object number `puts` is stored.

    Returns a list that gets the keys of stored objects.
    """
    lock = threading.Lock()
    stored: list[str] = []
    for name in ("put", "ensure"):
        method = getattr(LocalStore, name)

        def put(store: LocalStore, key: str, content: Any, original: Any = method) -> None:
            with lock:
                if len(stored) == puts:
                    copy_mirror(cells.parent, target)
                stored.append(key)
                original(store, key, content)

        monkeypatch.setattr(LocalStore, name, put)
    return stored


def copy_mirror(source: Path, target: Path) -> None:
    for name in PARTS:
        if (source / name).exists():
            shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns("*.lock", "*.tmp"))


def check_volumes(container: Path, kind: str, frames: Sequence[Frame]) -> None:
    """Every volume and level; where the depth was not declared, it ends with a complete chunk."""
    full = array_of(frames) if kind == "z" else array_of([retimed(frame) for frame in frames])
    for scale, right in enumerate((full, halved(full, (1,) * (full.ndim - 2) + (2, 2)))):
        for member in np.ndindex(*right.shape[:-3]):
            names = ("time", "channel") if kind == "z" else ("channel",)
            folder = container.joinpath(*(f"{name}{at}" for name, at in zip(names, member, strict=True)))
            found, depth = read_volume(folder, scale), right.shape[-3]
            assert found.shape[0] == -(-depth // 4) * 4
            assert np.array_equal(found[:depth], right[member])
            assert not found[depth:].any()


def retimed(frame: Frame) -> Any:
    """The frame with its time as z."""
    axes = {"channel": frame.axes["channel"], "z": frame.axes["time"]}
    return type("Moved", (), {"axes": axes, "image": frame.image})()


@pytest.mark.parametrize("puts", [0, 1, 3, 5, 7, 9, 11, 14, 18, 22, 27, 32, 36])
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_mirror_of_a_growing_dataset_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, puts: int
) -> None:
    cells, frames = tmp_path / "cells", frames_at(KINDS[kind], SHAPE)
    container = cells.with_name("cells.precomputed")
    with monkeypatch.context() as planted:
        stored = copy_before(planted, puts, cells, tmp_path / "killed")
        with start_log(cells) as log:
            append(log, frames[:5])
            step_until_waiting(cells)
            append(log, frames[5:9])
            step_until_waiting(cells)
            append(log, frames[9:])
        finish(run_of(cells, SETTINGS, name="precomputed"))
    assert len(stored) > puts
    for name in PARTS if (tmp_path / "killed").exists() else ():
        shutil.rmtree(tmp_path / name)
    copy_mirror(tmp_path / "killed", tmp_path)
    run = finish(run_of(cells, SETTINGS, name="precomputed"))
    assert (run.reason, run.progress().state) == ("", ViewState.COMPLETE)
    assert compare(cells, run.folder, len(frames)).text == "all equal"
    with acqstream.open(cells) as log_ds, acqstream.open(container) as mirror:
        assert np.array_equal(mirror.levels[0].read(), log_ds.levels[0].read())
    check_volumes(container, kind, frames)
