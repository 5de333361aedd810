"""A producer that resumes learns which frames are stored, by their axes, over every transport."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.client import run as run_module
from acqstream.client.run import Run
from acqstream.log import continuation
from acqstream.storage.files.small_file import read_small_file
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of, state_of
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

SHAPE = (16, 16)
N5 = {"format": "n5", "layout": "array", "compression": "raw", "blocks": [4, 16, 16]}  # 5 frames: one of a block of 4
CHANNELS = ("DAPI", "µ-Manager")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path / "data", grace_s=0.1) as process:
        yield process


def vanish(run: Run) -> None:
    """As if its process had been killed."""
    run._connection.stop()
    run._connection.join()
    run_module._leave(run._closing)


def keys_of(count: int) -> list[dict[str, int | str]]:
    return [{"time": number // 2, "channel": CHANNELS[number % 2]} for number in range(count)]


def interrupt(daemon: DaemonProcess, count: int, name: str = "cells") -> None:
    """A dataset of so many frames whose producer is gone."""
    run = acqstream.create(name, endpoint=daemon.endpoint, buffer_mb=8)
    for number, key in enumerate(keys_of(count)):
        if number == 3:
            run.skip(2, reason="shutter")
        run.put(image_of(number, SHAPE), key)
    until(lambda: run.progress.published == count + 2, "they are published")
    vanish(run)
    until(lambda: state_of(daemon.data / name)["state"] == "INTERRUPTED", "it is interrupted")


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_axes_of_stored_frames_are_told(daemon: DaemonProcess, transport: str) -> None:
    count = 2 * continuation.MAX_KEYS + 100  # three pages
    interrupt(daemon, count)
    options: dict[str, Any] = {"endpoint": daemon.endpoint, "buffer_mb": 8, "transport": transport, "resume": True}
    with acqstream.create("cells", **options) as run:
        assert len(run.stored) == count
        run.put(image_of(count, SHAPE), time=count, channel="DAPI")  # of this run: not among those of before
        assert list(run.stored) == keys_of(count)
        assert all(key in run.stored for key in keys_of(count))
        assert run.is_stored(channel="µ-Manager", time=np.int64(7))
        assert not run.is_stored(time=7)
        assert not run.is_stored(time="7", channel="DAPI")
        assert not run.is_stored(time=count, channel="DAPI")
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.skipped, run.receipt.sent) == (count + 1, 2, count + 3)


def test_a_new_dataset_has_none(daemon: DaemonProcess) -> None:
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=8, resume=True) as run:
        assert (len(run.stored), list(run.stored), run.is_stored(time=0)) == (0, [], False)
        run.put(image_of(0, SHAPE), time=0)
        assert not run.is_stored(time=0)


def test_frames_that_are_not_published_yet_are_told_when_they_are(tmp_path: Path) -> None:
    """The request comes right after the frames: the answer waits for them."""
    with DaemonProcess(tmp_path / "data", grace_s=60) as daemon, WireClient(daemon.endpoint) as one:
        ds = new_dataset_id()
        one.open("cells", ds)
        for number in range(40):
            one.frame(ds, number, image_of(number, SHAPE).tobytes(), SHAPE, {"time": number})
        one.send("stored", ds=ds)
        page = one.wait_for("stored")
        assert page["keys"] == [{"time": number} for number in range(40)]
        one.send("stored", ds=ds, at=page["next"])
        assert one.wait_for("stored")["keys"] == []
        one.send("stored", ds=ds, at=7)  # in the middle of an entry
        error = one.wait_for("error")
        assert (error["code"], error["fatal"]) == ("io_error", False)
        one.send("stored", ds=ds, at=2**63 - 1)
        assert one.wait_for("stored", "error")["ds"] == ds
        one.send("close", ds=ds, n=40)
        assert one.wait_for("closed")["receipt"]["status"] == "completed"


def test_a_daemon_killed_between_two_pages(daemon: DaemonProcess) -> None:
    count = continuation.MAX_KEYS + 100
    interrupt(daemon, count)
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=8, patience_s=30, resume=True) as run:
        told = iter(run.stored)
        first = [next(told) for _ in range(10)]
        daemon.kill()
        daemon.start()
        assert [*first, *told] == keys_of(count)
        run.put(image_of(0, SHAPE), time=count, channel="DAPI")


def test_channels_are_looked_up_as_put_does(daemon: DaemonProcess) -> None:
    options: dict[str, Any] = {
        "endpoint": daemon.endpoint,
        "micromanager": True,
        "summary": {"ChNames": ["DAPI", "FITC"]},
    }
    with contextlib.suppress(KeyboardInterrupt), acqstream.create("cells", buffer_mb=8, **options) as run:
        run.put(image_of(0, SHAPE), time=0, channel="FITC")
        until(lambda: run.progress.published == 1, "it is published")
        vanish(run)
        raise KeyboardInterrupt
    until(lambda: state_of(run.path)["state"] == "INTERRUPTED", "it is interrupted")
    with acqstream.create("cells", buffer_mb=8, resume=True, **options) as run:
        assert list(run.stored) == [{"time": 0, "channel": 1}]
        assert run.is_stored(time=0, channel="FITC")
        assert run.is_stored(time=0, channel=1)
        assert not run.is_stored(time=0, channel="DAPI")


PLAIN_SCRIPT = """
import sys
import acqstream
from acqstream.simulate import pattern
endpoint, frames, pause_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
acquired = 0
with acqstream.create("cells", endpoint=endpoint, buffer_mb=8, resume=True) as run:
    for number in range(frames):
        if run.is_stored(time=number):
            continue
        if number == pause_at:
            while run.progress.published < run.next:
                pass
            print(acquired, flush=True)
            sys.stdin.read()
        run.put(pattern.frame(number, (16, 16), "uint16"), time=number)
        acquired += 1
