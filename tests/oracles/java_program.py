"""A Java program with libraries from Maven Central: fetched, compiled and run once.

The jars stay in a cache folder outside the repository. `JavaUnavailable` says what this machine lacks; anything else
that goes wrong is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent / "java"
FETCH_TIMEOUT_S = 180
COMPILE_TIMEOUT_S = 60
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class JavaUnavailable(RuntimeError):
    """This machine has no Java, or cannot fetch the libraries."""


def run_java(
    name: str, pom: str, arguments: Sequence[str | Path], work_folder: Path, *, charset: str, timeout_s: float
) -> str:
    """Standard output of the program `name`.java with the libraries that `pom` names. Raises JavaUnavailable."""
    java, javac = _tool("java"), _tool("javac")
    class_path = os.pathsep.join([str(_jars(FOLDER / pom) / "*"), str(work_folder)])
    source = FOLDER / f"{name}.java"
    _run([javac, "-encoding", "UTF-8", "-cp", class_path, "-d", work_folder, source], COMPILE_TIMEOUT_S)
    options = ["-Djava.awt.headless=true", f"-Dfile.encoding={charset}", "-cp", class_path]
    return _run([java, *options, name, *arguments], timeout_s)


def _jars(pom: Path) -> Path:
    """The folder with the libraries and what they need, fetched if they are not all there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "acqstream-test" / f"java-{pom.stem}"
    stamp, wanted = folder / "made-from.txt", pom.read_text(encoding="utf-8")
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    quiet = ["-B", "-q", "-Dstyle.color=never"]
    command: list[str | Path] = [_tool("mvn"), *quiet, "-f", pom, _COPY, f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise JavaUnavailable(f"mvn did not fetch the libraries of {pom.name} within {FETCH_TIMEOUT_S} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        raise JavaUnavailable(f"mvn cannot fetch the libraries of {pom.name}: {lines[0][:300]}")
    stamp.write_text(wanted, encoding="utf-8")
    return folder


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise JavaUnavailable(f"{name} is not on the PATH")
    return path


def _run(command: Sequence[str | Path], timeout_s: float) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout
