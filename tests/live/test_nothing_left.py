"""Nothing is left behind on the machine, whichever way a run, its producer or its daemon ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import acqstream
from acqstream.client.daemon_requests import stop_acquisition
from acqstream.client.run import Run
from acqstream.errors import AcqStreamError
from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.impatience import make_impatient
from tests.live.stored import image_of, state_of
from tests.waiting import HANG_S, until

SHAPE = (400, 401)
PATIENCE_S = 0.5
Producer = subprocess.Popen[str]


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
        found[f"{number}: named memory"] = len(named_memory_of([pid]))
        found[f"{number}: threads"] = process.num_threads()
        found[f"{number}: children"] = len(process.children())
    return found


def places(daemon: DaemonProcess) -> Counter[str]:
    """Names in the daemon's runtime directory."""
    return Counter(path.name for path in daemon.runtime.iterdir())


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
    make_impatient(run, PATIENCE_S)
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


@pytest.mark.promise("nothing-left")
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_after_runs(tmp_path: Path, transport: Any) -> None:
    with DaemonProcess(tmp_path / "data", grace_s=0.1) as daemon:

        def left() -> Counter[str]:
            return traces(os.getpid(), daemon.pid) + places(daemon)

        def end(number: int, how: Callable[[Run, DaemonProcess], None]) -> None:
            name = f"{how.__name__}-{number}"
            way: dict[str, Any] = {"endpoint": daemon.endpoint, "transport": transport}
            run = acqstream.create(name, **way, buffer_mb=2)
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


@pytest.mark.promise("nothing-left")
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
    before = traces(os.getpid())
    run = acqstream.create("goes-on", **way, patience_s=20)
    for time in range(30):
        run.put(image_of(time, SHAPE), time=time)
        if time == 10:
            daemon.signal(number)
            daemon.wait()
            daemon.start()
    assert run.close().stored == 30
    assert run.transport == transport
    run = acqstream.create("given-up", **way)
    make_impatient(run, PATIENCE_S)
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


# --- what is on the machine before and after --------------------------------------------------------------------------


def close_in_order(daemon: DaemonProcess, producer: Producer) -> None:
    assert programs.end(producer)[0] == 0
    assert daemon.stop() == 0


def kill_producer(daemon: DaemonProcess, producer: Producer) -> None:
    programs.kill(producer)
    until(lambda: state_of(daemon.data / NAME)["state"] == "INTERRUPTED", "it is interrupted")
    assert daemon.stop() == 0


def kill_daemon(daemon: DaemonProcess, producer: Producer) -> None:
    daemon.kill()
    programs.end(producer)


def stop_daemon(daemon: DaemonProcess, producer: Producer) -> None:
    assert daemon.stop() == 0
    programs.end(producer)


def kill_both(daemon: DaemonProcess, producer: Producer) -> None:
    daemon.signal(signal.SIGKILL)
    programs.kill(producer)
    daemon.wait()


def stop_both(daemon: DaemonProcess, producer: Producer) -> None:
    producer.terminate()
    daemon.signal(signal.SIGTERM)
    programs.kill(producer)
    assert daemon.wait() == 0


WAYS: list[tuple[str, Callable[[DaemonProcess, Producer], None]]] = [
    ("wait and close", close_in_order),
    ("wait", close_in_order),  # that is, without `close`
    ("wait", kill_producer),
    ("wait", kill_daemon),
    ("wait", stop_daemon),
    ("wait", kill_both),
    ("wait", stop_both),
]


@pytest.mark.thinned(2)
@pytest.mark.promise("nothing-left")
@pytest.mark.slow
@pytest.mark.timeout_s(120)
@pytest.mark.parametrize(("ending", "end"), WAYS)
def test_the_machine_after_every_way_of_ending(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
    end: Callable[[DaemonProcess, Producer], None],
) -> None:
    """Files, sockets, shared memory and processes, with a view beside the run; after a kill the next daemon tidies."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # theirs alone: other tests are at work meanwhile
    before = on_the_machine(tmp_path)
    daemon = DaemonProcess(tmp_path / "data", grace_s=0.1, mirrors=["null"], is_fresh=True).start()
    producer = programs.start(programs.PRODUCER, daemon.endpoint, NAME, "20", ending, "shm")
    try:
        programs.line_of(producer)
        assert programs.line_of(producer) == "20"
        until(lambda: psutil.Process(daemon.pid).children(), "a view is made")
        ours = [psutil.Process(daemon.pid), psutil.Process(producer.pid)]
        processes = [*ours, *(child for one in ours for child in one.children(recursive=True))]
        memory = memory_file_of(producer.pid)
        assert sorted(holders_of(memory)) == sorted([producer.pid, daemon.pid])
        names = named_memory_of([one.pid for one in processes])
        end(daemon, producer)
    finally:
        programs.kill(producer)
        daemon.kill_if_running()
    until(lambda: not [one for one in processes if is_alive(one)], "all processes are gone")
    assert not holders_of(memory)
    assert not [name for name in names if os.path.exists(name)]
    if end in (kill_daemon, kill_both):
        with DaemonProcess(daemon.data, port=daemon.port, is_fresh=True):
            assert (daemon.data / ".acqstream.ballast").exists()
    left = set(on_the_machine(tmp_path) - before)
    log = {f"file {path.relative_to(tmp_path)}" for path in (daemon.config_path, daemon.log_path)}
    dataset = {f"file data/{NAME}/{file}" for file in DATASET}
    views = {f"file data/{NAME}.null/{file}" for file in ("view.json", ".acqstream.lock")}
    views.add(f"file data/{NAME}/acqstream.mirror.null.json")  # its result, if it ended before the daemon
    assert left >= dataset
    assert left <= log | dataset | views | {"file data/.acqstream.lock", f"file data/{NAME}/receipt.json"}


NAME = "cells"
DATASET = (f"{NAME}_NDTiffStack.tif", "NDTiff.index", "acqstream.journal", "acqstream.json")


def on_the_machine(folder: Path) -> Counter[str]:
    """What producers and daemons can leave: files and sockets below `folder`, processes of this one's."""
    found = Counter(f"file {path.relative_to(folder)}" for path in folder.rglob("*") if not path.is_dir())
    sockets = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    found.update(f"socket {line.split()[-1]}" for line in sockets if f"{folder}/" in line)
    found.update(f"process {child.pid}" for child in psutil.Process().children(recursive=True))
    return found


