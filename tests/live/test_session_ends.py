"""The daemon among other things of a PC: nobody reads what it prints, its session ends, its files are replaced."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.errors import AcqStreamError, AcquisitionRefused, DaemonUnavailable
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import state_of
from tests.waiting import in_time, until

IMAGE = np.zeros((64, 64), np.uint16)
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals, terminals and limits of POSIX")


@contextlib.contextmanager
def daemon_in(daemon: DaemonProcess, before: str = "", **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """`acqstream serve` with streams of the caller's, after the statements `before`; ended by a signal at the end."""
    daemon.data.mkdir(exist_ok=True)
    arguments = ["serve", "--config", str(daemon.config_path), "--data", str(daemon.data)]
    program = f"{before}\nfrom acqstream.cli.main import main; main()"
    command = [sys.executable, "-c", program, *arguments, "--endpoint", daemon.endpoint]
    process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    try:
        until(lambda: is_answering(daemon.endpoint) or process.poll() is not None, "an answer")
        yield process
    finally:
        process.kill()
        process.wait()


def is_answering(endpoint: str) -> bool:
    try:
        return bool(fetch_status(endpoint, timeout_s=0.5))
    except DaemonUnavailable:
        return False


@pytest.mark.thinned(2)
@pytest.mark.promise("session-ends")
@posix_only
@pytest.mark.parametrize("mirrors", [None, ["n5"]])
def test_a_daemon_whose_output_nobody_reads_records_and_ends(tmp_path: Path, mirrors: list[str] | None) -> None:
    reading, writing = os.pipe()
    with contextlib.suppress(ImportError):
        import fcntl

        fcntl.fcntl(writing, getattr(fcntl, "F_SETPIPE_SZ", 1031), 4096)
    daemon = DaemonProcess(tmp_path / "data")
    with daemon_in(daemon, stdout=writing, stderr=writing) as process:
        for _ in range(40):
            with acqstream.create("snap", endpoint=daemon.endpoint, on_exists="number", mirrors=mirrors) as run:
                run.put(IMAGE, time=0)
        if mirrors:
            assert run.wait_for_mirrors()[0].complete
        process.terminate()
        assert process.wait(in_time(30.0)) == 0
    os.close(reading)
    os.close(writing)


@pytest.mark.promise("session-ends")
@posix_only
@pytest.mark.parametrize(
    "numbers", [(signal.SIGHUP,), (signal.SIGTERM, signal.SIGHUP), (signal.SIGHUP, signal.SIGTERM)]
)
def test_the_end_of_a_session_is_a_stop_in_order_and_the_producer_hears_it_at_once(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    daemon = DaemonProcess(tmp_path / "data", restarts=False)
    own = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # these tests may run under nohup
    with daemon_in(daemon, own) as process:
        run = acqstream.create("cells", endpoint=daemon.endpoint, patience_s=60.0)
        run.put(IMAGE, time=0)
        for number in numbers:
            process.send_signal(number)
        began = time.monotonic()
        with pytest.raises(DaemonUnavailable, match="its last message: the daemon was stopped"):
            for time_ in range(1, 10**6):
                run.put(IMAGE, time=time_)
        assert time.monotonic() - began < in_time(10.0)  # and not after the patience
        assert process.wait(in_time(30.0)) == 0
    with pytest.raises(DaemonUnavailable, match="for good"):
        run.close()
    assert run.receipt is not None
    assert run.receipt.status == "interrupted"
    assert state_of(daemon.data / "cells")["state"] == "INTERRUPTED"


@posix_only
def test_nohup_keeps_the_daemon(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    with daemon_in(daemon, "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)") as process:
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            process.send_signal(signal.SIGHUP)
            run.put(IMAGE, time=0)
        assert run.receipt is not None
        assert run.receipt.complete
        assert process.poll() is None


@pytest.mark.promise("session-ends")
@posix_only
@pytest.mark.parametrize("limit", [24, 48])
def test_few_descriptors_are_told_and_end_no_daemon(tmp_path: Path, limit: int) -> None:
    daemon = DaemonProcess(tmp_path / "data")
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))"
    log = (tmp_path / "log").open("wb")
    with log, daemon_in(daemon, few, stderr=log) as process:
        told = (tmp_path / "log").read_text()
        assert f"this process may open {limit} files and connections; its configuration needs" in told
        if limit == 24:
            assert process.wait(in_time(30.0)) == 78
            return
        runs, refusals = [], []
        for number in range(12):
            try:
                runs.append(acqstream.create(f"run-{number}", endpoint=daemon.endpoint, patience_s=2.0))
            except (AcquisitionRefused, DaemonUnavailable) as error:
                refusals.append(str(error))
        for run in runs:
            run.put(IMAGE, time=0)
            assert run.close().complete
        assert runs
        assert refusals
        assert {text for text in refusals if "max_acquisitions is 1" not in text and "closes each" not in text} == set()
        assert process.poll() is None
        with acqstream.create("after", endpoint=daemon.endpoint) as run:
            run.put(IMAGE, time=0)


@pytest.mark.promise("session-ends")
@pytest.mark.parametrize("replaced", ["formats", "mirrors"])
def test_a_program_that_was_replaced_is_named(tmp_path: Path, replaced: str) -> None:
    """A new kind of mirror is loaded when the first run asks for it, and by the process of the views."""
    library = tmp_path / "library"
    shutil.copytree(Path(acqstream.__file__).parent, library / "acqstream")
    daemon = DaemonProcess(tmp_path / "data")
    before = f"import sys; sys.path.insert(0, {str(library)!r})"
    log = (tmp_path / "log").open("wb")
    with log, daemon_in(daemon, before, cwd=tmp_path, stderr=log):
        for path in (library / "acqstream" / replaced).rglob("*.py"):
            path.write_text("raise ImportError('of another version')\n")
        try:
            with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=["wkw"]) as run:
                run.put(IMAGE, time=0)
            text = run.wait_for_mirrors(timeout_s=in_time(60.0))[0].reason
        except AcqStreamError as error:
            text = str(error)
    assert "the program was replaced while this daemon ran; restart the daemon" in text
