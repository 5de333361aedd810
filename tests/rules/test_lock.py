"""The lock files pin everything that the environments of tools/run.py contain."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[2]
NOT_PINNED = {"acqstream", "pip"}  # ourselves, and what came with the Python


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lines_of(name: str) -> list[tuple[str, str, str]]:
    """Name, version and marker (empty without one) of each line that is no comment."""
    found = []
    for line in (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            pin, _, marker = line.partition(" ; ")
            package, equals, version = pin.partition("==")
            assert equals, f"{line}: a line is a comment, or name==version, with a marker perhaps"
            found.append((canonical(package), version, marker))
    return found


def pins(name: str = "constraints.txt", environment: dict[str, str] | None = None) -> dict[str, str]:
    """What holds for this Python, or for one of other values of markers."""
    return {
        package: version
        for package, version, marker in lines_of(name)
        if not marker or Marker(marker).evaluate(environment)
    }


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


@pytest.mark.parametrize("package", ["webknossos", "hsds", "zarr2"])
def test_the_environments_of_other_packages_have_the_pinned_versions(package):
    venv = ROOT / f".venv-{package}"
    folders = [*venv.glob("lib/python*/site-packages"), *venv.glob("Lib/site-packages")]
    if not folders:
        pytest.skip(f"{venv.name} was not made here")
    installed = {canonical(found.name): found.version for found in distributions(path=[str(folders[0])])}
    assert installed.items() >= pins(f"{package}.txt").items()


@pytest.mark.parametrize("name", ["constraints.txt", "webknossos.txt", "hsds.txt", "zarr2.txt", "windows.txt"])
@pytest.mark.parametrize("python", ["3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0"])
def test_names_are_pinned_once(name, python):
    environment = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    names = [one for one, _, marker in lines_of(name) if not marker or Marker(marker).evaluate(environment)]
    assert sorted(set(names)) == sorted(names)
    assert len(names) > 5


def test_the_oldest_python_has_what_it_needs():
    """A stock Debian 12 has 3.11.2; a package of the documentation's tools needs 3.11.5 in its newest version."""
    old, new = (
        pins(environment={"python_full_version": python, "python_version": "3.11"}) for python in ("3.11.2", "3.11.7")
    )
    assert old.keys() == new.keys()
    assert old["soupsieve"] != new["soupsieve"]


def test_the_windows_python_has_the_versions_of_the_other_one_but_for_numpy():
    on_windows = {"sys_platform": "win32", "os_name": "nt", "python_full_version": "3.11.7", "python_version": "3.11"}
    pinned, windows = pins(environment=on_windows), pins("windows.txt")
    assert {name for name, version in windows.items() if pinned.get(name) != version} == {"numpy"}