def named_memory_of(pids: Sequence[int]) -> set[str]:
    """The files in /dev/shm that processes have mapped or open; others' come and go at any time."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()]
    opened = [file.path for pid in pids for file in psutil.Process(pid).open_files()]
    return {path for path in [*(line.split(maxsplit=5)[-1] for line in lines), *opened] if path.startswith("/dev/shm/")}


def memory_file_of(pid: int) -> int:
    """The inode of the memory that a producer shares."""
    places = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    (inode,) = {os.stat(place).st_ino for place in places if "memfd:acqstream-producer" in os.readlink(place)}
    return inode


def holders_of(inode: int) -> list[int]:
    """The processes of the whole machine that have that memory mapped or open."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # it has ended
            maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
            is_mapped = any("memfd:" in line and line.split()[4] == str(inode) for line in maps)
            if is_mapped or inode in _memory_files_of(pid):
                found.append(pid)
    return found


def _memory_files_of(pid: int) -> Iterator[int]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if "memfd:" in os.readlink(f"/proc/{pid}/fd/{name}"):
                yield os.stat(f"/proc/{pid}/fd/{name}").st_ino


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_daemon_stopped_while_it_starts(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data", memory_mb=256, is_fresh=True)
    for _ in range(3):
        daemon.launch()
        until(lambda: [*daemon.runtime.glob("*.s[oh]*")], "its first socket", every_s=0.0005)
        assert daemon.stop() == 0
        assert list(daemon.runtime.iterdir()) == []
        assert [path.name for path in daemon.data.iterdir()] == [".acqstream.lock"]


@pytest.mark.thinned(4)
@pytest.mark.promise("nothing-left")
@pytest.mark.slow
@pytest.mark.timeout_s(120)
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGTERM, ""),  # while the limit of the disk is measured
        (signal.SIGTERM, '"function": "serve"'),
        (signal.SIGTERM, '"module": "acqstream.bench.producer"'),
        (signal.SIGINT, '"module": "acqstream.bench.producer"'),
    ],
)
def test_a_benchmark_that_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, moment: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = on_the_machine(tmp_path)
    options = ["--rows", "shm", "--bytes", "100MB", "--pairs", "50", "--memory-mb", "256", "--dir", str(tmp_path)]
    command = [sys.executable, "-m", "acqstream", "bench", *options]
    bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    of_it: list[psutil.Process] = []
    try:
        until(lambda: list(tmp_path.iterdir()), "it has begun")

        def is_there() -> bool:
            assert bench.poll() is None, bench.communicate()
            of_it[:] = psutil.Process(bench.pid).children(recursive=True)
            return not moment or any(moment in " ".join(command_of(one)) for one in of_it)

        until(is_there, f"{moment} runs", 40.0, every_s=0.02)
        bench.send_signal(number)
        _, errors = bench.communicate(timeout=HANG_S)
    finally:
        bench.kill()
        bench.communicate()
        left = [one for one in of_it if is_alive(one)]
        for one in left:
            one.kill()
    assert bench.returncode == 128 + number, errors
    assert not left
    assert not on_the_machine(tmp_path) - before


def test_the_daemon_of_a_benchmark_that_is_killed_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its producer does when nobody answered for the patience."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    options = ["--rows", "shm", "--bytes", "100MB", "--pairs", "50", "--memory-mb", "256", "--dir", str(tmp_path)]
    bench = subprocess.Popen([sys.executable, "-m", "acqstream", "bench", *options], stdout=subprocess.DEVNULL)
    of_it: list[psutil.Process] = []

    def is_sending() -> bool:
        assert bench.poll() is None
        of_it[:] = psutil.Process(bench.pid).children(recursive=True)
        return any('"module": "acqstream.bench.producer"' in " ".join(command_of(one)) for one in of_it)

    try:
        until(is_sending, "frames are sent", 40.0, every_s=0.02)
        daemon = next(one for one in of_it if '"function": "serve"' in " ".join(command_of(one)))
        bench.kill()
        bench.wait()
        until(lambda: not is_alive(daemon), "its daemon has ended")
    finally:
        for one in filter(is_alive, of_it):
            one.kill()


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
