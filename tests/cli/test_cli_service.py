"""The verb `service`, and the log file of a daemon without a console."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acqstream.cli import output
from acqstream.cli.output import LogFile
from acqstream.storage.platform import pc
from tests.command import command


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that were installed."""
    installed: list[list[str]] = []

    def install(command: list[str], _log: Path) -> str:
        installed.append(command)
        return "installed"

    def remove() -> str:
        installed.clear()
        return "removed"

    monkeypatch.setattr(pc, "install", install)
    monkeypatch.setattr(pc, "remove", remove)
    monkeypatch.setattr(pc, "is_installed", lambda: bool(installed))
    return installed


def run(*arguments: str) -> object:
    return command("service", *arguments)


def test_the_daemon_gets_absolute_paths(
    commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text("memory_mb = 64\n")
    assert run("status") == 1
    assert run("install", "--data", "data", "--config", "c.toml") == 0
    paths = ["--config", str(tmp_path / "c.toml"), "--data", str(tmp_path / "data")]
    assert commands == [[sys.executable, "-m", "acqstream", "serve", *paths]]
    assert (tmp_path / "data").is_dir()
    assert run("status") == 0
    assert run("remove") == 0
    assert run("status") == 1


def test_a_configuration_that_cannot_work_is_not_installed(commands: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("memory_mb = 1\n")
    assert run("install", "--config", str(tmp_path / "c.toml")) == 78
    assert run("install") == 2
    assert commands == []


def test_the_log_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_LOG_BYTES", 1000)
    log = LogFile(tmp_path / "log")
    for number in range(800):
        log.write(b"message %d\n" % number)
    log.close()
    assert {path.name for path in tmp_path.iterdir()} == {"log", *(f"log.{n + 1}" for n in range(output.N_OLD_LOGS))}
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    kept = "".join((tmp_path / name).read_text() for name in ("log.4", "log.3", "log.2", "log.1", "log")).splitlines()
    assert kept == [f"message {number}" for number in range(800 - len(kept), 800)]


def test_no_message_is_lost_while_the_log_cannot_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows renames no file that is open in an editor."""
    monkeypatch.setattr(output, "MAX_LOG_BYTES", 100)
    log = LogFile(tmp_path / "log")

    def refuse(_source: object, _target: object) -> None:
        raise PermissionError(13, "in use")

    monkeypatch.setattr(os, "replace", refuse)
    for number in range(50):
        log.write(b"message %d\n" % number)
    log.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == [f"message {number}" for number in range(50)]


def test_a_daemon_that_cannot_start_says_so_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "acqstream.log"
    command = [sys.executable, "-m", "acqstream", "serve", "--data", str(tmp_path / "missing"), "--log", str(log)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 78
    assert "cannot start: data directory" in log.read_text("utf-8")
