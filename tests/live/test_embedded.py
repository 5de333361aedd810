"""`create(data=...)`: a daemon that a program starts for itself, and that outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest

import acqstream
from acqstream.client import directory_daemon
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.default_endpoint import ENDPOINT_VARIABLE
from acqstream.client.directory_daemon import LOG_NAME, endpoint_of
from acqstream.errors import AcqStreamError, ConfigError, DaemonUnavailable
from acqstream.model.daemon_note import DaemonNote
from acqstream.storage.files.directory_lock import DirectoryLock
from tests.host_system import is_wine, make_link
from tests.live.daemon_process import DaemonProcess
from tests.live.embedded_daemons import DEADLINE_S, EmbeddedDaemons, embedded_daemons, has_ended
from tests.live.stored import state_of
from tests.waiting import until

IMAGE = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
SCRIPT = """
import sys
import numpy as np
import acqstream
image = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
with acqstream.create("cells", data=sys.argv[1], on_exists="number", patience_s=60.0) as run:
    for time in range(5):
        run.put(image + time, time=time)
print(run.path)
"""
HANGING = """
import signal
import sys
import time
import numpy as np
import acqstream
run = acqstream.create("cells", data=sys.argv[1])
run.put(np.zeros((64, 64), np.uint16), time=0)
while run.progress.published < 1:
    pass
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it, and all below it
try:
    print("stored", flush=True)
    for _ in range(60_000):
        time.sleep(0.01)  # a signal just before a call that blocks for ever would not interrupt that
except KeyboardInterrupt:
    print("interrupted", flush=True)
    run.close("canceled", "by the user")
