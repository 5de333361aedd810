"""Programs that tests start as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO

from tests.waiting import HANG_S

# Each takes its arguments from sys.argv and tells on stdout, line by line, how far it is.

PRODUCER = """
import sys
import time
import acqstream
from acqstream.simulate import pattern
endpoint, name, frames, ending = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
transport = sys.argv[5] if len(sys.argv) > 5 else "auto"
run = acqstream.create(name, endpoint=endpoint, transport=transport, buffer_mb=16, patience_s=5)
print(run.path, flush=True)
for number in range(frames):
    run.put(pattern.frame(number, (128, 128), "uint16"), time=number)
while run.progress.published < frames:
    time.sleep(0.005)
print(run.progress.published, flush=True)
if ending.startswith("wait"):
    sys.stdin.read()
if ending.endswith("close"):
    run.close()
"""

GOING_ON = """
import sys
import time
import acqstream
from acqstream.simulate import pattern
endpoint, name, frames, patience_s, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
with acqstream.create(name, endpoint=endpoint, buffer_mb=8, patience_s=patience_s, resume=True) as run:
    print(run.next, flush=True)
    for number in range(run.next, frames):
        if number == int(last):  # not over before it was looked at
            sys.stdin.readline()
        run.put(pattern.frame(number, (128, 128), "uint16"), time=number)
        time.sleep(0.002)
print("closed", run.receipt.stored, flush=True)
"""

FOLLOWER = """
import sys
import numpy
import acqstream
from acqstream.simulate import pattern
path, step = sys.argv[1], int(sys.argv[2])
with acqstream.open(path) as dataset:
    print("ready", flush=True)
    seen = 0
    for key in dataset.follow(timeout_s=20):
        assert key == {"time": seen}, (key, seen)
        image = dataset.read_frame(key)
        assert numpy.array_equal(image, pattern.frame(seen, (16, 16), "uint16")), seen
        seen += 1
        if seen % step == 0:
            print(seen, flush=True)
    print("end", seen, dataset.complete, flush=True)
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program with pipes to stdin and stdout."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def environment() -> dict[str, str]:
    """For children that import what this process can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that it prints. Fails with its errors when it ended instead."""
    line = _pipe(process.stdout).readline().strip()
    assert line, f"ended with {process.wait(HANG_S)}: {_pipe(process.stderr).read()}"
    return line


def end(process: subprocess.Popen[str], timeout_s: float = HANG_S) -> tuple[int, str]:
    """Wait for it; exit code, and what it said on stderr."""
    _, errors = process.communicate(timeout=timeout_s)
    return process.returncode, errors


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL, if it still runs, and wait until it is gone."""
    process.kill()
    process.communicate()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
