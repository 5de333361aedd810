"""A program that forgets to close its run still ends, and leaves a dataset that says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from acqstream.protocol.requests import Close

PROGRAM = """
import sys, numpy, acqstream
import acqstream.client.run
acqstream.client.run.EXIT_PATIENCE_S = float(sys.argv[2])
run = acqstream.create("cells", endpoint=sys.argv[1], buffer_mb=4, patience_s=5)
for number in range(20):
    run.put(numpy.full((300, 300), number, "u2"), time=number)
"""


def run_program(daemon, *, after: str = "", patience_s: float = 5.0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + after, daemon.endpoint, str(patience_s)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=environment,
    )


def close_of(daemon) -> Close:
    """The last request to close; where the answer takes long, the program has asked for signs of life after it."""
    *_, close = [request for request in daemon.requests if isinstance(request, Close)]
    return close


@pytest.mark.slow
@pytest.mark.parametrize("after", ["", "run = None", "raise SystemExit(0)"])
def test_a_forgotten_run_is_ended_as_an_error(daemon, after):
    finished = run_program(daemon, after=after)
    assert finished.returncode == 0, finished.stderr
    close = close_of(daemon)
    assert (close.number, close.status, close.reason) == (20, "error", "interpreter exit")
    assert len(daemon.frames) == 20


@pytest.mark.slow
def test_a_daemon_that_is_gone_does_not_hold_the_exit(daemon):
    daemon.behavior.answer_close = False
    finished = run_program(daemon, patience_s=0.2)
    assert finished.returncode == 0
    assert "could not be ended in order: the end of run 'cells' was not confirmed" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.slow
def test_a_run_that_was_given_up_is_not_spoken_of(daemon):
    finished = run_program(daemon, after="run._connection.stop()")
    assert (finished.returncode, finished.stderr) == (0, "")


INTERRUPTED = """
def interrupt(_status):
    raise KeyboardInterrupt
run._buffer.wait_for_end = interrupt
try:
    run.close()
except KeyboardInterrupt:
    pass
"""


@pytest.mark.slow
def test_an_interrupted_close_is_waited_for(daemon):
    finished = run_program(daemon, after=INTERRUPTED)
    assert (finished.returncode, finished.stderr) == (0, "run cells: its close was interrupted; waiting for it\n")
    assert close_of(daemon).status == "completed"
    assert len(daemon.frames) == 20


WAITING = """
import threading
def put_more():  # the buffer of 4 MB fills up: nothing is published
    while True:
        run.put(numpy.zeros((300, 300), "u2"), time=run.next)
threading.Thread(target=put_more, daemon=True).start()
with run._state.condition:
    run._state.condition.wait_for(lambda: run._state.outbox.place(180000, 200) is None, 5)
"""


@pytest.mark.slow
def test_a_put_that_waits_in_another_thread_does_not_hold_the_exit(daemon):
    daemon.behavior.publish = False
    finished = run_program(daemon, after=WAITING, patience_s=3.0)
    assert finished.returncode == 0, finished.stderr
    assert close_of(daemon).reason == "interpreter exit"