"""
pytestmark = pytest.mark.timeout_s(300)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[EmbeddedDaemons]:
    with embedded_daemons(tmp_path, idle_exit_s=300.0, grace_s=0.2) as own:
        yield own


def check_cells(path: str | Path) -> None:
    with acqstream.open(path) as dataset:
        assert dataset.complete
        assert len(list(dataset.keys())) == 5
        for time in range(5):
            assert np.array_equal(dataset.read_frame(time=time), IMAGE + time)


def test_a_script_needs_one_line_and_the_next_one_finds_its_daemon(daemons: EmbeddedDaemons) -> None:
    first = daemons.run(SCRIPT).strip()
    pid = daemons.pid
    assert pid is not None
    second = daemons.run(SCRIPT).strip()
    assert daemons.pid == pid
    assert [Path(first), Path(second)] == [daemons.data / "cells", daemons.data / "cells_1"]
    for path in (first, second):
        check_cells(path)
    assert daemons.log.count("listening on") == 1
    assert daemons.log.count("closed") == 2


@pytest.mark.slow
def test_many_scripts_at_once_get_one_daemon(daemons: EmbeddedDaemons) -> None:
    count = 3 if is_wine() else 12  # each starts up to three interpreters, which take up to 15 s each under Wine
    settings = daemons.config.read_text(encoding="utf-8")  # with 64 MiB the tenth run may be refused
    daemons.config.write_text(settings.replace("memory_mb = 64", "memory_mb = 256"), encoding="utf-8")
    with ExitStack() as stack:
        scripts = [stack.enter_context(daemons.program(SCRIPT)) for _ in range(count)]
        results = [script.communicate() for script in scripts]
    assert [err for script, (_, err) in zip(scripts, results, strict=True) if script.returncode] == []
    paths = {out.strip() for out, _ in results}
    assert len(paths) == count
    for path in paths:
        check_cells(path)
    assert daemons.log.count("listening on") == 1
    assert "in use by" not in daemons.log  # those that came second leave nothing in the log of the first


def test_the_run_names_the_log_and_the_directory_may_be_a_link(daemons: EmbeddedDaemons, tmp_path: Path) -> None:
    link = tmp_path / "link"
    make_link(link, daemons.data)
    with acqstream.create("cells", data=link) as run:
        run.put(IMAGE, time=0)
    assert run.receipt is not None
    assert run.receipt.complete
    assert os.path.samefile(run.daemon_log, daemons.data / LOG_NAME)
    assert f"opened {run.path}" in Path(run.daemon_log).read_text(encoding="utf-8")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="a terminal of POSIX signals a group of processes")
def test_an_interrupt_of_the_script_reaches_the_script_alone(daemons: EmbeddedDaemons) -> None:
    with daemons.program(HANGING) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "stored\n"
        pid = daemons.pid
        os.killpg(script.pid, signal.SIGINT)  # as a terminal does
        assert script.stdout.readline() == "interrupted\n"
        script.communicate()
    assert script.returncode == 0
    assert daemons.pid == pid
    assert state_of(daemons.data / "cells")["state"] == "CANCELED"


def test_a_killed_script_leaves_its_run_to_the_grace_time(daemons: EmbeddedDaemons) -> None:
    with daemons.program(HANGING) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "stored\n"
        script.kill()
    until(lambda: state_of(daemons.data / "cells")["state"] == "INTERRUPTED", "the grace time is over", DEADLINE_S)
    with acqstream.create("cells", data=daemons.data, resume=True) as run:
        assert run.next == 1
        run.put(IMAGE, time=1)
    with acqstream.open(run.path) as dataset:
        assert [key["time"] for key in list(dataset.keys())] == [0, 1]


def test_a_daemon_that_is_killed_is_started_again_and_the_run_goes_on(daemons: EmbeddedDaemons) -> None:
    with acqstream.create("cells", data=daemons.data, patience_s=60.0) as run:
        run.put(IMAGE, time=0)
        until(lambda: run.progress.published == 1, "the first frame is published", DEADLINE_S)
        pid = daemons.pid
        assert pid is not None
        psutil.Process(pid).kill()
        for time in range(1, 5):
            run.put(IMAGE + time, time=time)
    assert daemons.pid not in (None, pid)
    check_cells(run.path)


def test_a_running_daemon_is_used_and_none_is_started(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data") as daemon:
        assert endpoint_of(daemon.data) == daemon.endpoint
        with acqstream.create("cells", data=daemon.data) as run:
            run.put(IMAGE, time=0)
        with acqstream.create("exactly", data=daemon.data, transport="tcp") as exact:
            exact.put(IMAGE, time=0)
            assert exact.transport == "tcp"
        assert run.daemon_log == ""  # this one was given no file to log to
        assert not (daemon.data / LOG_NAME).exists()
        until(lambda: "closed" in daemon.output(), "the log")
    with pytest.raises(DaemonUnavailable, match="no daemon has"):
        endpoint_of(daemon.data)


def test_it_ends_when_it_is_idle_with_its_views_made_and_the_next_script_starts_another(tmp_path: Path) -> None:
    # Idle for longer than a busy machine takes from the start of a daemon to its first run.
    with embedded_daemons(tmp_path, idle_exit_s=3.0) as daemons:
        for number in range(2):
            with acqstream.create(f"cells_{number}", data=daemons.data, mirrors=["n5"], patience_s=300.0) as run:
                run.put(IMAGE, time=0)
            daemons.wait_until_free()
            with acqstream.open(daemons.data / f"cells_{number}.n5") as mirror:
                assert mirror.complete
                assert np.array_equal(mirror.levels[0].read(...).reshape(64, 64), IMAGE)
        # A third one if the first was idle before the busy machine let this program open its run.
        assert daemons.log.count("listening on") >= 2
        assert daemons.log.count("no acquisition and no unfinished view for 3 s; ending") >= 2
        (result,) = run.wait_for_mirrors(timeout_s=DEADLINE_S)  # asks a daemon: another one is started
        assert (result.name, result.state) == ("n5", "complete")


def test_no_terminal_no_input_and_closed_streams(daemons: EmbeddedDaemons) -> None:
    """As in a notebook or a window program: the streams of Python are not those of the process, or missing."""
    prelude = "import io, os, sys\nout = os.dup(1)\nfor n in (0, 1, 2): os.close(n)\nsys.stdin = None\n"
    prelude += "sys.stdout, sys.stderr = os.fdopen(out, 'w'), io.StringIO()\n"
    path = daemons.run(prelude + SCRIPT).strip()
    check_cells(path)
    assert daemons.pid is not None


def test_what_keeps_a_daemon_from_starting_is_shown(daemons: EmbeddedDaemons) -> None:
    daemons.config.write_text("memory_mb = 1\n", encoding="utf-8")
    with pytest.raises(DaemonUnavailable) as error:
        acqstream.create("cells", data=daemons.data)
    text = str(error.value)
    assert f"cannot start a daemon for {daemons.data}: it ended with exit code 78" in text
    assert "memory_mb: Input should be greater than or equal to 16" in text
    assert f"log {daemons.data / LOG_NAME}:" in text
    assert daemons.pid is None


def test_another_program_in_the_directory_is_named(daemons: EmbeddedDaemons, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_daemon, "MIN_START_S", 0.1)
    with (
        DirectoryLock(str(daemons.data)),
        pytest.raises(DaemonUnavailable, match=rf"in use by acqstream pid {os.getpid()} on .*, which does not answer"),
    ):
        acqstream.create("cells", data=daemons.data, patience_s=0.1)


def test_a_note_that_leads_to_the_daemon_of_another_directory_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port of a daemon that was killed may have another owner: frames must not go there."""
    monkeypatch.setattr(directory_daemon, "MIN_START_S", 0.1)
    mine = tmp_path / "mine"
    mine.mkdir()
    with DaemonProcess(tmp_path / "data") as other, DirectoryLock(str(mine)) as lock:
        lock.write_note(DaemonNote(endpoints=(other.endpoint,)).text())
        with pytest.raises(DaemonUnavailable, match="does not answer"):
            acqstream.create("cells", data=mine, patience_s=0.1)
        assert not (other.data / "cells").exists()
        lock.write_note(DaemonNote(endpoints=(other.endpoint,), boot="of another machine").text())
        with pytest.raises(DaemonUnavailable, match="on another machine or in a container"):
            acqstream.create("cells", data=mine, patience_s=0.1)
        lock.write_note(DaemonNote(endpoints=("tcp://192.0.2.1:5271",)).text())
        with pytest.raises(ConfigError, match="expected a tcp endpoint on loopback"):
            acqstream.create("cells", data=mine, patience_s=0.1)


