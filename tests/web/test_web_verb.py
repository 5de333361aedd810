"""`acqstream web` as a command."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from acqstream.web.web_settings import WebLimits
from tests.waiting import HANG_S
from tests.web.web_process import web_process


def run(data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "acqstream", "web", "--data", str(data), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def test_other_machines_need_a_token(tmp_path: Path) -> None:
    done = run(tmp_path, "--address", "0.0.0.0", "--port", "0")
    assert done.returncode == 78
    assert "a token is needed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_is_taken_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(tmp_path, "--port", str(port))
    assert (done.returncode, f"127.0.0.1:{port}" in done.stderr) == (78, True)
    done = run(tmp_path / "none")
    assert (done.returncode, "missing" in done.stderr) == (78, True)


def test_a_token_file_is_made_and_asked_for(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "token"
    with web_process(tmp_path / "data", "--token-file", str(path)) as site:
        token = path.read_text().strip()
        assert site.ask("/data/none").status == 401
        assert site.ask(f"/t/{token}/data/none").status == 404
        assert site.process is not None
        site.process.terminate()
        assert site.process.wait(HANG_S) == (1 if os.name == "nt" else 0)  # Windows has no signal that asks
    assert token not in (tmp_path / "web.log").read_text()


def test_it_goes_last_with_the_threads_that_read(tmp_path: Path) -> None:
    with web_process(tmp_path) as site:
        assert site.process is not None
        process = psutil.Process(site.process.pid)
        if psutil.WINDOWS:
            assert process.nice() == psutil.BELOW_NORMAL_PRIORITY_CLASS
            return
        niceness = max(10, psutil.Process().nice())
        assert process.nice() == niceness
        if psutil.LINUX:  # every thread has its own; those of numpy were there before
            last = [psutil.Process(one.id) for one in process.threads()]
            last = [one for one in last if one.nice() == niceness]
            assert {tuple(one.ionice()) for one in last} == {(psutil.IOPRIO_CLASS_BE, 7)}
            assert len(last) > WebLimits().threads
