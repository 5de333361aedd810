"""The webknossos package as a reader and writer of datasets, in an environment and a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("webknossos_program.py")
_END_S = 10.0


def python_of(environment: str) -> Path:
    """The interpreter of an environment of the checkout."""
    return ROOT / environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


PYTHON = python_of(".venv-webknossos")


def needs_environment(reader: str, python: Path = PYTHON) -> pytest.MarkDecorator:
    """Skip where the environment of this reader, which the tests cannot share, was not made."""
    place = python.relative_to(ROOT)
    reason = f"no {place}: {reader} is in an environment of its own, which `python3 tools/run.py test` makes"
    return pytest.mark.skipif(not python.exists(), reason=reason)


class WebknossosError(Exception):
    """What the package said."""


class WebknossosPackage:
    """One process that answers as long as the `with` block lasts."""

    def __init__(self, work_folder: Path) -> None:
        self._folder = work_folder

    def __enter__(self) -> WebknossosPackage:
        quiet = {"WEBKNOSSOS_SKIP_VERSION_CHECK": "True"}  # or it asks its index for a newer one
        command = [str(PYTHON), "-I", "-W", "ignore", str(PROGRAM)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **quiet}, encoding="utf-8"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process as process:  # closes its input, so that it ends
            try:
                process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def read(self, dataset: Path) -> dict[str, Any]:
        """As `webknossos_program.read`; with the voxels of each magnification, (z, y, x, c), under "voxels"."""
        found = self._ask("read", dataset, self._folder)
        for name, layer in found["layers"].items():
            for mag, told in layer["mags"].items():
                told["voxels"] = self._load(f"{name}_{mag}.npy")
        return found

    def write(self, dataset: Path, voxels: NDArray[Any], coarsest: str) -> None:
        """As `webknossos_program.write`."""
        np.save(self._folder / "voxels.npy", voxels)
        self._ask("write", dataset, self._folder / "voxels.npy", coarsest)

    def _load(self, name: str) -> NDArray[Any]:
        path = self._folder / name
        array: NDArray[Any] = np.load(path)
        path.unlink()  # what is there next time was read then
        return array

    def _ask(self, *words: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the process ended with {self._process.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            raise WebknossosError(answer["error"])
        found: dict[str, Any] = answer["found"]
        return found
