"""The tests of the compiled kernels once more, under the sanitizers for addresses and for undefined behaviour."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.grid.sanitized_kernels import KERNELS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "acqstream" / "grid" / "_kernels.c"
TESTS = ("tests/grid/test_kernels.py", "tests/mirrors/test_slab_kernels.py")
FLAGS = ("-std=c11", "-O1", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TIMEOUT_S = 600


def output_of(*command: str, **variables: str) -> tuple[int, str]:
    environment = {**os.environ, **variables}
    environment.pop("ACQSTREAM_KERNELS", None)  # also where the suite runs with numpy
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


def runtime_of(compiler: str) -> str:
    """The library of the address sanitizer, which Python must load first; "" where the compiler has none."""
    _, path = output_of(compiler, "-print-file-name=libasan.so")
    return path.strip() if os.path.isabs(path.strip()) else ""


@pytest.fixture
def compiler() -> str:
    if sys.platform != "linux":
        pytest.skip("sanitizers are used on Linux alone")
    found = shutil.which("gcc")
    if found is None:
        pytest.skip("no gcc")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("no Python.h")
    if not runtime_of(found):
        pytest.skip("gcc has no address sanitizer")
    return found


@pytest.mark.slow(is_always_run=True)
@pytest.mark.timeout_s(TIMEOUT_S)
def test_kernels_under_sanitizers(compiler: str, tmp_path: Path) -> None:
    library = tmp_path / "_kernels.abi3.so"
    include = f"-I{sysconfig.get_path('include')}"
    code, output = output_of(compiler, *FLAGS, *SANITIZERS, include, str(SOURCE), "-o", str(library))
    assert code == 0, output
    code, output = output_of(
        *(sys.executable, "-m", "pytest", "-q", "-p", "tests.grid.sanitized_kernels", "-p", "no:cacheprovider"),
        *TESTS,
        LD_PRELOAD=runtime_of(compiler),
        ASAN_OPTIONS="detect_leaks=0",  # Python keeps memory until its end
        **{KERNELS: str(library)},
    )
    assert code == 0, output
    assert f"kernels of {library}" in output
    assert "skipped" not in output
