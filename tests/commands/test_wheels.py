"""Wheels with the compiled kernels, without them, and from a machine without a compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import wheels
from steps import StepFailed

NO_COMPILER = {"CC": "/no/such/compiler", "CXX": "/no/such/compiler", "LDSHARED": "/no/such/compiler"}


def has_compiler() -> bool:
    name = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(name) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def kernels_in(folder: Path, wheel: Path) -> str:
    """Which kernels the package in a wheel uses, with the other packages of this environment."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); from acqstream.grid import kernels as k; "
    command = [sys.executable, "-I", "-c", f"{program}print(k.__file__); print(k.kernels_name())"]
    path, name = subprocess.run(command, capture_output=True, text=True, check=True, env={}).stdout.split()
    assert Path(path).is_relative_to(folder)
    return name


@pytest.mark.slow
@pytest.mark.timeout_s(600)
def test_the_wheels_of_this_machine(tmp_path: Path) -> None:
    if not has_compiler():
        pytest.skip("no C compiler, or no headers of Python")
    with_kernels, pure = wheels.build_wheels(Path(sys.executable), tmp_path / "dist")
    assert "-cp311-abi3-" in with_kernels.name
    assert pure.name.endswith("-py3-none-any.whl")
    assert (wheels.has_kernels(with_kernels), wheels.has_kernels(pure)) == (True, False)
    assert kernels_in(tmp_path / "compiled", with_kernels) == "compiled"
    assert kernels_in(tmp_path / "pure", pure) == "numpy"
    for wheel in (with_kernels, pure):  # the developers' measurements are not in it
        with zipfile.ZipFile(wheel) as archive:
            assert {name.partition("/")[0].partition("-")[0] for name in archive.namelist()} == {"acqstream"}


@pytest.mark.slow
@pytest.mark.timeout_s(600)
def test_a_machine_without_a_compiler_installs_what_works(tmp_path: Path) -> None:
    source = wheels.copy_sources(tmp_path / "source")
    wheel = wheels.build_wheel(Path(sys.executable), source, tmp_path / "dist", NO_COMPILER)
    assert not wheels.has_kernels(wheel)
    assert kernels_in(tmp_path / "package", wheel) == "numpy"


@pytest.mark.slow
@pytest.mark.timeout_s(600)
def test_a_wheel_for_the_platform_without_kernels_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="no compiled kernels"):
        wheels.build_wheels(Path(sys.executable), tmp_path, NO_COMPILER)
    (pure,) = tmp_path.iterdir()
    assert pure.name.endswith("-py3-none-any.whl")


def test_settings_that_have_moved_are_reported(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.setuptools]\n")
    with pytest.raises(StepFailed, match="0 lines match"):
        wheels.make_pure(project)
