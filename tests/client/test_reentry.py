"""Methods of a run that are called in the middle of others of the same thread, as signal handlers do."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import acqstream.client
from acqstream.client.producer import create
from acqstream.errors import AcquisitionFailed, ProtocolError

CLIENT = str(Path(acqstream.client.__file__).parent)
TRACED = (CLIENT, threading.__file__)
SHAPE = (6, 8)
LARGE = (500, 700)  # copied in several pieces; two of them fill the buffer
NESTED = "in the middle of"


def start(daemon, **arguments):
    return create("cells", **{"endpoint": daemon.endpoint, "buffer_mb": 1, "patience_s": 20.0, **arguments})


class Frames:
    """Makes frames whose pixels are their time, and knows which times a run has taken."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.taken: list[int] = []
        self._times = itertools.count(1)

    def put(self, shape: tuple[int, int] = SHAPE) -> None:
        time = next(self._times)
        self.run.put(np.full(shape, time, "u2"), time=time)
        self.taken.append(time)

    def put_large(self) -> None:
        self.put(LARGE)

    def reserve(self) -> None:
        time = next(self._times)
        with self.run.reserve(SHAPE, "u2", time=time) as image:
            image[:] = time
        self.taken.append(time)

    def skip(self) -> None:
        self.run.skip(2, reason="test")

    def patch(self) -> None:
        self.run.patch(display={"lut": 1})

    def progress(self) -> None:
        assert self.run.progress.sent >= 0

    def warnings(self) -> None:
        assert self.run.warnings == ()

    def close(self) -> None:
        self.run.close()

    def check(self, daemon: Any) -> None:
        """Every frame that was taken arrived once, with its own pixels."""
        times = []
        for frame, pixels in daemon.frames.values():
            time = frame.header.axes["time"]
            assert set(np.frombuffer(pixels, "<u2").tolist()) == {time}, f"frame {frame.header.number}"
            times.append(time)
        assert sorted(times) == sorted(self.taken)
        skipped = [number for skip in daemon.skips for number in range(skip.number, skip.number + skip.count)]
        assert sorted([*daemon.frames, *skipped]) == list(range(self.run.next))


class Interruption:
    """Calls `inner` when this thread reaches line number `line` of the client's code, counted from 0."""

    def __init__(self, inner: Callable[[], None], line: int) -> None:
        self.error: BaseException | None = None
        self.lines = 0
        self._inner = inner
        self._line = line

    def __enter__(self) -> Interruption:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line":
            if self.lines == self._line:
                self.lines += 1
                self._call()
            else:
                self.lines += 1
        return self._trace

    def _call(self) -> None:
        try:
            self._inner()
        except ProtocolError as error:
            self.error = error


METHODS = ("put", "reserve", "skip", "patch", "progress", "warnings")


def interrupted(frames: Frames, outer: str, inner: str) -> Iterator[BaseException | None]:
    """Calls `outer` again and again, with `inner` at each of its lines in turn; what `inner` raised."""
    for line in itertools.count():
        with Interruption(getattr(frames, inner), line) as interruption:
            getattr(frames, outer)()
        if interruption.lines <= line:
            return
        yield interruption.error


@pytest.mark.thinned(3)
@pytest.mark.parametrize("outer", [*METHODS, "put_large"])
@pytest.mark.parametrize("inner", METHODS)
def test_a_method_called_at_any_line_of_another_spoils_nothing(daemon, outer, inner):
    with start(daemon) as run:
        frames = Frames(run)
        errors = list(interrupted(frames, outer, inner))
    frames.check(daemon)
    assert len(errors) == 3 if outer == "warnings" else len(errors) > 3  # it has three lines, and takes no lock
    refused = [str(error) for error in errors if error is not None]
    takes_number = {"put", "put_large", "reserve", "skip"}
    assert bool(refused) == (inner in takes_number and outer in takes_number)
    assert all(NESTED in text or "leave its `reserve` block first" in text for text in refused)


