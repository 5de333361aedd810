"""Many frames of one kind in one call: what arrives is what as many calls of `put` and `reserve` would have sent."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from acqstream.client.outbox import BATCHED_FRAME_BYTES, LARGE_FRAME_BYTES, PAGE_BYTES
from acqstream.client.producer import create
from acqstream.client.run import Run
from acqstream.errors import ConfigError, FrameRefused, ProtocolError, WriterBehind
from tests.client.fake_daemon import FakeDaemon
from tests.waiting import WAIT_S

SHAPE = (4, 6)


def start(daemon: FakeDaemon, **arguments: Any) -> Run:
    return create("cells", **{"endpoint": daemon.endpoint, "buffer_mb": 1, "patience_s": 5.0, **arguments})


def stack(count: int, shape: tuple[int, ...] = SHAPE, dtype: str = "<u2") -> np.ndarray[Any, Any]:
    pixels = np.arange(count * int(np.prod(shape)), dtype="u4") * 7919
    return pixels.astype(dtype).reshape(count, *shape)


def arrived(daemon: FakeDaemon) -> list[Any]:
    """Header and pixels of every frame, by number."""
    return [(frame.header._replace(number=0), bytes(pixels)) for _, (frame, pixels) in sorted(daemon.frames.items())]


KINDS = [
    (300, SHAPE, "<u2"),
    (3, SHAPE, ">u2"),
    (5, SHAPE, "u1"),
    (5, (4, 6, 3), "u1"),
    (1, SHAPE, "<u2"),
    (40, (64, 512), "<u2"),  # several messages
    (3, (300, 500), "<u2"),  # each in a message of its own
]


@pytest.mark.parametrize(("count", "shape", "dtype"), KINDS)
def test_it_sends_what_as_many_puts_send(daemon: FakeDaemon, count: int, shape: tuple[int, ...], dtype: str) -> None:
    images = stack(count, shape, dtype)
    metas = [{"number": number, "text": "\xe4" * (number % 3)} for number in range(count)]
    times_ns = [10**18 + number for number in range(count)]
    with start(daemon) as run:
        run.put_many(images, {"time": range(count)}, channel="DAPI", meta=metas, time_ns=times_ns, bits=None)
        assert run.next == count
        for number, image in enumerate(images):
            run.put(image, time=number, channel="DAPI", meta=metas[number], time_ns=times_ns[number])
    frames = arrived(daemon)
    assert len(frames) == 2 * count
    assert frames[:count] == frames[count:]


@pytest.mark.parametrize(
    "axes",
    [
        {"time": [3, 5, 4], "z": 1},
        {"time": np.arange(3, dtype=np.int16), "z": np.int64(1)},
        {"time": (0, 1, 2), "channel": ["a", "b", "a%s"]},
        {"time": [0, 1, 2], "channel": [0, "b", 2]},  # the daemon decides
        {"time": range(3, 0, -1), "z": np.array(7)},
    ],
)
def test_an_axis_is_one_value_for_all_or_one_for_each(daemon: FakeDaemon, axes: dict[str, Any]) -> None:
    with start(daemon) as run:
        run.put_many(stack(3), **axes)
    for number, (frame, _) in sorted(daemon.frames.items()):
        expected = {name: (value if np.ndim(value) == 0 else list(value)[number]) for name, value in axes.items()}
        assert dict(frame.header.axes) == expected


def test_metadata_and_times_may_be_shared(daemon: FakeDaemon) -> None:
    with start(daemon) as run:
        run.put_many(stack(2), time=[0, 1], meta={"exposure_ms": 10}, time_ns=5)
        run.put_many(stack(2), time=[2, 3], meta=[{"a": 1, "time_ns": 9}, {}], time_ns=[None, 6])
    headers = [frame.header for frame, _ in daemon.frames.values()]
    assert [header.time_ns for header in headers] == [5, 5, 9, 6]
    assert [b"exposure_ms" in header.metadata for header in headers] == [True, True, False, False]


def test_odd_metadata_are_named_with_their_frame(daemon: FakeDaemon) -> None:
    with start(daemon) as run:
        run.put(stack(1)[0], time=-1)
        run.put_many(stack(3), time=range(3), meta=[{}, {"gain": float("nan")}, {}])
        (warning,) = run.warnings
        assert "frame 2" in warning.text


def test_frames_before_a_bad_one_are_taken_and_it_is_named(daemon: FakeDaemon) -> None:
    with start(daemon) as run:
        run.put(stack(1)[0], time=-1)
        with pytest.raises(ProtocolError, match=r"frame 3: axis 'time': 2147483648 does not fit"):
            run.put_many(stack(4), time=[0, 1, 2**31, 3])
        assert run.next == 3
        with pytest.raises(ProtocolError, match=r"frame 4: time_ns=-1 "):
            run.put_many(stack(3), time=[2, 3, 4], time_ns=[1, -1, 2])
        assert run.next == 4
    assert [frame.header.axes["time"] for frame, _ in daemon.frames.values()] == [-1, 0, 1, 2]


@pytest.mark.parametrize(
    ("images", "arguments", "error", "text"),
    [
        (stack(3), {"time": [0, 1]}, ProtocolError, "axis 'time' has 2 values for 3 frames"),
        (stack(3), {"meta": [{}]}, ProtocolError, "meta has 1 values for 3 frames"),
        (stack(3), {"time_ns": [1] * 4}, ProtocolError, "time_ns has 4 values for 3 frames"),
        (stack(3), {"meta": "text"}, ProtocolError, "frame 0: metadata must be a mapping"),
        (stack(3), {"1": 2}, ProtocolError, "frame 0: axis name '1'"),
        (stack(1)[0], {}, FrameRefused, "must be \\(N, Y, X\\)"),
        ([stack(1)[0], stack(1, (2, 2))[0]], {}, FrameRefused, "frame 0"),
        (stack(3).astype("f4"), {}, FrameRefused, "float32|f4"),
        (np.zeros((2, 2, 2, 2), "u1"), {}, FrameRefused, "shape"),
        (np.ma.masked_equal(stack(3), 0), {}, FrameRefused, "masked"),
        (np.zeros((2, 0, 3), "u1"), {}, FrameRefused, "sides"),
    ],
)
def test_what_cannot_be_sent_takes_nothing(
    daemon: FakeDaemon, images: object, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with start(daemon) as run:
        with pytest.raises(error, match=text):
            run.put_many(images, **arguments)
        assert run.next == 0
        run.put_many(np.zeros((0, *SHAPE), "u1"), time=[])
        assert run.next == 0


@pytest.mark.parametrize("name", [None, True, 1, "a b"])
def test_axes_have_names(daemon: FakeDaemon, name: object) -> None:
    with start(daemon) as run:
        with pytest.raises(ProtocolError, match="frame 0: axis name"):
            run.put_many(stack(2), {name: [1, 2]})
        assert run.next == 0


def test_channel_names_become_numbers_for_micro_manager(daemon: FakeDaemon) -> None:
    with start(daemon, micromanager=True, summary={"ChNames": ["a", "b"]}) as run:
        run.put_many(stack(2), channel=["b", "a"])
        with pytest.raises(ConfigError, match="frame 3: channel 'c' is not in"):
            run.put_many(stack(2), channel=["a", "c"], time=1)
    assert [frame.header.axes["channel"] for frame, _ in daemon.frames.values()] == [1, 0, 0]


def test_too_large_metadata_cost_their_frame_and_those_after_it(daemon: FakeDaemon) -> None:
    metas: list[dict[str, Any]] = [{"a": 1}, {"b": 2}, {"text": "x" * 2**20}, {}]
    with start(daemon) as run:
        for first in (0, 2):
            with pytest.raises(FrameRefused, match="its metadata take") as caught:
                run.put_many(stack(4), time=range(first, first + 4), meta=metas)
            assert (caught.value.number, run.next) == (first + 2, first + 2)
        with pytest.raises(FrameRefused, match="frame 6: its metadata"), run.reserve_many(4, SHAPE, "u2", meta=metas):
            pytest.fail("the block was entered")
    assert [frame.header.axes["time"] for frame, _ in daemon.frames.values()] == [0, 1, 2, 3]


def test_more_than_the_buffer_holds_waits_for_the_daemon(daemon: FakeDaemon) -> None:
    images = stack(500, (64, 64))  # 4 MB through 1 MB
    with start(daemon) as run:
        run.put_many(images, time=range(500))
    assert [bytes(pixels) for _, pixels in daemon.frames.values()] == [image.tobytes() for image in images]


def test_a_daemon_that_stops_leaves_a_clear_number(daemon: FakeDaemon) -> None:
    daemon.behavior.publish = False
    with start(daemon, patience_s=0.5) as run:
        with pytest.raises(WriterBehind):
            run.put_many(stack(500, (64, 64)), time=range(500))
        assert 0 < run.next < 500
        daemon.acknowledge(received=run.next, published=run.next, durable=run.next)


def test_frames_of_other_threads_do_not_come_between(daemon: FakeDaemon) -> None:
    with start(daemon) as run:
        threads = [
            threading.Thread(target=run.put_many, args=(stack(200, (32, 64)),), kwargs={"time": range(200), "z": z})
            for z in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    axes = [frame.header.axes for _, (frame, _) in sorted(daemon.frames.items())]
    assert [one["time"] for one in axes] == [*range(200)] * 3
    assert all(len({one["z"] for one in axes[at : at + 200]}) == 1 for at in (0, 200, 400))


@pytest.mark.parametrize("shape", [SHAPE, (16, 8, 3), (300, 500)])
def test_a_camera_fills_many_places(daemon: FakeDaemon, shape: tuple[int, ...]) -> None:
    dtype = "u1" if len(shape) == 3 else "u2"
    images = stack(3, shape, dtype)
    with start(daemon, buffer_mb=4) as run:
        with run.reserve_many(3, shape, dtype, time=range(3), meta=[{"a": 1}, {}, {}]) as places:
            assert (places.shape, run.next) == ((3, *shape), 0)
            if images[0].nbytes >= LARGE_FRAME_BYTES:
                assert [place.ctypes.data % PAGE_BYTES for place in places] == [0] * 3
            places[:] = images
        assert not places.flags.writeable
        assert run.next == 3
        with pytest.raises(ZeroDivisionError), run.reserve_many(3, shape, dtype, time=range(3)):
            raise ZeroDivisionError
        run.put(images[0], time=3)
    assert [bytes(pixels) for _, pixels in daemon.frames.values()] == [one.tobytes() for one in (*images, images[0])]
    assert [frame.header.axes["time"] for frame, _ in daemon.frames.values()] == [0, 1, 2, 3]


def test_places_for_more_than_one_message_are_one_array(daemon: FakeDaemon) -> None:
    images = stack(300, (128, 256), "u1")
    assert images[0].nbytes <= BATCHED_FRAME_BYTES
    with start(daemon, buffer_mb=16) as run, run.reserve_many(300, (128, 256), "u1", time=range(300)) as places:
        places[:] = images
    assert [bytes(pixels) for _, pixels in daemon.frames.values()] == [one.tobytes() for one in images]


@pytest.mark.parametrize(
    ("count", "shape", "arguments", "error", "text"),
    [
        (1000, (64, 64), {}, FrameRefused, "buffer_mb"),
        (3, (300, 500), {"time": [1, 2, 2**31]}, ProtocolError, "frame 2: axis 'time'"),
        (0, SHAPE, {}, ProtocolError, "count 0 must be"),
        (True, SHAPE, {}, ProtocolError, "count True must be"),
        (2, SHAPE, {"time": [1]}, ProtocolError, "1 values for 2 frames"),
    ],
)
def test_places_that_cannot_be_are_refused(
    daemon: FakeDaemon, count: int, shape: tuple[int, ...], arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with start(daemon) as run:
        with pytest.raises(error, match=text), run.reserve_many(count, shape, "u2", **arguments):
            pytest.fail("the block was entered")
        run.put(stack(1)[0], time=0)
        assert run.next == 1
