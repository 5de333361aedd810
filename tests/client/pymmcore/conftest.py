"""One real core with virtual devices for all tests of this folder, and a stand-in for the daemon's side."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import subprocess
import sys
import time
import types

import numpy as np
import pytest

os.environ["PYMM_LOG_FILE"] = "0"  # else a log file appears in the user's data folder
pytest.importorskip("pymmcore_plus")

import acqstream
from acqstream.model.receipt import MissingFrames, Receipt
from tests.live.daemon_process import free_port
from tests.waiting import WAIT_S


def sha_of(image):
    """Of the pixels in C order."""
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()


class FakeRun:
    """Keeps what it is given; fails where it is told to."""

    def __init__(self, name, options):
        self.name = name
        self.options = options
        self.frames = []  # (axes, sha, shape, dtype, meta, bits, time_ns)
        self.skips = []
        self.status = None
        self.reason = None
        self.fail_at = None
        self.loses = 0  # frames that the receipt does not have
        self.error = None
        self.hold = None
        self.refused = types.SimpleNamespace(is_raised=True)
        self.stored = ()

    def put(self, image, axes=None, /, *, meta=None, bits=None, time_ns=None, **axes_kw):
        if self.hold is not None:
            self.hold()
        if self.error is None and self.fail_at == len(self.frames):
            self.fail(acqstream.DiskFull(OSError(28, "No space left on device"), self.name, "write"))
        if self.error is not None:
            raise self.error
        key = tuple(sorted({**(axes or {}), **axes_kw}.items()))
        assert key not in {frame[0] for frame in self.frames}, f"duplicate axes {key}"
        self.frames.append((key, sha_of(image), image.shape, image.dtype.str, meta, bits, time_ns))

    def fail(self, error):
        self.error = error

    def skip(self, count=1, *, reason):
        if self.error is not None:
            raise self.error
        self.skips.append((count, reason))

    def close(self, status="completed", reason=""):
        if self.status is None:
            self.status, self.reason = status, reason
        if self.error is not None:
            raise self.error
        skipped = sum(count for count, _ in self.skips)
        missing = tuple(MissingFrames(0, count, text) for count, text in self.skips)
        return Receipt(
            dataset_id="0" * 32,
            path=f"/data/{self.name}",
            status=status,
            reason=reason,
            stored=len(self.frames) - self.loses,
            skipped=skipped,
            missing=missing,
        )

    @property
    def axes(self):
        return [dict(frame[0]) for frame in self.frames]


class FakeDaemon:
    def __init__(self):
        self.runs = []
        self.refusal = None
        self.fail_at = None
        self.loses = 0
        self.hold = None  # called by every put: to wait for something

    def create(self, name, **options):
        if self.refusal is not None:
            raise self.refusal
        run = FakeRun(name, options)
        run.fail_at, run.loses, run.hold = self.fail_at, self.loses, self.hold
        self.runs.append(run)
        return run


@pytest.fixture
def fake(monkeypatch):
    """Takes the place of the client's `create`."""
    daemon = FakeDaemon()
    monkeypatch.setattr("acqstream.client.producer.create", daemon.create)
    return daemon


@pytest.fixture(scope="session")
def one_core():
    # Several cores in one process can abort at its exit: there is one, for the whole session.
    adapters = pytest.importorskip("mm_test_adapters")
    from pymmcore_plus import CMMCorePlus

    folder = str(adapters.device_adapter_path())
    core = CMMCorePlus(mm_path=folder)
    yield core, folder
    core.unloadAllDevices()


@pytest.fixture
def core(one_core):
    """The demo microscope as it comes, with small images."""
    core, folder = one_core
    core.loadSystemConfiguration(f"{folder}/MMConfig_demo.cfg")
    set_size(core, "Camera", 64, 32)
    core.setProperty("Camera", "Mode", "Noise")  # every image differs
    core.setExposure(1)
    yield core
    assert type(core.mda.engine).__name__ == "MDAEngine", "the engine was not put back"


def set_size(core, camera, width, height):
    core.setProperty(camera, "OnCameraCCDXSize", width)
    core.setProperty(camera, "OnCameraCCDYSize", height)


@pytest.fixture
def camera_size(core):
    return functools.partial(set_size, core, "Camera")


@pytest.fixture
def two_cameras(core):
    """The core with two cameras behind the adapter that combines them."""
    core.loadDevice("Camera2", "DemoCamera", "DCam")
    core.initializeDevice("Camera2")
    set_size(core, "Camera2", 64, 32)
    for name in ("Camera", "Camera2"):
        core.setProperty(name, "PixelType", "16bit")
        core.setProperty(name, "Mode", "Noise")
    core.loadDevice("Both", "Utilities", "Multi Camera")
    core.initializeDevice("Both")
    core.setProperty("Both", "Physical Camera 1", "Camera")
    core.setProperty("Both", "Physical Camera 2", "Camera2")
    core.setCameraDevice("Both")
    return core


@pytest.fixture
def sha():
    return sha_of


@pytest.fixture
def delivered(core):
    """Index and sha of what the core delivered, from the signal, which comes after the frame was sent."""
    seen = []

    def take(image, event):
        seen.append((dict(event.index), sha_of(image)))

    core.mda.events.frameReady.connect(take)
    yield seen
    core.mda.events.frameReady.disconnect(take)


class DaemonProcess:
    """`acqstream serve` in a process of its own, with a data directory of its own."""

    def __init__(self, folder):
        self._address = ("127.0.0.1", free_port())
        self.endpoint = f"tcp://127.0.0.1:{self._address[1]}"
        data = folder / "data"
        data.mkdir()
        (folder / "daemon.toml").write_text("memory_mb = 256\nlow_space_minutes = 0\n", encoding="utf-8")
        command = [sys.executable, "-m", "acqstream", "serve", "--config", str(folder / "daemon.toml")]
        command += ["--data", str(data), "--endpoint", self.endpoint]
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
        self.log = folder / "daemon.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def wait_until_listening(self):
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(self._address, timeout=1).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.02)
        raise AssertionError(f"the daemon did not start:\n{self.log.read_text()}")

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()


def running_daemon(folder):
    daemon = DaemonProcess(folder)
    try:
        daemon.wait_until_listening()
        yield daemon
    finally:
        daemon.end()


@pytest.fixture(scope="session")
def live_daemon(tmp_path_factory):
    """One daemon for all tests that leave it alive."""
    yield from running_daemon(tmp_path_factory.mktemp("daemon"))


@pytest.fixture
def own_daemon(tmp_path):
    """A daemon that the test may kill."""
    yield from running_daemon(tmp_path)


@pytest.fixture
def free_endpoint():
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))
        yield f"tcp://127.0.0.1:{probe.getsockname()[1]}"
