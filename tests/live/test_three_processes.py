"""A producer, a daemon and a live reader, each a process of its own, from the first frame to a repair."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import programs
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, state_of
from tests.live.test_views import LOW_STACK_LIMIT
from tests.waiting import until

SHAPE = (400, 401)  # 320,800 bytes: from the memory of its producer, where the system shares memory
HALF, FRAMES = 40, 80  # more than one stack file of the least length

PRODUCER = """
import sys
import acqstream
from acqstream.simulate import pattern
endpoint, transport, half, frames = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with acqstream.create("cells", endpoint=endpoint, transport=transport, buffer_mb=16, patience_s=90) as run:
    print(run.path, flush=True)
    for number in range(frames):
        if number == half:
            sys.stdin.readline()
        run.put(pattern.frame(number, (400, 401), "uint16"), time=number)
print(run.receipt.status, run.receipt.stored, run.receipt.complete, flush=True)
"""

# follow ends where the run is interrupted: then everything is read again.
READER = """
import sys
import time
import numpy
import acqstream
from acqstream.simulate import pattern
path, half = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
is_complete = is_half = False
while not is_complete:
    count = 0
    with acqstream.open(path) as dataset:
        for key in dataset.follow(timeout_s=90):
            assert key == {"time": count}, (key, count)
            assert numpy.array_equal(dataset.read_frame(key), pattern.frame(count, (400, 401), "uint16")), count
            count += 1
            if count == half and not is_half:
                is_half = True
                print(count, dataset.complete, flush=True)
        is_complete = dataset.complete
    time.sleep(0.05)
print("end", count, flush=True)
"""


def command(*arguments: str) -> tuple[int, str]:
    """Exit code and output of `acqstream` with these arguments."""
    line = [sys.executable, "-m", "acqstream", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, env=programs.environment(), check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout_s(180)
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_a_run_that_outlives_its_daemon_is_read_live_proved_and_repaired(tmp_path: Path, transport: str) -> None:
    with DaemonProcess(tmp_path / "data", prelude=LOW_STACK_LIMIT) as daemon:
        producer = programs.start(PRODUCER, daemon.endpoint, transport, str(HALF), str(FRAMES))
        reader = None
        try:
            folder = Path(programs.line_of(producer))
            until(lambda: any(folder.rglob("NDTiff.index")), "a frame is published")
            reader = programs.start(READER, str(folder), str(HALF))
            assert programs.line_of(reader) == "ready"
            assert programs.line_of(reader) == f"{HALF} False"  # live: the producer waits for this test
            daemon.kill()
            assert state_of(folder)["state"] == "RUNNING"  # nobody could note the end
            daemon.start()
            until(lambda: "recovered" in daemon.output(), "the log")
            print("go on", file=producer.stdin, flush=True)
            assert programs.line_of(producer) == f"completed {FRAMES} True"
            assert programs.line_of(reader) == f"end {FRAMES}"
            assert programs.end(reader) == (0, "")
            code, told = programs.end(producer)
            assert (code, told.count("contact with"), told.count("connecting again")) == (0, 1, 1), told
        finally:
            for process in (producer, reader):
                if process is not None:
                    programs.kill(process)
    assert len(list(folder.rglob("*.tif"))) > 1
    assert check_frames(folder, lambda _: SHAPE) == FRAMES
    code, told = command("verify", str(folder))
    assert code == 0, told
    (index,) = folder.rglob("NDTiff.index")
    index.unlink()
    code, told = command("repair", "--force", str(folder))
    assert code == 0, told
    assert f"recovered  {FRAMES} frames" in told
    assert check_frames(folder, lambda _: SHAPE) == FRAMES
