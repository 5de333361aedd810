"""The gate where threads wait for space: what passes, what gives up, and who is told."""

from __future__ import annotations

import errno
import threading

import pytest

from acqstream.errors import DiskFull, StorageError
from acqstream.log.threads import SpaceGate

WAIT_S = 20.0


def full(path: str = "a.tif") -> DiskFull:
    error = StorageError.wrap(OSError(errno.ENOSPC, "No space left on device"), path, "cannot write")
    assert isinstance(error, DiskFull)
    return error


class Scene:
    """A gate, and what it told."""

    def __init__(self) -> None:
        self.news: list[bool] = []
        self.freed = 0
        self.space = threading.Event()
        self.paused = threading.Event()
        self.gate = SpaceGate(self._on_change, self._free)

    def _on_change(self) -> None:
        self.news.append(self.gate.error is not None)
        self.paused.set()

    def _free(self) -> None:
        self.freed += 1

    def action(self) -> str:
        if not self.space.is_set():
            raise full()
        return "done"


def test_what_has_space_passes_and_tells_nothing() -> None:
    scene = Scene()
    scene.space.set()
    assert scene.gate.run(scene.action) == "done"
    scene.gate.passed()
    assert (scene.news, scene.gate.error) == ([], None)


def test_it_waits_until_there_is_space_and_tells_both() -> None:
    scene = Scene()
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(scene.gate.run(scene.action)))
    thread.start()
    assert scene.paused.wait(WAIT_S)
    assert str(scene.gate.error) == str(full())
    scene.space.set()
    thread.join(WAIT_S)
    assert results == ["done"]
    assert (scene.news, scene.freed, scene.gate.error) == ([True, False], 0, None)


def test_giving_up_frees_the_reserve_and_tries_once_more() -> None:
    scene = Scene()
    scene.gate.abandon()
    calls = []

    def action() -> str:
        calls.append(scene.freed)
        return scene.action() if len(calls) < 2 else "done"

    assert scene.gate.run(action) == "done"
    assert calls == [0, 1]
    with pytest.raises(DiskFull):
        scene.gate.run(scene.action)
    with pytest.raises(DiskFull):
        scene.gate.wait(full())
    assert scene.gate.error is None


def test_giving_up_wakes_who_waits() -> None:
    scene = Scene()
    errors: list[DiskFull] = []

    def work() -> None:
        try:
            while True:
                scene.gate.wait(full())
        except DiskFull as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert scene.paused.wait(WAIT_S)
    scene.gate.abandon()
    thread.join(WAIT_S)
    assert len(errors) == 1
    assert scene.news == [True, False]


def test_other_errors_are_none_of_its_business() -> None:
    scene = Scene()
    error = StorageError(OSError(errno.EIO, "Input/output error"), "a.tif", "cannot write")

    def action() -> None:
        raise error

    with pytest.raises(StorageError) as caught:
        scene.gate.run(action)
    assert caught.value is error
    assert scene.news == []


def test_it_is_paused_while_anybody_waits() -> None:
    scene = Scene()
    scene.gate.wait(full("first.tif"))
    other = threading.Thread(target=lambda: scene.gate.wait(full("second.tif")))
    other.start()
    other.join(WAIT_S)  # it waited a moment, and has not passed yet
    scene.gate.passed()
    assert "second.tif" in str(scene.gate.error)
    assert scene.news == [True]
