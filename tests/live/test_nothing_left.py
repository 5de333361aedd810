"""Nothing is left behind on the machine, whichever way a run, its producer or its daemon ends."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import acqstream
from acqstream.client.run import Run
from acqstream.client.stopping import stop_acquisition
from acqstream.errors import AcqStreamError
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of, state_of, until

SHAPE = (400, 401)
PATIENCE_S = 0.5


def traces(*pids: int) -> Counter[str]:
    """What processes hold: open files by kind, mapped memory files, threads, child processes."""
    found: Counter[str] = Counter()
    for number, pid in enumerate(pids):
        process = psutil.Process(pid)
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found[f"{number}: {os.readlink(f'/proc/{pid}/fd/{name}').partition(':')[0]}"] += 1
            except FileNotFoundError:
                continue  # that of the listing
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="ascii", errors="replace")
        found[f"{number}: mapped"] = maps.count("memfd:acqstream-producer")
        found[f"{number}: threads"] = process.num_threads()
        found[f"{number}: children"] = len(process.children())
    return found


def places(daemon: DaemonProcess) -> Counter[str]:
    """Names in shared memory and in the daemon's runtime directory."""
    return Counter([*os.listdir("/dev/shm"), *(path.name for path in daemon.runtime.iterdir())])


def mapped(daemon: DaemonProcess) -> int:
    return traces(daemon.pid)["0: mapped"]


def check_no_more(what: Callable[[], Counter[str]], before: Counter[str]) -> None:
    """Wait until there is nothing that was not there before."""
    try:
        until(lambda: not what() - before, "nothing is left")
    except AssertionError as error:
        raise AssertionError(f"left: {what() - before}") from error


def close(run: Run, daemon: DaemonProcess) -> None:
    run.close()


def cancel(run: Run, daemon: DaemonProcess) -> None:
    run.close("canceled")


def fail_inside(run: Run, daemon: DaemonProcess) -> None:
    with pytest.raises(ZeroDivisionError), run:
        raise ZeroDivisionError


def fail_while_a_place_is_held(run: Run, daemon: DaemonProcess) -> None:
    with pytest.raises(ZeroDivisionError), run, run.reserve(SHAPE, "uint16", time=7) as image:
        image[:] = 1
        raise ZeroDivisionError


def be_refused_a_frame(run: Run, daemon: DaemonProcess) -> None:
    run.put(image_of(0, SHAPE), time=0)
    with pytest.raises(AcqStreamError, match="stored already"):
        run.close()


def be_refused_a_run(run: Run, daemon: DaemonProcess) -> None:
    transport: Any = run.transport
    with pytest.raises(FileExistsError):
        acqstream.create(run.name, endpoint=daemon.endpoint, transport=transport, buffer_mb=2)
    run.close()


def be_stopped(run: Run, daemon: DaemonProcess) -> None:
    stop_acquisition(run.name, daemon.endpoint)
    with pytest.raises(AcqStreamError):
        run.close()


def wait_in_vain(run: Run, daemon: DaemonProcess) -> None:
    """A daemon that is silent for longer than the patience, with slots in use."""
    daemon.pause()
    run.put(image_of(1, SHAPE), time=1)
    with pytest.raises(AcqStreamError):
        run.close()
    daemon.go_on()


ENDS = [
    close,
    cancel,
    fail_inside,
    fail_while_a_place_is_held,
    be_refused_a_frame,
    be_refused_a_run,
    be_stopped,
    wait_in_vain,
]


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_after_runs(tmp_path: Path, transport: Any) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=0.1) as daemon:

        def left() -> Counter[str]:
            return traces(os.getpid(), daemon.pid) + places(daemon)

        def end(number: int, how: Callable[[Run, DaemonProcess], None]) -> None:
            name = f"{how.__name__}-{number}"
            way: dict[str, Any] = {"endpoint": daemon.endpoint, "transport": transport}
            run = acqstream.create(name, **way, buffer_mb=2, patience_s=PATIENCE_S)
            assert run.transport == transport
            run.put(image_of(0, SHAPE), time=0)
            how(run, daemon)

        end(0, close)  # what is made once
        until(lambda: not mapped(daemon), "the first run is gone")
        before = left()
        for how in ENDS:
            for number in range(1, 3):
                end(number, how)
            check_no_more(left, before)


@pytest.mark.parametrize("transport", ["shm", "ipc"])
def test_after_a_killed_producer(tmp_path: Path, transport: str) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=0.1) as daemon:

        def left() -> Counter[str]:
            return traces(daemon.pid) + places(daemon)

        def kill_one(name: str) -> None:
            producer = programs.start(programs.PRODUCER, daemon.endpoint, name, "20", "wait", transport)
            try:
                path = programs.line_of(producer)
                assert programs.line_of(producer) == "20"
                assert mapped(daemon) == (transport == "shm")
            finally:
                programs.kill(producer)
            until(lambda: state_of(path)["state"] == "INTERRUPTED", "it is interrupted")

        kill_one("first")
        until(lambda: not mapped(daemon), "the first one is gone")
        before = left()
        kill_one("second")
        check_no_more(left, before)


@pytest.mark.parametrize(
    ("transport", "number"),
    [("shm", signal.SIGKILL), ("shm", signal.SIGTERM), ("tcp", signal.SIGKILL), ("ipc", signal.SIGTERM)],
)
def test_after_a_daemon_that_ended(tmp_path: Path, transport: Any, number: signal.Signals) -> None:
    """In the program whose runs it had, and of itself: another one comes for the first run, none for the second."""
    daemon = DaemonProcess(tmp_path / "data").start()
    way: dict[str, Any] = {"endpoint": daemon.endpoint, "transport": transport, "buffer_mb": 4}
    with acqstream.create("first", **way) as run:  # for what pyzmq makes once
        run.put(image_of(0, SHAPE), time=0)
    memory, before = set(os.listdir("/dev/shm")), traces(os.getpid())
    run = acqstream.create("goes-on", **way, patience_s=20)
    for time in range(30):
        run.put(image_of(time, SHAPE), time=time)
        if time == 10:
            daemon.signal(number)
            daemon.wait()
            daemon.start()
    assert run.close().stored == 30
    assert run.transport == transport
    run = acqstream.create("given-up", **way, patience_s=PATIENCE_S)
    run.put(image_of(0, SHAPE), time=0)
    assert psutil.Process(daemon.pid).children() == []
    daemon.signal(number)
    daemon.wait()
    with pytest.raises(AcqStreamError):
        run.close()
    del run
    check_no_more(lambda: traces(os.getpid()), before)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("acqstream")]
    if number is signal.SIGTERM:
        assert list(daemon.runtime.iterdir()) == []
    assert set(os.listdir("/dev/shm")) == memory
