"""A real HSDS server on a folder, and h5pyd as its client, in an environment and processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-hsds"
PYTHON = VENV / "bin" / "python"
SERVER = Path(__file__).with_name("hsds_start.py")
PROGRAM = Path(__file__).with_name("hsds_program.py")
CACHE_S = 1  # of metadata and chunks; 0 means forever
_START_S = 100.0
_END_S = 20.0
_POLL_S = 0.05


def needs_hsds() -> pytest.MarkDecorator:
    """Skip where the environment with the server was not made; it listens at a Unix socket."""
    place = PYTHON.relative_to(ROOT)
    reason = f"no {place}: HSDS is in an environment of its own, which `python3 tools/run.py test` makes"
    return pytest.mark.skipif(os.name == "nt" or not PYTHON.exists(), reason=reason)


class HsdsError(Exception):
    """The error that h5pyd raised."""


class HsdsServer:
    """Serves the buckets in `root` as long as the `with` block lasts, with caches of CACHE_S seconds.

    bucket is the one of a client that names none. Methods are those of `hsds_program`.
    """

    def __init__(self, root: Path, bucket: str) -> None:
        self.bucket = bucket
        self._root = root

    def __enter__(self) -> HsdsServer:
        # Short, since the path of a socket is bounded, and empty, since it takes settings from where it is started.
        self._folder = Path(tempfile.mkdtemp(prefix="hs"))
        self._home, self._sockets = self._folder / "h", self._folder / "s"
        self._home.mkdir()
        path = f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"
        caches = {f"{kind}_MEM_CACHE_EXPIRE": str(CACHE_S) for kind in ("METADATA", "CHUNK")}
        own = {"HOME": str(self._home), "PATH": path, "BUCKET_NAME": self.bucket, **caches}
        self._environment = {**os.environ, **own}
        try:
            self._start_server()
            self._client = subprocess.Popen(
                [str(PYTHON), "-W", "ignore", str(PROGRAM), self._endpoint()],
                cwd=self._home,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
        except BaseException:
            self._end_server()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._client as client:  # closes its input, so that it ends
                try:
                    client.communicate(timeout=_END_S)
                except subprocess.TimeoutExpired:
                    client.kill()
        finally:
            self._end_server()
            shutil.rmtree(self._folder, ignore_errors=True)

    def objects(self, domain: str, bucket: str = "") -> dict[str, Any]:
        """As `hsds_program.objects`. bucket: another one than that of the server."""
        return self._ask("objects", bucket or self.bucket, domain)

    def read(self, domain: str, path: str, bucket: str = "") -> NDArray[Any]:
        """All of a dataset as the server has it, maybe as it was CACHE_S seconds ago."""
        place = self._folder / "array.npy"
        self._ask("read", bucket or self.bucket, domain, path, place)
        array: NDArray[Any] = np.load(place)
        place.unlink()  # what is there next time was read then
        return array

    def shape(self, domain: str, path: str, bucket: str = "") -> list[int]:
        """The shape of a dataset as the server has it, maybe as it was CACHE_S seconds ago."""
        found: list[int] = self._ask("shape", bucket or self.bucket, domain, path)["shape"]
        return found

    def _ask(self, *words: object) -> dict[str, Any]:
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self._client.stdin.flush()
        line = self._client.stdout.readline()
        assert line, f"the client ended with {self._client.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            raise HsdsError(answer["error"])
        found: dict[str, Any] = answer["found"]
        return found

    def _endpoint(self) -> str:
        return f"http+unix://{str(self._sockets / 'sn_1.sock').replace('/', '%2F')}"

    def _start_server(self) -> None:
        command = [str(PYTHON), "-W", "ignore", str(SERVER), "--root_dir", str(self._root)]
        command += ["--bucket_name", self.bucket, "--socket_dir", str(self._sockets), "--count", "1"]
        command += ["--hs_username", "admin", "--hs_password", "admin"]
        command += ["--logfile", str(self._folder / "log"), "--loglevel", "WARNING"]
        self._sockets.mkdir()
        output = self._folder / "out"
        with output.open("wb") as log:
            self._server = subprocess.Popen(
                command, cwd=self._home, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

        def is_ready_or_ended() -> bool:
            return b"READY!" in output.read_bytes() or self._server.poll() is not None

        until(is_ready_or_ended, "the server is ready", _START_S, every_s=_POLL_S)
        text = output.read_text("utf-8", "replace")
        assert "READY!" in text, f"the server ended with {self._server.returncode}: {text[-2000:]}"

    def _end_server(self) -> None:
        # SIGTERM would end the parent alone and leave its workers.
        if self._server.poll() is None:
            self._server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(_END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)  # workers of a parent that failed
        self._server.wait()
