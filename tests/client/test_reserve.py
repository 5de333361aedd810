"""Frames that a camera writes into the local buffer itself."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from acqstream.client.producer import create
from acqstream.errors import AcquisitionFailed, FrameRefused, ProtocolError, WriterBehind
from tests.waiting import WAIT_S

SHAPE = (2, 3)
GRAY = np.arange(6, dtype="<u2").reshape(SHAPE)


def start(daemon, **arguments):
    return create("cells", **{"endpoint": daemon.endpoint, "buffer_mb": 1, "patience_s": 5.0, **arguments})


def frames_of(daemon):
    return [daemon.frames[number] for number in sorted(daemon.frames)]


def stored(daemon) -> list[np.ndarray]:
    return [
        np.frombuffer(pixels, one.header.pixel_type.dtype).reshape(one.header.shape)
        for one, pixels in frames_of(daemon)
    ]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 3), (400, 700)])
def test_what_was_filled_in_arrives(daemon, shape):
    expected = np.arange(np.prod(shape)).astype("u1").reshape(shape)
    with start(daemon) as run:
        run.put(GRAY, time=0)
        with run.reserve(shape, "uint8", {"time": 1}, meta={"a": 1}, time_ns=7) as image:
            assert (image.shape, image.dtype, image.flags.writeable) == (shape, np.uint8, True)
            assert run.next == 1
            image[:] = expected
        assert run.next == 2
        assert not image.flags.writeable
        run.put(GRAY, time=2)
    before, middle, after = stored(daemon)
    np.testing.assert_array_equal(middle, expected)
    np.testing.assert_array_equal(before, GRAY)
    np.testing.assert_array_equal(after, GRAY)
    header = daemon.frames[1][0].header
    assert (header.axes, header.time_ns) == ({"time": 1}, 7)
    assert b'"a":1' in header.metadata.replace(b" ", b"")


def test_a_block_left_by_an_exception_takes_nothing(daemon):
    with start(daemon) as run:
        with pytest.raises(ZeroDivisionError), run.reserve(SHAPE, "uint16", time=0) as image:
            image[:] = 1
            raise ZeroDivisionError
        assert run.next == 0
        with run.reserve(SHAPE, "uint16", time=0) as image:
            image[:] = GRAY
    (only,) = stored(daemon)
    np.testing.assert_array_equal(only, GRAY)


@pytest.mark.parametrize(
    "arguments",
    [
        ((2,), "uint8"),
        (SHAPE, "float32"),
        (SHAPE, ">u2"),
        (SHAPE, "nonsense"),
        ((2, 3, 3), "uint16"),
        ((0, 3), "uint8"),
    ],
)
def test_what_is_no_image_is_refused(daemon, arguments):
    with start(daemon) as run:
        with pytest.raises(FrameRefused) as caught, run.reserve(*arguments, time=0):
            pass
        assert (caught.value.code, run.next) == ("dtype_unsupported", 0)
        with pytest.raises(FrameRefused, match="buffer"), run.reserve((2000, 2000), "uint16", time=0):
            pass
        run.put(GRAY, time=0)


def test_other_threads_wait_and_this_one_is_told(daemon):
    with start(daemon) as run:
        with run.reserve(SHAPE, "uint16", time=0) as image:
            others = [threading.Thread(target=run.put, args=(GRAY + number, {"time": number})) for number in (1, 2)]
            for other in others:
                other.start()
            with pytest.raises(ProtocolError, match="leave its `reserve` block first"):
                run.put(GRAY, time=9)
            with pytest.raises(ProtocolError, match="leave its `reserve` block first"):
                run.skip(1, reason="test")
            with pytest.raises(ProtocolError, match="leave"), run.reserve(SHAPE, "uint16", time=9):
                pass
            assert run.next == 0
            image[:] = GRAY
        for other in others:
            other.join(WAIT_S)
    times = [one.header.axes["time"] for one, _ in frames_of(daemon)]
    assert times[0] == 0
    assert sorted(times) == [0, 1, 2]


def test_an_interrupt_on_the_way_into_the_block_lets_the_place_go(daemon, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    with start(daemon) as run:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("acqstream.client.frame_buffer.np", SimpleNamespace(ndarray=interrupted))  # the place is held
            with run.reserve(SHAPE, "uint16", time=0):
                pytest.fail("the block was entered")
        with run.reserve(SHAPE, "uint16", time=0) as image:
            image[:] = GRAY
        run.put(GRAY, time=1)
    assert len(stored(daemon)) == 2


def test_who_cannot_have_a_place_leaves_that_of_another_thread(daemon):
    with start(daemon) as run:
        errors = []

        def reserve_too_much() -> None:
            try:
                with run.reserve((4000, 4000), "uint16", time=1):
                    pass
            except FrameRefused as error:
                errors.append(error)

        with run.reserve(SHAPE, "uint16", time=0) as image:
            other = threading.Thread(target=reserve_too_much)
            other.start()
            other.join()
            assert len(errors) == 1
            with pytest.raises(ProtocolError, match="a frame is being filled"):
                run.put(GRAY, time=2)
            image[:] = GRAY
    assert len(stored(daemon)) == 1


def test_who_waits_for_a_camera_that_hangs_is_told(daemon):
    seen = []

    def put() -> None:
        try:
            run.put(GRAY, time=1)
        except WriterBehind as error:
            seen.append(str(error))

    with start(daemon, patience_s=0.3) as run, run.reserve(SHAPE, "uint16", time=0) as image:
        other = threading.Thread(target=put)
        other.start()
        other.join(WAIT_S)
        image[:] = GRAY
    assert "a reserved frame is being filled" in seen[0]


def test_a_run_closed_meanwhile(daemon):
    run = start(daemon)
    with pytest.raises(AcquisitionFailed, match="closed"), run.reserve(SHAPE, "uint16", time=0) as image:
        image[:] = GRAY
        closing = threading.Thread(target=run.close)
        closing.start()
        closing.join(WAIT_S)
        assert not closing.is_alive()
        image[:] = GRAY  # its memory is still there
    assert run.receipt is not None
    assert run.receipt.stored == 0


def test_it_waits_for_room(daemon):
    daemon.behavior.publish = False
    with start(daemon, buffer_mb=0.5) as run:
        with run.reserve((400, 500), "uint16", time=0) as image:
            image[:] = 1

        def fill() -> None:
            with run.reserve((400, 500), "uint16", time=1) as image:
                image[:] = 2

        other = threading.Thread(target=fill)
        other.start()
        daemon.wait_for(lambda: daemon.next == 1)
        assert run.next == 1
        daemon.behavior.publish = True
        daemon.acknowledge(received=1, published=1, durable=1)
        other.join(WAIT_S)
        assert run.next == 2
    assert [int(pixels[0, 0]) for pixels in stored(daemon)] == [1, 2]