def test_wrong_arguments_start_nothing(daemons: EmbeddedDaemons, tmp_path: Path) -> None:
    wrong: list[dict[str, object]] = [
        {"data": daemons.data, "endpoint": "tcp://127.0.0.1:5271"},
        {"data": tmp_path / "missing"},
        {"data": daemons.config},
        {"data": 5},
        {"data": daemons.data, "durability": "never"},
        {"data": daemons.data, "summary": 5},
    ]
    for arguments in wrong:
        with pytest.raises(ConfigError):
            acqstream.create("cells", **arguments)  # type: ignore[arg-type]
    assert daemons.pid is None
    assert list(daemons.data.iterdir()) == []


def test_data_comes_before_the_environment(daemons: EmbeddedDaemons, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, "tcp://127.0.0.1:1")
    with acqstream.create("cells", data=daemons.data) as run:
        run.put(IMAGE, time=0)
    assert Path(run.path) == daemons.data / "cells"


def test_commands_find_the_daemon_by_its_directory(daemons: EmbeddedDaemons) -> None:
    def verb(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "acqstream", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=daemons.environment)

    assert verb("status", "--data", str(daemons.data)).returncode == 69
    sent = verb("simulate", "--data", str(daemons.data), "--frames", "3", "--shape", "16,16", "--name", "cells")
    assert sent.returncode == 0, sent.stderr
    status = verb("status", "--data", str(daemons.data))
    assert status.returncode == 0, status.stderr
    assert f"data{daemons.data}" in "".join(status.stdout.split())  # lines of at most 80 columns
    assert verb("status", "--data", str(daemons.data), "--endpoint", "tcp://127.0.0.1:1").returncode == 2
    pid = daemons.pid
    assert pid is not None
    assert verb("shutdown", "--data", str(daemons.data)).returncode == 0
    until(lambda: has_ended(pid), "the daemon ends", DEADLINE_S)


def test_an_error_of_a_silent_daemon_shows_the_end_of_its_log(daemons: EmbeddedDaemons) -> None:
    errors: list[AcqStreamError] = []
    run = acqstream.create("cells", data=daemons.data, patience_s=2.0, on_error=errors.append)
    pid = daemons.pid
    assert pid is not None
    until(lambda: f"opened {daemons.data / 'cells'}" in daemons.log, "the log is made, behind the answer", DEADLINE_S)
    psutil.Process(pid).suspend()
    try:
        until(lambda: errors, "the patience is over", DEADLINE_S)
    finally:
        psutil.Process(pid).resume()
    assert f"log {daemons.data / LOG_NAME}:" in str(errors[0])
    assert f"opened {daemons.data / 'cells'}" in str(errors[0])
    with pytest.raises(DaemonUnavailable):
        run.close()
    assert fetch_status(endpoint_of(daemons.data), timeout_s=60.0).data == str(daemons.data)


def test_a_run_that_fails_while_a_daemon_starts_leaves_no_process_of_its_own(
    daemons: EmbeddedDaemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The starter of a daemon is a child of this program. It goes when the run does, and leaves the daemon alone."""
    run = acqstream.create("cells", data=daemons.data, patience_s=5.0)
    pid = daemons.pid
    assert pid is not None
    number = tmp_path / "number"
    source = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(directory_daemon, "_command", lambda *_: [sys.executable, "-c", source, str(number)])
    psutil.Process(pid).kill()
    with pytest.raises(DaemonUnavailable):
        run.close()
    slow = int(until(lambda: number.exists() and number.read_text(), "a daemon that never answers", DEADLINE_S))
    assert not has_ended(slow)
    until(lambda: not starters(), "its starter has ended")
    psutil.Process(slow).kill()


def starters() -> list[int]:
    """Children of this process that wait for a daemon."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, OSError):  # it begins or ends just now
            found += [child.pid] if any("detached_starter" in word for word in child.cmdline()) else []
    return found