print(acquired, run.receipt.stored, flush=True)
"""


def test_a_plain_script_that_was_killed_is_run_again(daemon: DaemonProcess) -> None:
    first = programs.start(PLAIN_SCRIPT, daemon.endpoint, "30", "20")
    assert programs.line_of(first) == "20"
    programs.kill(first)
    until(lambda: state_of(daemon.data / "cells")["state"] == "INTERRUPTED", "it is interrupted")
    second = programs.start(PLAIN_SCRIPT, daemon.endpoint, "30", "-1")
    assert programs.line_of(second) == "10 30"
    assert programs.end(second) == (0, "")
    with acqstream.open(daemon.data / "cells") as dataset:
        assert len(list(dataset.keys())) == 30
        assert all(np.array_equal(dataset.read_frame(time=n), image_of(n, SHAPE)) for n in range(30))


def test_a_script_that_starts_again_at_frame_0_is_told_and_can_be_resumed(daemon: DaemonProcess) -> None:
    interrupt(daemon, 10)
    for tries in range(1, 3):
        with pytest.raises(acqstream.FrameRefused, match="stored already") as caught:
            with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=8, resume=True) as run:
                run.put(image_of(0, SHAPE), keys_of(1)[0])
                until(lambda: bool(run.warnings), "the frame is refused")
                run.skip(0, reason="a call that raises")
        assert caught.value.code == "duplicate_axes"
        assert run.receipt is not None
        assert (run.receipt.status, run.receipt.stored, run.receipt.refused) == ("error", 10, tries)
        assert state_of(run.path)["state"] == "ERRORED"
    with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=8, resume=True) as run:
        run.put(image_of(10, SHAPE), keys_of(11)[10])
        run.put(image_of(11, SHAPE), keys_of(12)[11])
    assert run.receipt is not None
    assert (run.receipt.complete, run.receipt.stored, run.receipt.refused) == (False, 12, 2)


def test_a_frame_refused_among_new_ones_leaves_these_stored(daemon: DaemonProcess) -> None:
    interrupt(daemon, 4)
    with pytest.raises(acqstream.FrameRefused, match="stored already"):
        with acqstream.create("cells", endpoint=daemon.endpoint, buffer_mb=8, resume=True) as run:
            for number in (4, 5, 0, 6):
                run.put(image_of(number, SHAPE), keys_of(7)[number])
    assert run.receipt is not None
    assert (run.receipt.stored, run.receipt.refused) == (7, 1)
    with acqstream.open(run.path) as dataset:
        assert all(np.array_equal(dataset.read_frame(key), image_of(n, SHAPE)) for n, key in enumerate(keys_of(7)))


def is_complete(view: Path, *, cursor: int = 0) -> bool:
    """A mirror has ended, with so many frames at least."""
    try:
        saved = json.loads(read_small_file(view / "view.json"))
    except FileNotFoundError:
        return False
    return bool(saved["complete"]) and saved["cursor"] >= cursor


@pytest.mark.parametrize("mirrors", [[], [N5]], ids=["alone", "n5"])
def test_a_script_that_failed_is_run_again(daemon: DaemonProcess, mirrors: list[Any]) -> None:
    options: dict[str, Any] = {"endpoint": daemon.endpoint, "buffer_mb": 8, "resume": True, "mirrors": mirrors}
    with pytest.raises(KeyError, match="a typing error"):
        with acqstream.create("cells", **options) as run:
            for number in range(5):
                run.put(image_of(number, SHAPE), time=number)
            raise KeyError("a typing error")
    assert state_of(run.path)["state"] == "ERRORED"
    if mirrors:  # it is made to its end, as nobody may ever come back
        until(lambda: is_complete(Path(f"{run.path}.n5.view")), "the mirror has ended")
    with acqstream.create("cells", **options) as run:
        assert (run.next, len(run.stored)) == (5, 5)
        for number in range(5, 12):
            run.put(image_of(number, SHAPE), time=number)
    assert run.receipt is not None
    assert (run.receipt.complete, run.receipt.stored) == (True, 12)
    if mirrors:
        until(lambda: is_complete(Path(f"{run.path}.n5.view"), cursor=12), "the mirror is complete")
        with acqstream.open(f"{run.path}.n5") as mirror:
            images = mirror.levels[0].read(...)
            assert np.array_equal(images, [image_of(n, SHAPE) for n in range(12)])


def put_tiles(daemon: DaemonProcess, name: str, stop: int) -> Path:
    """A program that fails after so many tiles of 12; those that are stored are not put again."""
    options: dict[str, Any] = {"endpoint": daemon.endpoint, "buffer_mb": 8, "tiles": {"overlap": (4, 4)}}
    with contextlib.suppress(KeyError), acqstream.create(name, resume=True, **options) as run:
        for number in range(stop):
            place = {"row": number // 4, "column": number % 4}
            if not run.is_stored(place):
                run.put(image_of(number, SHAPE), place)
        if stop < 12:
            raise KeyError("a typing error")
    until(functools.partial(is_complete, Path(f"{run.path}.pyramid"), cursor=stop), "the levels are made")
    return Path(run.path)


def test_levels_of_tiles_catch_up_where_a_script_had_failed(daemon: DaemonProcess) -> None:
    whole = put_tiles(daemon, "whole", 12)
    for stop in (5, 7, 12):  # in the middle of tiles of the next level
        resumed = put_tiles(daemon, "resumed", stop)
    with acqstream.open(whole) as one, acqstream.open(resumed) as other:
        assert len(one.levels) == len(other.levels) > 2
        for number, level in enumerate(one.levels):
            assert np.array_equal(level.read(...), other.levels[number].read(...)), f"level {number}"
