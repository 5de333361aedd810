"""The demonstration that `python3 tools/run.py demo` runs inside its environment.

Starts the daemon on a free loopback port with a temporary data folder, sends simulated frames from a second process
while a third follows the dataset live, shows the receipt, reads everything back, compares it with what was sent, and
stops the daemon. Exit code 0 only if every frame agrees everywhere.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import acqstream
from acqstream.simulate.axes_counter import parse_axes
from acqstream.simulate.scene import SceneCamera

AXES = "time=25,channel=DAPI|FITC|TRITC|BF,z=3"  # the last one varies fastest
CAMERA = SceneCamera(parse_axes(AXES))
FRAMES = CAMERA.axes.count or 0
SHAPE = (512, 512)
DTYPE = "uint16"
FRAMES_PER_S = 150
MIRROR = "n5"

FOLLOWER = Path(__file__).with_name("demo_follow.py")
START_TIMEOUT_S = 30
SEND_TIMEOUT_S = 120
FOLLOW_TIMEOUT_S = 60  # after the sender has ended
STOP_TIMEOUT_S = 30


class DemoFailed(Exception):
    """A part of the demonstration did not do what it should."""


def say(text: str) -> None:
    print(text, flush=True)


def acqstream_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "acqstream", *arguments]


def free_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def ended_afterwards(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Whatever happens, the process is gone afterwards."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


def wait_until_it_answers(daemon: subprocess.Popen[Any], endpoint: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            raise DemoFailed(f"the daemon ended at once with exit code {daemon.returncode}")
        status = acqstream_command("status", "--endpoint", endpoint)
        if subprocess.run(status, capture_output=True, timeout=START_TIMEOUT_S, check=False).returncode == 0:
            return
        time.sleep(0.1)
    raise DemoFailed(f"the daemon does not answer at {endpoint} within {START_TIMEOUT_S} s")


def send_and_follow(endpoint: str, data: Path) -> None:
    """Runs the simulated camera and the follower at the same time."""
    shape = ",".join(str(side) for side in SHAPE)
    options = ["--frames", str(FRAMES), "--shape", shape, "--dtype", DTYPE, "--fps", str(FRAMES_PER_S), "--axes", AXES]
    options += ["--mirror", MIRROR]
    follow = [sys.executable, str(FOLLOWER), str(data), str(FRAMES), AXES]
    with ended_afterwards(subprocess.Popen(follow, stdout=subprocess.PIPE, text=True)) as follower:
        simulate = acqstream_command("simulate", "--endpoint", endpoint, *options)
        sent = subprocess.run(simulate, capture_output=True, text=True, timeout=SEND_TIMEOUT_S, check=False)
        if sent.returncode:
            output = f"{sent.stdout}{sent.stderr}"
            raise DemoFailed(f"the simulated camera ended with exit code {sent.returncode}:\n{output}")
        outcome, _ = follower.communicate(timeout=FOLLOW_TIMEOUT_S)
    say(indented(sent.stdout))
    if follower.returncode:
        raise DemoFailed(f"the follower ended with exit code {follower.returncode}: {outcome}")
    check_follower(json.loads(outcome))


def indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())


def check_follower(outcome: dict[str, Any]) -> None:
    if outcome["wrong"] or outcome["seen"] != FRAMES or not outcome["complete"]:
        raise DemoFailed(f"the follower expected {FRAMES} right frames of a complete dataset, and found {outcome}")
    if not outcome["live"]:
        raise DemoFailed("the follower saw no frame before the dataset was complete")
    say(f"  follower: {FRAMES} frames, all as sent, {outcome['live']} of them while the acquisition ran")


def show_receipt(dataset: Path) -> None:
    receipt = json.loads((dataset / "receipt.json").read_text(encoding="utf-8"))
    for name in ("status", "sent", "stored", "skipped", "missing", "payload_bytes", "without_checksum", "path"):
        say(f"  {name:17}{receipt[name]}")
    if (receipt["status"], receipt["sent"], receipt["stored"], len(receipt["missing"])) != (
        "completed",
        FRAMES,
        FRAMES,
        0,
    ):
        raise DemoFailed(f"the receipt must say completed with {FRAMES} frames sent and stored")


def read_back(path: Path) -> None:
    dataset = acqstream.open(path)
    count = 0
    for number, key in enumerate(dataset.keys()):
        expected = CAMERA.frame(number, SHAPE, DTYPE)
        if not np.array_equal(dataset.read_frame(**key), expected):
            raise DemoFailed(f"frame {number} at {dict(key)} is not what the camera sent")
        count += 1
    if count != FRAMES or not dataset.complete:
        raise DemoFailed(f"{count} of {FRAMES} frames are there, complete is {dataset.complete}")
    say(f"  {count} frames of {SHAPE[0]}x{SHAPE[1]} {DTYPE}, axes {', '.join(dataset.axes)}: every pixel as sent")
    dataset.close()


def read_mirror(path: Path) -> None:
    """The copy that was made while the camera ran."""
    deadline = time.monotonic() + FOLLOW_TIMEOUT_S
    with acqstream.open(path) as mirror:
        while not mirror.complete:
            if time.monotonic() > deadline:
                raise DemoFailed(f"{path} is not complete within {FOLLOW_TIMEOUT_S} s")
            time.sleep(0.05)
            mirror.refresh()
        array = mirror.levels[0].read().reshape(FRAMES, *SHAPE)
        for number, frame in enumerate(array):
            if not np.array_equal(frame, CAMERA.frame(number, SHAPE, DTYPE)):
                raise DemoFailed(f"frame {number} in {path} is not what the camera sent")
        levels = ", ".join("x".join(map(str, level.shape)) for level in mirror.levels)
    say(f"  {MIRROR}: levels {levels}: every pixel as sent")


def stop(daemon: subprocess.Popen[Any]) -> None:
    daemon.send_signal(signal.SIGTERM)
    code = daemon.wait(STOP_TIMEOUT_S)
    if code and sys.platform != "win32":  # Windows has no such signal: the process is ended from outside there
        raise DemoFailed(f"the daemon ended with exit code {code} after SIGTERM, 0 was expected")
    say("  stopped with exit code 0" if code == 0 else "  stopped")


def demonstrate(folder: Path, log_path: Path) -> None:
    data = folder / "data"
    data.mkdir()
    endpoint = free_endpoint()
    serve = acqstream_command("serve", "--data", str(data), "--endpoint", endpoint)
    with log_path.open("wb") as log, ended_afterwards(subprocess.Popen(serve, stdout=log, stderr=log)) as daemon:
        wait_until_it_answers(daemon, endpoint)
        say(f"1. The daemon answers at {endpoint} and writes to {data}")
        say(f"2. A simulated camera sends {FRAMES} frames; another process follows them live")
        send_and_follow(endpoint, data)
        dataset = next(entry for entry in sorted(data.iterdir()) if (entry / "receipt.json").is_file())
        say("3. The receipt")
        show_receipt(dataset)
        say("4. Read back and compared")
        read_back(dataset)
        read_mirror(dataset.with_name(f"{dataset.name}.{MIRROR}"))
        say("5. The daemon gets SIGTERM")
        stop(daemon)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="acqstream-demo-") as name:
        log_path = Path(name) / "daemon.log"
        try:
            demonstrate(Path(name), log_path)
        except (DemoFailed, subprocess.TimeoutExpired, acqstream.AcqStreamError, OSError, StopIteration) as error:
            say(f"\nthe demonstration failed: {type(error).__name__}: {error}")
            if log_path.exists():
                say(f"the daemon's log:\n{log_path.read_text(encoding='utf-8', errors='replace')}")
            return 1
    say("The demonstration went well.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
