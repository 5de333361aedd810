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
from acqstream.formats.precomputed.metadata import NOTE_NAME
from acqstream.log.log import Log
from acqstream.mirrors.comparison import compare
from acqstream.storage.stores.local_store import LocalStore
from acqstream.views.view_run import ViewState
from tests.log.make_frames import Axes, Frame, start_log
from tests.mirrors.mirror_cases import array_of, finish, frames_at, halved, places_of, run_of
from tests.waiting import until

SHAPE = (21, 26)
SETTINGS: dict[str, Any] = {"format": "precomputed", "levels": 2, "chunks": [4, 16, 16]}
# Small shards, so that several are filled: of 8 chunks of level 0.
SHARDS: dict[str, Any] = {**SETTINGS, "shards": {"preshift_bits": 2, "minishard_bits": 1}}
WAYS = {"files": SETTINGS, "shards": SHARDS, "gzip": {**SETTINGS, "shards": {"data_encoding": "gzip"}}}
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


def step_until_waiting(cells: Path, settings: dict[str, Any]) -> None:
    run = run_of(cells, settings, name="precomputed")
    try:
        while run.progress().state is not ViewState.WAITING:
            run.step()
    finally:
        run.close()


def copy_before(monkeypatch: pytest.MonkeyPatch, puts: int, cells: Path, target: Path) -> list[str]:
    """Copy the mirror and its progress, as a kill leaves them, before object number `puts` is stored.

    Returns a list that gets the keys of stored objects.
    """
    lock = threading.RLock()  # one may call another
    stored: list[str] = []
    for name in ("put", "put_new", "ensure", "ensure_all", "append", "write", "rename", "delete"):
        method = getattr(LocalStore, name)

        def put(store: LocalStore, key: str, *given: Any, original: Any = method, **named: Any) -> Any:
            with lock:
                if len(stored) == puts:
                    copy_mirror(cells.parent, target)
                stored.append(str(key))
                return original(store, key, *given, **named)

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


@pytest.mark.thinned(3)
@pytest.mark.parametrize("puts", [0, 1, 3, 5, 7, 9, 11, 14, 18, 22, 27, 32, 36])
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_mirror_of_a_growing_dataset_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, puts: int
) -> None:
    check_killed_mirror(tmp_path, monkeypatch, kind, puts, SETTINGS)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("puts", range(0, 60, 3))
@pytest.mark.parametrize(("kind", "way"), [("z", "shards"), ("time as z", "shards"), ("z", "gzip")])
def test_a_killed_mirror_in_shards_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, way: str, puts: int
) -> None:
    check_killed_mirror(tmp_path, monkeypatch, kind, puts, WAYS[way])


def check_killed_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, puts: int, settings: dict[str, Any]
) -> None:
    cells, frames = tmp_path / "cells", frames_at(KINDS[kind], SHAPE)
    container = cells.with_name("cells.precomputed")
    with monkeypatch.context() as planted:
        stored = copy_before(planted, puts, cells, tmp_path / "killed")
        with start_log(cells) as log:
            append(log, frames[:5])
            step_until_waiting(cells, settings)
            append(log, frames[5:9])
            step_until_waiting(cells, settings)
            append(log, frames[9:])
        finish(run_of(cells, settings, name="precomputed"))
    assert len(stored) > puts
    for name in PARTS if (tmp_path / "killed").exists() else ():
        shutil.rmtree(tmp_path / name)
    copy_mirror(tmp_path / "killed", tmp_path)
    run = finish(run_of(cells, settings, name="precomputed"))
    assert (run.reason, run.progress().state) == ("", ViewState.COMPLETE)
    assert compare(cells, run.folder, len(frames)).text == "all equal"
    with acqstream.open(cells) as log_ds, acqstream.open(container) as mirror:
        assert np.array_equal(mirror.levels[0].read(), log_ds.levels[0].read())
    check_volumes(container, kind, frames)


@pytest.mark.parametrize("way", WAYS)
def test_other_software_reads_all_below_the_watermark(tmp_path: Path, way: str) -> None:
    """While chunks are added: `info` of shards states more planes than there are, our shape is what is stored."""
    cells = tmp_path / "cells"
    frames = frames_at(places_of(("time", "channel", "z"), {"time": 4, "z": 5}, {"channel": CHANNELS}), SHAPE)
    container, full, each = cells.with_name("cells.precomputed"), array_of(frames), len(frames) // 4
    with start_log(cells) as log:
        append(log, frames[:1])
        run = run_of(cells, WAYS[way], name="precomputed")
        try:
            for times in (1, 2, 3):
                append(log, frames[(times - 1) * each + 1 : times * each + 1])  # the last one begins another time
                until(lambda: run.step() is not None and shown(container)[0] > 0, "a time is shown")
                while (shape := shown(container))[0] < times:
                    assert run.step() is not None
                assert shape == (times, *full.shape[1:])  # no index before all its frames
                with acqstream.open(container) as mirror:
                    assert np.array_equal(mirror.levels[0].read(), full[:times])
                for time, channel in np.ndindex(*shape[:2]):
                    found = read_volume(container / f"time{time}" / f"channel{channel}", 0)
                    assert np.array_equal(found[: shape[2]], full[time, channel])
                    assert not found[shape[2] :].any()
        finally:
            run.close()
        append(log, frames[3 * each + 1 :])
    assert not list(container.rglob("*.part*"))
    finish(run_of(cells, WAYS[way], name="precomputed"))
    assert not list(container.rglob("*.shard-note"))
    check_volumes(container, "z", frames)


def shown(container: Path) -> tuple[int, ...]:
    """The shape that our note states."""
    if not (container / NOTE_NAME).exists():
        return (0,)
    with acqstream.open(container) as mirror:
        return tuple(mirror.levels[0].shape)
