"""A run against a daemon that answers: frames, order, bounds, errors, the end."""

from __future__ import annotations

import enum
import errno
import threading
from dataclasses import replace

import numpy as np
import pytest
import xxhash

from acqstream.client.images import copy_pixels
from acqstream.client.producer import create
from acqstream.errors import (
    AcquisitionFailed,
    AcquisitionRefused,
    ConfigError,
    DaemonUnavailable,
    DatasetExists,
    DiskFull,
    FrameRefused,
    ProtocolError,
    StorageError,
    WriterBehind,
)
from acqstream.model.receipt import MissingFrames
from acqstream.model.state import Limit
from acqstream.model.status import AcquisitionStatus
from acqstream.protocol.replies import Closed, Error, StatusReply, Warn
from tests.waiting import WAIT_S

GRAY = np.arange(6, dtype="<u2").reshape(2, 3)


def start(daemon, **arguments):
    return create("cells", **{"endpoint": daemon.endpoint, "buffer_mb": 1, "patience_s": 5.0, **arguments})


def stored(daemon, number: int = 0) -> np.ndarray:
    frame, pixels = daemon.frames[number]
    return np.frombuffer(pixels, frame.header.pixel_type.dtype).reshape(frame.header.shape)


IMAGES = {
    "uint8": GRAY.astype("u1"),
    "uint16": GRAY,
    "big-endian": GRAY.astype(">u2"),
    "fortran": np.asfortranarray(GRAY),
    "strided": np.arange(24, dtype="u2").reshape(4, 6)[::2, ::2],
    "read-only": np.frombuffer(GRAY.tobytes(), "<u2").reshape(2, 3),
    "rgb": np.arange(18, dtype="u1").reshape(2, 3, 3),
    "planar rgb": np.arange(18, dtype="u1").reshape(3, 2, 3).transpose(1, 2, 0),
    "large": np.arange(300 * 400, dtype="u4").astype("u2").reshape(300, 400),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_pixels_arrive_as_they_are(daemon, kind):
    with start(daemon) as run:
        run.put(IMAGES[kind], time=0)
    np.testing.assert_array_equal(stored(daemon), IMAGES[kind])


def test_anything_with_an_array_interface_is_an_image(daemon):
    class Image:
        __array_interface__ = GRAY.__array_interface__

    with start(daemon) as run:
        run.put(Image())
    np.testing.assert_array_equal(stored(daemon), GRAY)


def test_the_array_may_be_reused_at_once(daemon):
    image = np.zeros((200, 300), "u2")
    with start(daemon) as run:
        for number in range(20):
            image[:] = number
            run.put(image, time=number)
        image[:] = 99
    assert [int(stored(daemon, n).max()) for n in range(20)] == list(range(20))


def test_axes_metadata_bits_and_time_arrive(daemon):
    class Axis(str, enum.Enum):
        Z = "z"

    with start(daemon, summary={"name": "x", "scale": np.float32(0.5)}) as run:
        run.put(GRAY, {Axis.Z: np.int32(4)}, channel="DAPI", meta={"a": np.uint8(1)}, bits=12, time_ns=1_790_000_000)
    header = daemon.frames[0][0].header
    assert header.axes == {"z": 4, "channel": "DAPI"}
    assert header.metadata == b'{"a":1,"time_ns":1790000000,"Axes":{"z":4,"channel":"DAPI"}}'
    assert header.metadata_checksum == xxhash.xxh3_64_intdigest(header.metadata)
    assert (header.pixel_type.bits, header.time_ns) == (12, 1_790_000_000)
    assert daemon.requests[1].spec.summary == {"name": "x", "scale": 0.5}


def test_hints_and_choices_reach_the_daemon(daemon):
    hints = {"expect": np.int64(5), "frame": GRAY, "axes": ["time"], "durability": "batch"}
    with start(daemon, **hints, duplicates="replace", on_exists="number"):
        pass
    spec = daemon.requests[1].spec
    assert (spec.expect, spec.frame_bytes, spec.axes[0].name, spec.durability) == (5, 12, "time", "batch")
    assert (spec.replace_duplicates, spec.number_if_taken, spec.resume) == (True, True, False)


def test_the_receipt_and_the_progress(daemon):
    with start(daemon) as run:
        assert run.receipt is None
        assert (run.name, run.path, run.next) == ("cells", "/data/cells", 0)
        run.put(GRAY, time=0)
        run.skip(2, reason="camera timeout")
        run.put(GRAY, time=3)
        assert run.next == 4
        daemon.wait_for(lambda: daemon.next == 4)
    assert run.receipt is not None
    assert (run.receipt.sent, run.receipt.stored, run.receipt.skipped) == (4, 2, 2)
    progress = run.progress
    assert (progress.sent, progress.received, progress.published, progress.durable) == (4, 4, 4, 4)
    assert progress.behind_bytes == 0
    assert run.close() is run.receipt  # repeating it changes nothing
    assert (daemon.skips[0].number, daemon.skips[0].reason) == (1, "camera timeout")


def test_many_frames_through_a_small_buffer(daemon):
    frame = np.zeros((256, 256), "u2")  # 131 kB: eight of them fill the buffer
    with start(daemon) as run:
        for number in range(60):
            frame[:] = number
            run.put(frame, time=number)
    assert [int(stored(daemon, n)[0, 0]) for n in range(60)] == list(range(60))


def test_puts_from_several_threads_are_taken_one_after_the_other(daemon):
    with start(daemon) as run:
        threads = [
            threading.Thread(target=lambda first=first: [run.put(GRAY, time=first + i) for i in range(50)])
            for first in (0, 100, 200)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(daemon.frames) == list(range(150))


def test_a_put_waits_while_another_thread_copies_its_pixels(daemon, monkeypatch):
    """The second put begins while the first has a place and no number: without the lock both get the same."""
    second_begun, copies = threading.Event(), []
    second = threading.Thread(target=lambda: run.put(GRAY + 1, time=1))

    class Order:
        """The run's lock, which tells when the second thread comes to it."""

        def __init__(self, lock) -> None:
            self._lock = lock

        def __enter__(self) -> None:
            if threading.current_thread() is second:
                second_begun.set()
            self._lock.acquire()

        def __exit__(self, *_) -> None:
            self._lock.release()

    def copy_slowly(*arguments) -> int:
        checksum = copy_pixels(*arguments)
        copies.append(threading.current_thread())
        if threading.current_thread() is second:
            second_begun.set()
        else:
            second.start()
            assert second_begun.wait(60)
            if second in copies:  # it did not wait: let it finish first
                second.join(60)
        return checksum

    monkeypatch.setattr("acqstream.client.frame_buffer.copy_pixels", copy_slowly)
    with start(daemon) as run:
        run._buffer.order = Order(run._buffer.order)
        run.put(GRAY, time=0)
        second.join(60)
        assert run.next == 2
    assert copies == [threading.current_thread(), second]
    assert [daemon.frames[number][0].header.axes for number in (0, 1)] == [{"time": 0}, {"time": 1}]
    np.testing.assert_array_equal(stored(daemon, 0), GRAY)
    np.testing.assert_array_equal(stored(daemon, 1), GRAY + 1)


def test_patches_come_before_the_first_frame(daemon):
    with start(daemon) as run:
        run.patch(summary={"late": 1})
        run.put(GRAY)
        run.patch(display={"lut": "green"})
        with pytest.raises(ProtocolError, match="before frame 0"):
            run.patch(summary={"late": 2})
    kinds = [type(request).__name__ for request in daemon.requests]
    assert kinds.index("Patch") < kinds.index("Frame")
    assert [(p.summary, p.display) for p in daemon.patches] == [({"late": 1}, None), (None, {"lut": "green"})]


def test_micromanager_axes(daemon):
    with start(daemon, micromanager=True, summary={"ChNames": ["DAPI", "FITC"]}) as run:
        run.put(GRAY, channel="FITC", time=0)
        with pytest.raises(ConfigError, match="Cy5"):
            run.put(GRAY, channel="Cy5", time=0)
    assert daemon.frames[0][0].header.axes == {"channel": 1, "time": 0}


# --- refused by the client: the run goes on ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "arguments", "error", "text"),
    [
        (GRAY.astype("f4"), {}, FrameRefused, "convert the image"),
        (GRAY > 2, {}, FrameRefused, "convert the image"),
        (GRAY.astype("i1"), {}, FrameRefused, "convert the image"),
        (np.zeros((2, 2, 2, 2), "u1"), {}, FrameRefused, "must be"),
        (np.zeros((0, 3), "u1"), {}, FrameRefused, "sides"),
        (GRAY, {"bits": 9}, FrameRefused, "9 significant bits"),
        (GRAY, {"z": 1.5}, ProtocolError, "'z'"),
        (GRAY, {"meta": {"a": np.zeros(2**21)}}, ProtocolError, r"\['a'\].*limit"),
        (GRAY, {"meta": {"a": "x" * 2**20}}, FrameRefused, "at most 1040384"),
        *((GRAY, {"time_ns": time}, ProtocolError, "time_ns") for time in (2**63, 1.5)),
        (np.zeros((1000, 1004), "u1"), {}, FrameRefused, "raise buffer_mb"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_the_run_goes_on(daemon, image, arguments, error, text):
    with start(daemon) as run:
        with pytest.raises(error, match=text):
            run.put(image, **arguments)
        assert run.next == 0
        run.put(GRAY, time=0)
    assert run.receipt is not None
    assert run.receipt.stored == 1


def test_frames_beyond_the_daemons_window_are_refused(daemon):
    daemon.behavior.window_bytes = 11
    with start(daemon) as run:
        with pytest.raises(FrameRefused, match="memory budget"):
            run.put(GRAY)


def test_nan_in_metadata_is_reported_once(daemon):
    with start(daemon) as run:
        for number in range(3):
            run.put(GRAY, time=number, meta={"a": float("nan")})
        assert [warning.code for warning in run.warnings] == ["nan_in_metadata"]
    assert daemon.frames[0][0].header.metadata == b'{"a":null,"Axes":{"time":0}}'


@pytest.mark.parametrize(
    "arguments",
    [
        {"buffer_mb": 0},
        {"patience_s": -1},
        {"patience_s": float("nan")},
        {"transport": "udp"},
        {"endpoint": "nonsense"},
    ],
)
def test_arguments_that_cannot_work(daemon, arguments):
    with pytest.raises(ConfigError):
        start(daemon, **arguments)


# --- refused by the daemon --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("name_taken", DatasetExists),
        ("name_taken", FileExistsError),
        ("disk_full", DiskFull),
        ("unsupported", AcquisitionRefused),
        ("bad_name", AcquisitionRefused),
    ],
)
def test_open_is_refused(daemon, code, error):
    daemon.behavior.open_error = Error(code, "because of that")
    with pytest.raises(error, match="because of that") as caught:
        start(daemon)
    assert caught.value.code == code


def test_no_daemon():
    with pytest.raises(DaemonUnavailable, match=r"tcp://127\.0\.0\.1:9; start one with: acqstream serve --data DIR"):
        create("x", endpoint="tcp://127.0.0.1:9", patience_s=0.15, buffer_mb=1)


def test_a_daemon_that_does_not_answer(daemon):
    daemon.behavior.silent = True
    with pytest.raises(DaemonUnavailable):
        start(daemon, patience_s=0.15)


def test_a_daemon_that_is_slow_to_open_is_not_said_to_be_away(daemon):
    daemon.behavior.answer_open = False
    with pytest.raises(DaemonUnavailable, match=r"has not opened 'cells' within 1 s") as caught:
        start(daemon, patience_s=1.0)
    assert "start one" not in str(caught.value)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_the_window_is_never_exceeded_and_opens_again(daemon):
    daemon.behavior.limit = Limit(2, 10**9)  # the fake asserts on it
    with start(daemon) as run:
        for number in range(5):
            run.put(GRAY, time=number)  # the local buffer takes them
        daemon.wait_for(lambda: daemon.next == 2)
        daemon.behavior.limit = Limit(10**6, 10**9)
        daemon.acknowledge(received=2, published=2, durable=2)
        daemon.wait_for(lambda: daemon.next == 5)


def test_a_full_buffer_is_behind_after_the_patience_and_the_run_goes_on(daemon):
    daemon.behavior.publish = False
    with start(daemon, patience_s=1.0) as run:
        daemon.say(
            StatusReply(AcquisitionStatus(dataset_id=daemon.dataset_id, state="PAUSED", free_bytes=5_000_000_000))
        )
        with run._state.condition:
            assert run._state.condition.wait_for(lambda: "PAUSED" in run._buffer.describe_backlog(""), WAIT_S)
        image = np.zeros((600, 1000), "u1")
        run.put(image, time=0)
        with pytest.raises(WriterBehind, match=r"nothing became published for 1 s.*0.6 of 1.0 MB.*PAUSED; 5.0 GB"):
            run.put(image, time=1)
        daemon.behavior.publish = True
        daemon.acknowledge(received=1, published=1, durable=0)
        run.put(image, time=1)
    assert sorted(daemon.frames) == [0, 1]


@pytest.mark.parametrize(("boot", "released"), [(None, True), ("another machine", False)])
def test_frames_are_held_until_durable_on_another_machine(daemon, boot, released):
    if boot is not None:
        daemon.behavior.boot = boot
    daemon.behavior.durable = False
    with start(daemon) as run:
        run.put(GRAY, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        with run._state.condition:
            run._state.condition.wait_for(lambda: run._state.cursors.published == 1)
        assert run.progress.behind_bytes == (0 if released else GRAY.nbytes)


# --- errors while running ---------------------------------------------------------------------------------------------


def fatal(code: str, number: int | None = None) -> Error:
    return Error(code, "it broke", number=number, fatal=True)


@pytest.mark.parametrize(
    ("code", "number", "error"),
    [
        ("disk_full", None, DiskFull),
        ("io_error", 3, StorageError),
        ("duplicate_axes", 3, FrameRefused),
        ("internal", None, AcquisitionFailed),
    ],
)
def test_an_error_of_the_daemon_ends_the_run(daemon, code, number, error):
    seen, reported = [], threading.Event()

    def on_error(problem):
        seen.append(problem)
        reported.set()

    run = start(daemon, on_error=on_error)
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    daemon.say(fatal(code, number))
    assert reported.wait(WAIT_S)
    caught = []
    for _ in range(3):
        with pytest.raises(error, match="it broke") as info:
            run.put(GRAY, time=1)
        caught.append(info.value)
    assert seen == caught[:1]
    assert caught[0] is caught[1] is caught[2]
    assert caught[0].code == code
    assert caught[0].number == number
    daemon.say(Closed(replace(daemon._receipt(daemon_close(daemon)), status="failed")))
    with pytest.raises(error) as info:
        run.close()
    assert info.value is caught[0]
    assert run.receipt is not None
    assert run.receipt.status == "failed"


def daemon_close(daemon):
    from acqstream.protocol.requests import Close

    return Close(daemon.dataset_id, daemon.next, "error", "")


def test_disk_full_carries_its_errno(daemon):
    run = start(daemon, patience_s=1.0)
    daemon.say(fatal("disk_full"))
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.failure is not None, WAIT_S)
    with pytest.raises(OSError, match="it broke") as info:
        run.close()
    assert info.value.errno == errno.ENOSPC


def test_an_error_wakes_a_put_that_waits(daemon):
    daemon.behavior.publish = False
    run = start(daemon)
    image = np.zeros((600, 1000), "u1")
    run.put(image, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    threading.Timer(0.02, lambda: daemon.say(fatal("io_error"))).start()
    with pytest.raises(StorageError, match="it broke"):
        run.put(image, time=1)
    daemon.say(Closed(replace(daemon._receipt(daemon_close(daemon)), status="failed")))
    with pytest.raises(StorageError):
        run.close()


def test_an_error_in_on_error_is_noted(daemon):
    called = threading.Event()

    def on_error(problem):
        called.set()
        raise ValueError("of the callback")

    run = start(daemon, on_error=on_error, patience_s=1.0)
    daemon.say(fatal("internal"))
    assert called.wait(WAIT_S)
    with pytest.raises(AcquisitionFailed) as info:
        run.close()
    assert "of the callback" in info.value.__notes__[0]


def test_closing_in_on_error_does_not_wait_for_itself(daemon):
    seen = []
    reported = threading.Event()

    def on_error(problem):
        try:
            run.close("error")
        except AcquisitionFailed as error:
            seen.append(error)
        reported.set()

    run = start(daemon, on_error=on_error, patience_s=1.0)
    daemon.say(fatal("internal"))
    assert reported.wait(WAIT_S)
    with pytest.raises(AcquisitionFailed) as info:
        run.close()
    assert seen == [info.value]


def test_a_message_that_breaks_the_protocol_ends_the_run(daemon):
    run = start(daemon)

    class Nonsense:
        def fields(self):
            return {"t": "ack", "ds": 7}

    daemon.say(Nonsense())
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.ended, WAIT_S)
    with pytest.raises(ProtocolError, match="'ack'"):
        run.put(GRAY)
    with pytest.raises(ProtocolError):
        run.close()


def test_any_other_error_in_the_thread_reaches_the_caller(daemon, monkeypatch):
    run = start(daemon)
    monkeypatch.setattr(run._state, "receive", lambda *_: 1 / 0)
    daemon.acknowledge(received=0, published=0, durable=0)
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.ended, WAIT_S)
    with pytest.raises(AcquisitionFailed, match="ZeroDivisionError"):
        run.put(GRAY)
    with pytest.raises(AcquisitionFailed, match="ZeroDivisionError"):
        run.close()


def test_a_run_says_how_far_it_is(daemon):
    with start(daemon) as run:
        run.put(GRAY, time=0)
        with run._state.condition:  # also while others hold its lock, as in a debugger
            run._state.condition.wait_for(lambda: run._state.cursors.published == 1, WAIT_S)
            assert repr(run) == "<Run 'cells', 1 frame put, 1 published, running>"
    assert repr(run) == "<Run 'cells', 1 frame put, 1 published, completed>"
    run = start(daemon)
    daemon.say(fatal("internal"), Closed(replace(daemon._receipt(daemon_close(daemon)), status="failed")))
    with pytest.raises(AcquisitionFailed):
        run.close()
    assert repr(run).endswith(", failed: AcquisitionFailed>")


def test_warnings_are_kept(daemon):
    with start(daemon) as run:
        daemon.say(Warn(daemon.dataset_id, "disk_low", "2 GB left"), Error("bad_header", "odd patch"))
        with run._state.condition:
            assert run._state.condition.wait_for(lambda: len(run._state.report.warnings) == 2, WAIT_S)
        assert [(w.code, w.text) for w in run.warnings] == [("disk_low", "2 GB left"), ("bad_header", "odd patch")]
        assert run.warnings[0].time > 1.6e9


# --- the end ----------------------------------------------------------------------------------------------------------


def test_frames_that_are_missing_without_a_skip_are_an_error(daemon):
    daemon.behavior.receipt = lambda receipt: replace(
        receipt, stored=1, missing=(MissingFrames(1, 1, "checksum differs"),)
    )
    run = start(daemon)
    run.put(GRAY, time=0)
    run.put(GRAY, time=1)
    for _ in range(2):
        with pytest.raises(AcquisitionFailed, match=r"1 of 2 frames are missing: 1 \(checksum differs\)"):
            run.close()
    assert run.receipt is not None


def test_an_exception_closes_as_an_error_and_is_not_masked(daemon):
    with pytest.raises(KeyError) as info, start(daemon) as run:
        run.put(GRAY, time=0)
        raise KeyError("mine")
    assert not hasattr(info.value, "__notes__")
    assert run.receipt is not None
    assert (run.receipt.status, run.receipt.reason, run.receipt.stored) == ("error", "KeyError: 'mine'", 1)


def test_errors_while_closing_become_a_note(daemon):
    daemon.behavior.answer_close = False
    with pytest.raises(KeyError) as info, start(daemon, patience_s=1.0) as run:
        run.put(GRAY, time=0)
        daemon.wait_for(lambda: daemon.next == 1)
        raise KeyError("mine")
    assert "closing the run 'cells' failed too: nothing became published" in info.value.__notes__[0]


def test_half_a_character_in_a_reason_hinders_nothing(daemon):
    name = b"M\xfcller.csv".decode("utf-8", "surrogateescape")  # as the system's calls return such names
    with pytest.raises(FileNotFoundError), start(daemon) as run:
        run.skip(1, reason=f"no {name}")
        raise FileNotFoundError(2, "No such file", name)
    assert daemon.skips[0].reason == "no M?ller.csv"
    assert run.receipt is not None
    assert "M?ller" in run.receipt.reason or "udcfc" in run.receipt.reason


def test_canceling(daemon):
    run = start(daemon)
    run.put(GRAY, time=0)
    receipt = run.close("canceled", "by hand")
    assert (receipt.status, receipt.reason) == ("canceled", "by hand")
    with pytest.raises(AcquisitionFailed, match="is closed"):
        run.put(GRAY, time=1)


def test_a_wrong_status_is_refused_and_closes_nothing(daemon):
    with start(daemon) as run:
        with pytest.raises(ConfigError, match="completed"):
            run.close("done")
        run.put(GRAY)


def test_an_operator_ends_the_run(daemon):
    run = start(daemon)
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: daemon.next == 1)
    daemon.say(Closed(replace(daemon._receipt(daemon_close(daemon)), status="canceled", reason="stopped by ann")))
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.ended, WAIT_S)
    with pytest.raises(AcquisitionFailed, match="ended the acquisition as canceled: stopped by ann"):
        run.put(GRAY, time=1)
    with pytest.raises(AcquisitionFailed, match="stopped by ann"):
        run.close()
    assert run.receipt is not None


def test_errors_do_not_grow_when_raised_again(daemon):
    run = start(daemon, patience_s=1.0)
    daemon.say(fatal("internal"))
    with run._state.condition:
        assert run._state.condition.wait_for(lambda: run._state.failure is not None, WAIT_S)
    lengths = set()
    for _ in range(5):
        with pytest.raises(AcquisitionFailed) as info:
            run.put(GRAY)
        lengths.add(len(info.traceback))
    assert len(lengths) == 1
    with pytest.raises(AcquisitionFailed):
        run.close()
