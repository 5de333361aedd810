"""An exception at any step between taking a place and handing it out: the place is free again, nothing waits for it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from acqstream.formats.ndtiff.layout import NDTiffLayout
from acqstream.log import intake
from acqstream.log.frame_keys import AxisKinds, FrameKeys
from acqstream.log.group import Group
from acqstream.log.group_builder import GroupBuilder
from acqstream.log.intake import Window
from acqstream.log.log import Log
from acqstream.log.memory import Ring
from acqstream.model.frame_header import FrameRun
from tests.log.make_frames import Frame, frame_of, log_threads, memory_of, start_log
from tests.log.read_back import check_dataset

LARGE = (256, 512)
STEPS: dict[str, tuple[Any, str]] = {
    "columns": (FrameRun, "of"),
    "kinds": (AxisKinds, "check"),
    "kinds of many": (AxisKinds, "check_run"),
    "key": (FrameKeys, "add"),
    "keys of many": (FrameKeys, "add_run"),
    "check": (NDTiffLayout, "check"),
    "header": (NDTiffLayout, "stack_header"),
    "place": (NDTiffLayout, "place"),
    "place of many": (NDTiffLayout, "place_run"),
    "memory": (Ring, "allocate"),
    "claim": (Ring, "_claim"),
    "more memory": (Ring, "extend"),
    "group": (Group, "__init__"),
    "begin": (GroupBuilder, "begin"),
    "slot": (intake, "Slot"),
    "address": (intake, "address_of"),
    "pixels": (Group, "pixels_of"),
    "cost": (Window, "note_cost"),
}


class InjectedError(Exception):
    pass


class Fault:
    """The next call of `name` in this thread raises, others go through: the log's threads may call it meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original, ours = getattr(owner, name), threading.get_ident()
        self.delivered = 0
        self.armed = False

        def call(*arguments: Any, **named: Any) -> Any:
            if self.armed and threading.get_ident() == ours:
                self.armed = False
                self.delivered += 1
                raise InjectedError
            return original(*arguments, **named)

        is_static = isinstance(vars(owner)[name], staticmethod)
        monkeypatch.setattr(owner, name, staticmethod(call) if is_static else call)


def aligned(frame: Frame) -> memoryview:
    memory = memory_of(-(-frame.image.nbytes // 4096) * 4096)[: frame.image.nbytes]
    memory[:] = frame.image.tobytes()
    return memory


def put_run(log: Log, frame: Frame) -> None:
    place = log.reserve_run(FrameRun.of([frame.header]))
    if place is None:  # as the daemon does it: one by one
        place = log.reserve(frame.header)
    place.fill(frame.image.data.cast("B"))


WAYS: dict[str, Callable[[Log, Frame], object]] = {
    "reserve": lambda log, frame: log.append(frame.header, frame.image),
    "adopt": lambda log, frame: log.adopt(frame.header, aligned(frame)),
    "run": put_run,
}
CASES = list(itertools.product(WAYS, (0, 2), ((16, 16), LARGE)))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ends"])
def test_the_place_is_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, ends: bool) -> None:
    fault = Fault(monkeypatch, *STEPS[step])
    for number, (way, before, shape) in enumerate(CASES):
        frames = [frame_of(n, shape) for n in range(before + 3)]
        check_run(tmp_path / str(number), frames, before, fault, WAYS[way], ends=ends)
    assert fault.delivered, "nothing ever comes past this step"
    assert not log_threads()


def check_run(
    folder: Path, frames: list[Frame], before: int, fault: Fault, put: Callable[[Log, Frame], object], *, ends: bool
) -> None:
    """A run whose fault meets the frame after the first `before` ones."""
    log = start_log(folder)
    log.wait_until_open()
    for frame in frames[:before]:
        log.append(frame.header, frame.image)
    fault.armed = True
    with suppress(InjectedError):
        put(log, frames[before])
    fault.armed = False
    assert log.received in (before, before + 1)
    for frame in [] if ends else frames[log.received :]:
        put(log, frame)
    stored = frames[: log.received]
    log.begin_close()
    assert log.wait_until_finished(20), "the log does not end"
    assert log.error is None
    assert log.receipt is not None
    assert (log.receipt.stored, log.receipt.missing) == (len(stored), ())
    assert log._parts.intake.ring.used_bytes == log._parts.intake.ring.beside_bytes == 0
    check_dataset(folder, stored, oracles=bool(stored))


def test_pixels_that_do_not_fit_their_place_leave_it_free(tmp_path: Path) -> None:
    frames = [frame_of(number, (16, 16)) for number in range(2)]
    with start_log(tmp_path / "cells") as log:
        log.wait_until_open()
        for pixels in (frames[0].image[:3], frames[0].image.astype("float64")):
            with pytest.raises(ValueError, match="different structures"):
                log.append(frames[0].header, pixels)
        for frame in frames:
            log.append(frame.header, frame.image)
    check_dataset(tmp_path / "cells", frames)
