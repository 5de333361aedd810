"""The Java reference library for NDTiff as a reader: fetched, compiled and run once for many datasets.

Its jars come from Maven Central and stay in a cache folder outside the repository. `JavaUnavailable` says what this
machine lacks; anything else that goes wrong is an error.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "java" / "ReadNdtiff.java"
POM = SOURCE.with_name("pom.xml")
JARS = {"NDTiffStorage-2.18.4.jar", "MMCoreJ-10.1.1.0.jar"}
FETCH_TIMEOUT_S = 180
COMPILE_TIMEOUT_S = 60
# The charset of Java on Western Windows: the library decodes axes with it, and what we write must survive that.
CHARSET = "windows-1252"


class JavaUnavailable(RuntimeError):
    """This machine has no Java, or cannot fetch the library."""


@dataclass(slots=True)
class JavaDataset:
    """What the library found in one dataset. images: as `ReadNdtiff.java` prints them."""

    summary: Mapping[str, Any] = field(default_factory=dict)
    images: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""


def read(datasets: Sequence[Path], work_folder: Path, *, timeout_s: float = 120) -> dict[Path, JavaDataset]:
    """Every dataset as the Java library reads it, from one start of Java. Raises JavaUnavailable."""
    java, javac = tool("java"), tool("javac")
    class_path = os.pathsep.join([str(_jars() / "*"), str(work_folder)])
    run_java_tool([javac, "-encoding", "UTF-8", "-cp", class_path, "-d", work_folder, SOURCE], COMPILE_TIMEOUT_S)
    options = ["-Djava.awt.headless=true", f"-Dfile.encoding={CHARSET}", "-cp", class_path]
    output = run_java_tool([java, *options, SOURCE.stem, *datasets], timeout_s)
    found = {path: JavaDataset() for path in datasets}
    for line in output.splitlines():
        values = json.loads(line)
        dataset = found[Path(values.pop("dataset"))]
        if "error" in values:
            dataset.error = values["error"]
        elif "summary" in values:
            dataset.summary = values["summary"]
        else:
            dataset.images.append(values)
    return found


def _jars() -> Path:
    """The folder with the library and what it needs, fetched if it is not there yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "acqstream-test" / "java"
    if all((folder / name).is_file() for name in JARS):
        return folder
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    fetch_by_maven(["-f", POM, goal, f"-DoutputDirectory={folder}"], "the Java library")
    missing = [name for name in JARS if not (folder / name).is_file()]
    assert not missing, f"{POM.name} and JARS disagree: {missing} not in {folder}"
    return folder


def fetch_by_maven(words: Sequence[str | Path], what: str) -> None:
    """Run Maven with these words. Raises JavaUnavailable."""
    command: list[str | Path] = [tool("mvn"), "-B", "-q", "-Dstyle.color=never", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise JavaUnavailable(f"mvn did not fetch {what} within {FETCH_TIMEOUT_S} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        raise JavaUnavailable(f"mvn cannot fetch {what}: {lines[0][:300]}")


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise JavaUnavailable(f"{name} is not on the PATH")
    return path


def run_java_tool(command: Sequence[str | Path], timeout_s: float) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout
