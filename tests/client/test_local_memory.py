"""The local buffer where runs end early, and where the program forks."""

from __future__ import annotations

import gc
import itertools
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from acqstream.client import connector
from acqstream.client.link import Link
from acqstream.client.producer import create
from acqstream.errors import ConfigError, DaemonUnavailable, DatasetExists
from acqstream.protocol.replies import Error
from tests.host_system import descriptors_of

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memory files here")


def memory_files() -> int:
    """Open descriptors of local buffers."""
    gc.collect()
    return descriptors_of("acqstream-producer").total()


def test_a_run_that_cannot_begin_keeps_no_memory(daemon, monkeypatch):
    for _ in range(3):
        with pytest.raises(ConfigError, match="ChNames"):
            create("cells", endpoint=daemon.endpoint, buffer_mb=1, micromanager=True, summary={"ChNames": 3})
    assert memory_files() == 0
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("acqstream-run"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        create("cells", endpoint=daemon.endpoint, buffer_mb=1)
    assert memory_files() == 0


def test_an_error_that_is_kept_keeps_no_memory(daemon):
    daemon.behavior.open_error = Error("name_taken", "there is one")
    with pytest.raises(DatasetExists) as caught:
        create("cells", endpoint=daemon.endpoint, buffer_mb=1)
    assert memory_files() == 0
    assert caught.value.code == "name_taken"


@pytest.fixture
def left(tmp_path):
    """The name of a socket that nobody listens at any more, as a killed daemon leaves it."""
    path = tmp_path / "d.memory"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bound:
        bound.bind(str(path))
    return str(path)


@pytest.mark.parametrize("transport", ["shm", "ipc"])
def test_a_daemon_that_dies_while_it_is_met_is_away(daemon, left, transport):
    daemon.behavior.memory, daemon.behavior.ipc = left, f"ipc://{left}"

    def die() -> None:
        daemon.wait_for(lambda: daemon.requests)
        daemon.stop()

    killer = threading.Thread(target=die)
    killer.start()
    with pytest.raises(DaemonUnavailable, match="no daemon answers"):
        create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=1.5, transport=transport)
    killer.join()


@pytest.mark.parametrize(("transport", "text"), [("shm", "refused"), ("ipc", "cannot be reached")])
def test_a_way_that_stays_closed_is_told(daemon, left, transport, text):
    daemon.behavior.memory, daemon.behavior.ipc = left, f"ipc://{left}"
    with pytest.raises(ConfigError, match=rf"transport='{transport}': .*{text}.*; use transport='auto'"):
        create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=2.0, transport=transport)
    assert daemon.opens == []


def test_a_last_attempt_without_time_does_not_make_a_closed_way_a_daemon_that_is_away(daemon, left, monkeypatch):
    daemon.behavior.memory = left
    for name in ("_FIRST_ATTEMPT_S", "_MAX_ATTEMPT_S"):  # more than the patience leaves to any of them
        monkeypatch.setattr(connector, name, 60.0)
    stands, attempts = Link.wait_writable, itertools.count()

    def stands_twice(link: Link, timeout_s: float) -> bool:
        if next(attempts) < 2:
            return stands(link, timeout_s)
        time.sleep(timeout_s)
        return False

    monkeypatch.setattr(Link, "wait_writable", stands_twice)
    with pytest.raises(ConfigError, match=r"transport='shm': .*refused"):
        create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=1.5, transport="shm")


FORKS = """
import faulthandler, os, sys, threading, numpy, acqstream
import acqstream.client.run
from acqstream.errors import ProtocolError
image = numpy.full((600, 600), 7, "u2")
with acqstream.create("cells", endpoint=sys.argv[1], buffer_mb=4, patience_s=5) as run:
    run.put(image, time=0)
    locked, forked = threading.Event(), threading.Event()
    def keep_lock():  # as the run's own thread may at that moment: in the child nobody gives it back
        with run._state.lock:
            locked.set()
            forked.wait()
    keeper = threading.Thread(target=keep_lock)
    keeper.start()
    locked.wait()
    child = os.fork()
    if child == 0:
        acqstream.client.run.EXIT_PATIENCE_S = 3600.0
        faulthandler.dump_traceback_later(50, exit=True)  # with 1
        def again():
            with run.reserve((600, 600), "u2", time=1):
                pass
        def leave():
            with run:
                pass
        for what in (
            lambda: run.put(image + 1, time=1), again, lambda: run.skip(1, reason="x"), run.close, leave,
            lambda: run.patch(display={"lut": 1}), lambda: run.progress, lambda: run.warnings,
        ):
            try:
                what()
            except ProtocolError as error:
                print(error, flush=True)
        assert "1 frame put" in repr(run) and (run.next, run.receipt, run.name) == (1, None, "cells")
        assert run.transport and run.path
        sys.exit(3)
    forked.set()
    keeper.join()
    print("child", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    run.put(image, time=1)
print("stored", run.receipt.stored, flush=True)
"""


FORK_IN_RESERVE = """
import faulthandler, os, sys, threading, numpy, acqstream
from acqstream.errors import ProtocolError
with acqstream.create("cells", endpoint=sys.argv[1], buffer_mb=4, patience_s=5) as run:
    locked, forked = threading.Event(), threading.Event()
    def keep_lock():
        with run._state.lock:
            locked.set()
            forked.wait()
    keeper = threading.Thread(target=keep_lock)
    keeper.start()
    locked.wait()
    try:
        with run.reserve((4, 5), "u2", time=0) as image:
            child = os.fork()
            if child == 0:
                faulthandler.dump_traceback_later(50, exit=True)  # with 1
                image[:] = 1
            else:
                forked.set()
                keeper.join()
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
                image[:] = 2
    except ProtocolError as error:
        assert child == 0, error
        os._exit(3)
assert run.receipt.stored == 1
"""


def test_a_frame_that_is_being_filled_is_the_parents(daemon):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FORK_IN_RESERVE, daemon.endpoint],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(daemon.frames) == [0]


def test_a_forked_process_cannot_write_into_the_buffer_of_its_parent(daemon):
    """What it put would lie where the parent's next frame does, and its exit would wait for a thread it has not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FORKS, daemon.endpoint],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    *refused, child, stored = done.stdout.splitlines()
    assert [text.endswith("belongs to the process that made it, not to one forked from it") for text in refused] == [
        True
    ] * 8
    assert (child, stored) == ("child 3", "stored 2")
