"""The lock files pin everything that the environments of tools/run.py contain."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_PINNED = {"acqstream", "pip"}  # ourselves, and what came with the Python


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str = "constraints.txt") -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs), "every line is a comment or name==version"
    return {canonical(name): version for name, version in pairs}


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not the environment of tools/run.py")
def test_every_installed_package_is_pinned():
    installed = {canonical(found.name): found.version for found in distributions()}
    pinned = pins()
    loose = {
        f"{name}=={version}"
        for name, version in installed.items()
        if name not in NOT_PINNED and pinned.get(name) != version
    }
    assert not loose, f"pin these in requirements/constraints.txt: {', '.join(sorted(loose))}"


@pytest.mark.parametrize("package", ["webknossos", "hsds"])
def test_the_environments_of_other_packages_have_the_pinned_versions(package):
    venv = ROOT / f".venv-{package}"
    folders = [*venv.glob("lib/python*/site-packages"), *venv.glob("Lib/site-packages")]
    if not folders:
        pytest.skip(f"{venv.name} was not made here")
    installed = {canonical(found.name): found.version for found in distributions(path=[str(folders[0])])}
    assert installed.items() >= pins(f"{package}.txt").items()


@pytest.mark.parametrize("name", ["constraints.txt", "webknossos.txt", "hsds.txt", "windows.txt"])
def test_names_are_pinned_once(name):
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    names = [canonical(line.split("==")[0]) for line in lines if not line.startswith("#")]
    assert sorted(set(names)) == sorted(names)


def test_the_windows_python_has_the_versions_of_the_other_one_but_for_numpy():
    pinned, windows = pins(), pins("windows.txt")
    assert {name for name, version in windows.items() if pinned.get(name) != version} == {"numpy"}