@pytest.mark.parametrize("outer", METHODS)
def test_a_close_at_any_line_is_refused_or_ends_the_run_in_order(daemon, outer):
    refusals = 0
    for line in itertools.count():
        daemon.frames.clear()
        daemon.skips.clear()
        run = start(daemon)
        frames = Frames(run)
        frames.put()
        try:
            with Interruption(frames.close, line) as interruption:
                getattr(frames, outer)()
        except AcquisitionFailed as error:
            assert "is closed" in str(error)  # noqa: PT017 - it need not come
        refusals += interruption.error is not None
        receipt = run.close()
        assert receipt.status == "completed"
        frames.check(daemon)
        if interruption.lines <= line:
            break
    assert (refusals > 0) == (outer in ("put", "reserve", "skip"))


@pytest.mark.slow
def test_a_close_within_a_close_does_not_hang(daemon):
    for line in itertools.count():
        run = start(daemon, patience_s=1.5)  # a third of it is waited for when the end was missed
        frames = Frames(run)
        frames.put()
        with Interruption(frames.close, line) as interruption:
            frames.close()
        assert interruption.error is None
        if interruption.lines <= line:
            break
        daemon.frames.clear()


@pytest.mark.parametrize("inner", [*METHODS, "close"])
def test_a_put_that_waits_for_room_refuses_or_answers(daemon, inner):
    daemon.behavior.publish = False
    errors: list[BaseException | None] = []
    with start(daemon) as run:
        frames = Frames(run)
        frames.put_large()
        daemon.wait_for(lambda: daemon.next == 1)
        condition = run._state.condition
        wait = condition.wait

        def wait_interrupted(timeout: float | None = None) -> bool:
            if threading.current_thread() is threading.main_thread() and not errors:
                try:
                    getattr(frames, inner)()
                    errors.append(None)
                except ProtocolError as error:
                    errors.append(error)
                daemon.behavior.publish = True
                daemon.acknowledge(received=1, published=1, durable=1)
            return wait(timeout)

        condition.wait = wait_interrupted
        frames.put_large()
        frames.put_large()
    frames.check(daemon)
    assert (errors[0] is not None) == (inner in ("put", "reserve", "skip", "close"))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that interrupt here")
def test_a_signal_handler_that_puts(daemon):
    taken, refused = 0, 0
    with start(daemon) as run:
        frames = Frames(run)

        def handle(_number: int, _frame: FrameType | None) -> None:
            nonlocal taken, refused
            try:
                assert run.progress.sent >= 0
                frames.put()
                taken += 1
            except ProtocolError:
                refused += 1

        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            while not (taken > 20 and refused > 20):
                frames.put_large()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    frames.check(daemon)


class Interrupt:
    """Raises KeyboardInterrupt where a signal handler could: when the n-th function of the client begins, or a function
    in C that it has called returns."""

    def __init__(self, position: int) -> None:
        self.positions = 0
        self._position = position

    def __enter__(self) -> Interrupt:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(TRACED):
            return
        self.positions += 1
        if self.positions == self._position + 1:
            sys.setprofile(None)
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", [*METHODS, "put_large"])
def test_an_interrupt_anywhere_leaves_the_run_usable_or_ended(daemon, method):
    ended = 0
    for position in itertools.count():
        daemon.frames.clear()
        daemon.skips.clear()
        run = start(daemon)
        frames = Frames(run)
        frames.put()
        interrupted, number = False, run.next
        try:
            with Interrupt(position):
                getattr(frames, method)()
        except KeyboardInterrupt:
            interrupted = True
        if interrupted and run.next > number and method != "skip":
            frames.taken.append(frames.taken[-1] + 1)  # it was taken just before
        try:
            frames.put()
        except AcquisitionFailed as error:
            assert "interrupted in the middle of a put" in str(error)  # noqa: PT017 - it need not come
            ended += 1
            run._connection.stop()  # not to wait for the patience
            with pytest.raises(AcquisitionFailed):
                run.close("error")
            continue
        assert run.close().status == "completed"
        frames.check(daemon)
        if not interrupted:
            break
    assert ended <= position / 2
