"""Wheels of the project: one with the compiled kernels for this platform, and one without them for every platform."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from pathlib import Path

from steps import EXIT_INSTALL_FAILED, ROOT, StepFailed, last_lines, run_quietly, say

SOURCES = ("acqstream", "pyproject.toml", "README.md", "LICENSE")
EXIT_NO_KERNELS = 7
BUILD_TIMEOUT_S = 600
# Settings that make a wheel one of a platform, also where the optional extension could not be built.
_OF_PLATFORM = (re.compile(r"^ext-modules = .*\n", re.MULTILINE), re.compile(r"^py-limited-api = .*\n", re.MULTILINE))

NO_KERNELS = """\
{name} has no compiled kernels. They need a C compiler and the headers of Python; Debian and Ubuntu:
apt install gcc python3-dev
The wheel for every platform was made: {pure}"""


def build_wheels(python: Path, target: Path, variables: dict[str, str] | None = None) -> list[Path]:
    """Build both wheels into `target` with the setuptools of this Python; the one for every platform is the last one.

    variables: further ones of the environment. Raises StepFailed if a wheel cannot be built, or has no kernels.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = copy_sources(Path(folder) / "platform")
        made = build_wheel(python, source, target, variables)
        pure_source = copy_sources(Path(folder) / "pure")
        make_pure(pure_source / "pyproject.toml")
        pure = build_wheel(python, pure_source, target, variables)
    if not has_kernels(made):
        made.unlink()
        raise StepFailed(NO_KERNELS.format(name=made.name, pure=pure), EXIT_NO_KERNELS)
    return [made, pure]


def build_wheel(python: Path, source: Path, target: Path, variables: dict[str, str] | None = None) -> Path:
    """Build the wheel of a source folder."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder]
        code, output = run_quietly([*command, str(source)], BUILD_TIMEOUT_S, variables)
        if code:
            raise StepFailed(f"{last_lines(output, 20)}\nthe wheel could not be built", EXIT_INSTALL_FAILED)
        (wheel,) = Path(folder).glob("*.whl")
        target.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, target / wheel.name))


def copy_sources(folder: Path) -> Path:
    """Copy what a wheel is made of: a build in the checkout would leave files there, and find those of earlier ones."""
    folder.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def make_pure(project: Path) -> None:
    """Take the extension out of a pyproject.toml."""
    text = project.read_text(encoding="utf-8")
    for setting in _OF_PLATFORM:
        text, count = setting.subn("", text)
        if count != 1:
            raise StepFailed(f"{project}: {count} lines match {setting.pattern!r}, expected 1", EXIT_INSTALL_FAILED)
    project.write_text(text, encoding="utf-8")


def has_kernels(wheel: Path) -> bool:
    with zipfile.ZipFile(wheel) as archive:
        return any(Path(name).match("_kernels*.so") or Path(name).match("_kernels*.pyd") for name in archive.namelist())


def report_wheels(wheels: list[Path]) -> None:
    for wheel in wheels:
        say(f"{wheel} ({wheel.stat().st_size / 1e3:.0f} kB)")
