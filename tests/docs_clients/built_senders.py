"""The senders of docs/clients, compiled with what this machine has.

`ToolMissing` says what it lacks; a sender that does not compile is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "docs" / "clients"
POM = Path(__file__).parent / "java" / "pom.xml"
JAR = "jeromq-0.5.1.jar"
FETCH_TIMEOUT_S = 180
COMPILE_TIMEOUT_S = 60


class ToolMissing(RuntimeError):
    """This machine has no compiler or no library, or cannot fetch it."""


def c_sender(folder: Path) -> list[str]:
    """The command that runs sender.c."""
    compiler = _tool("gcc")
    probe = _ended([compiler, "-fsyntax-only", "-include", "zmq.h", "-x", "c", os.devnull], COMPILE_TIMEOUT_S)
    if probe.returncode != 0:
        raise ToolMissing("libzmq has no headers here (zmq.h)")
    program = folder / "sender"
    warnings = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    _succeed([compiler, *warnings, "-o", str(program), str(SOURCES / "sender.c"), "-lzmq"])
    return [str(program)]


def java_sender(folder: Path) -> list[str]:
    """The command that runs Sender.java; JeroMQ comes from Maven Central, once."""
    java, javac = _tool("java"), _tool("javac")
    class_path = os.pathsep.join([str(_jars() / "*"), str(folder)])
    _succeed(
        [javac, "-encoding", "UTF-8", "-Xlint:all", "-cp", class_path, "-d", str(folder), str(SOURCES / "Sender.java")]
    )
    return [java, "-cp", class_path, "Sender"]


def _jars() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "acqstream-test" / "jeromq"
    if (folder / JAR).is_file():
        return folder
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    command = [_tool("mvn"), "-B", "-q", "-Dstyle.color=never", "-f", str(POM), goal, f"-DoutputDirectory={folder}"]
    try:
        done = _ended(command, FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ToolMissing(f"mvn did not fetch JeroMQ within {FETCH_TIMEOUT_S} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        raise ToolMissing(f"mvn cannot fetch JeroMQ: {lines[0][:300]}")
    assert (folder / JAR).is_file(), f"{POM} and JAR disagree"
    return folder


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ToolMissing(f"{name} is not on the PATH")
    return path


def _ended(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=timeout_s, check=False)


def _succeed(command: Sequence[str]) -> None:
    done = _ended(command, COMPILE_TIMEOUT_S)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr[-3000:]}"
