"""A minimal Debian in a folder, with the packages that acqstream needs beside it, for tests that boot a system."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

SUITE = "bookworm"
ARCHIVE = "http://deb.debian.org/debian"
# The last three: sessions of users, who may keep their services running, and pipx for the user service.
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,libpam-systemd,polkitd,pipx"
SUITE_PYTHON = "3.11"  # of that suite
REACH_S = 15.0
BUILD_S = 400.0  # for each step, all of which take less than a minute where archive and index are near
ROOTS_VARIABLE = "ACQSTREAM_TEST_ROOTS"
"""A folder that keeps a finished root for the next run, by suite and packages; without it each run makes its own."""
CHECKOUT = Path(__file__).resolve().parents[2]
CHECKOUT_INSIDE = "usr/src/acqstream"
WHEELS_INSIDE = "usr/src/wheels"


def run_whole(command: list[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command that starts others; all of them end with it, and after BUILD_S.

    Those that outlive it would keep the pipes of its output open, and the one who reads them waiting.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, error = process.communicate(timeout=BUILD_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, error)


def skip_unless_possible() -> None:
    """Skip, and say why, where no system can be booted."""
    if not sys.platform.startswith("linux"):
        pytest.skip("boots a Linux system")
    if os.geteuid() != 0:
        pytest.skip("only root boots a system in a folder")
    for program, package in (("debootstrap", "debootstrap"), ("systemd-nspawn", "systemd-container")):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing (package {package})")


def make_root(root: Path, cache: Path | None) -> None:
    """Fill the folder `root` for a boot. Skips where the archive or the package index cannot be reached."""
    make_system(root, cache, SUITE, PACKAGES)
    _add_wheels(root)
    add_checkout(root)


def make_system(root: Path, cache: Path | None, suite: str, packages: str) -> None:
    """Fill the folder `root` with a Debian, or with the one that `cache` keeps. Skips where there is no archive."""
    kept = cache / f"{suite}-{packages.replace(',', '-')}" if cache is not None else None
    if kept is not None and kept.is_dir():
        subprocess.run(["cp", "-a", f"{kept}/.", str(root)], check=True, timeout=BUILD_S)
        return
    _debootstrap(root, suite, packages)
    if kept is not None:
        partial = kept.with_name(f"{kept.name}.{os.getpid()}")
        subprocess.run(["cp", "-a", f"{root}/.", str(partial)], check=True, timeout=BUILD_S)
        partial.rename(kept)


def _debootstrap(root: Path, suite: str, packages: str) -> None:
    try:
        urllib.request.urlopen(f"{ARCHIVE}/dists/{suite}/Release", timeout=REACH_S).close()
    except (OSError, urllib.error.URLError) as error:
        pytest.skip(f"the package archive {ARCHIVE} cannot be reached: {error}")
    # It mounts /proc in `root`, and leaves it there when it is killed: not where others would see or delete it.
    command = ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={packages}"]
    command += [suite, str(root), ARCHIVE]
    try:
        done = run_whole(command)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the package archive {ARCHIVE} is too slow: not within {BUILD_S:g} s")
    if done.returncode and any(sign in done.stdout + done.stderr for sign in ("Couldn't download", "Failed getting")):
        pytest.skip(f"the package archive {ARCHIVE} lacks something: {done.stdout.splitlines()[-3:]}")
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def _add_wheels(root: Path) -> None:
    """What `pip install '.[web]'` needs inside, where there is no network: the versions that are pinned."""
    wheels = root / WHEELS_INSIDE
    constraints = CHECKOUT / "requirements" / "constraints.txt"
    needed = [line.split()[0].strip('",') for line in _dependencies()]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--python-version", SUITE_PYTHON, "--dest", str(wheels), "--constraint", str(constraints)]
    command += ["pip", "setuptools", *needed]
    done = run_whole(command)
    if done.returncode:
        pytest.skip(f"the package index cannot be reached, or lacks a wheel: {done.stderr.strip()[-300:]}")
    settings = f"[global]\nno-index = true\nfind-links = /{WHEELS_INSIDE}\ndisable-pip-version-check = true\n"
    (root / "etc" / "pip.conf").write_text(settings, encoding="utf-8")


def _dependencies() -> list[str]:
    import tomllib

    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["web"]]


def add_checkout(root: Path) -> None:
    """The files that `pip install .`, README's first command and the page use."""
    inside = root / CHECKOUT_INSIDE
    for name in ("acqstream", "systemd", "requirements", "tools"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / name, inside / name, ignore=ignored, dirs_exist_ok=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, inside / name)
