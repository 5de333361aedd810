#!/usr/bin/env python3
"""One command for everything, from a bare Python 3.11 or newer on.

    python3 tools/run.py test [PYTEST ARGUMENT ...]    all checks, and the tests but the deep ones, pytest last
    python3 tools/run.py test --deep                   all tests: also those that take minutes or a system of their own
    python3 tools/run.py test --quick [...]            all checks, and the tests that start no processes, in 90 s
    python3 tools/run.py test-windows [--all] [...]    tests of tests/windows_list.txt: Wine, or Windows itself
    python3 tools/run.py demo [--dir DIR]              `acqstream demo`: in a new folder of the folder you are in
    python3 tools/run.py wheel                         wheels with the compiled kernels and without them, in dist
    python3 tools/run.py docs [--external]             the pages of docs/ as a site in build/docs; all links are checked

It makes the environment `.venv` in the checkout and fills it with what requirements/constraints.txt pins; `demo` makes
`.venv-demo`, of what users need; `test` makes more, for oracles, of what the other files in requirements pin. They are
kept until one of the files they come from changes. `test-windows` makes `.venv-windows` (tools/windows_bench.py).
Standard library only.

Exit codes: that of the first step that failed; 2 wrong arguments, 3 Python too old, 4 Python cannot make environments,
5 packages could not be installed, 6 too little space for the tests, 7 a wheel without the compiled kernels, 130
interrupted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from steps import (
    EXIT_INSTALL_FAILED,
    NETWORK_SIGNS,
    ROOT,
    StepFailed,
    ensure,
    last_lines,
    run_openly,
    run_quietly,
    say,
)
from wheels import build_wheels, report_wheels
from windows_run import run_windows_tests

VENV = ROOT / ".venv"
PROJECT = ROOT / "pyproject.toml"
KERNELS = ROOT / "acqstream" / "grid" / "_kernels.c"
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "docs"
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
EXTRAS = "test,dev,docs"
# The demo needs what users need and no more: it is the first thing that somebody tries, on a machine of any age.
DEMO_VENV = ROOT / ".venv-demo"
# Oracles that cannot live beside the other packages: each has an environment of what its file in requirements pins.
ORACLES = ("webknossos", "hsds", "zarr2")
# An interpreter of an age for which an oracle has no package goes without it: its tests are skipped, and counted.
OPTIONAL_FROM = {"zarr2": (3, 14)}
LOG_NAME = "install.log"

OLDEST_PYTHON = (3, 11)
NEWER_NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")

EXIT_USAGE = 2
EXIT_PYTHON_TOO_OLD = 3
EXIT_NO_VENV = 4
EXIT_DISK_FULL = 6
EXIT_INTERRUPTED = 130

VENV_TIMEOUT_S = 300
INSTALL_TIMEOUT_S = 1800
CHECK_TIMEOUT_S = 900
TEST_TIMEOUT_S = 3600
MIN_FREE_BYTES = 4_000_000_000  # the tests' daemons refuse frames on a disk that has little left
# One more than there are processors: many tests wait. Who runs what: tests/file_scheduling.py. A later -n 0 prevails.
IN_PARALLEL = ("-n", str(min(1 + (os.cpu_count() or 1), 8)), "--no-loadscope-reorder", "--max-worker-restart=0")
DEMO_TIMEOUT_S = 300
DOCS_TIMEOUT_S = 600
# Tests of files that are renamed and removed run a second time, on a disk that refuses what Windows refuses. Slow ones
# do not: they make the same calls again, at each of many faults.
WINDOWS_LIKE_TESTS = ("tests/log", "tests/storage", "tests/views")
WINDOWS_LIKE = {"ACQSTREAM_TEST_DISK": "windows"}
# Tests of pixels run a second time with numpy in place of the compiled kernels; `-m "not slow"` keeps them short.
PIXEL_TESTS = (
    "tests/grid",
    *(f"tests/mirrors/test_{name}.py" for name in ("slab", "assembly", "comparison", "memory_need", "mosaic_mirror")),
    *("tests/mirrors/test_golden_mirrors.py", "tests/mirrors/test_both_mirrors.py"),
    *("tests/views/test_pyramid_view.py", "tests/conformance/test_chunk_formats.py"),
)
WITHOUT_KERNELS = {"ACQSTREAM_KERNELS": "0"}
# Tests of the page run a second time in the other browser, where it is installed.
PAGE_NAMES = ("dataset_list", "page", "pixels", "runs", "view")
PAGE_TESTS = tuple(f"tests/web/test_{name}_in_browser.py" for name in PAGE_NAMES)
WITH_FIREFOX = {"ACQSTREAM_TEST_BROWSER": "firefox"}
NAME_KERNELS = "from acqstream.grid.kernels import kernels_name; print(kernels_name())"
QUICK = "--quick"
DEEP = "--deep"
FULL_TESTS = ("-m", "not deep")
QUICK_TESTS = ("-q", "-m", "not live and not slow and not oracle")

TOO_OLD = """\
acqstream needs Python 3.11 or newer; this is {found} ({executable}).
Install one beside it (Debian, Ubuntu: apt install python3.12 python3.12-venv; Windows, macOS: https://www.python.org)
and run: python3.12 tools/run.py {arguments}"""

NO_VENV = """\
{executable} cannot make a virtual environment:
{error}
{advice}"""
DEBIAN_VENV = """\
Debian and Ubuntu keep that in a package of its own. Type:
    {command}
    python3 tools/run.py {arguments}"""
OTHER_VENV = """\
Install a complete Python from https://www.python.org and run with it: PYTHON tools/run.py {arguments}"""

NO_INDEX = """\
pip cannot reach its package index, or that lacks what the files in requirements pin.
Behind a proxy, set HTTPS_PROXY; for another index, PIP_INDEX_URL. Without any network: on a machine that has one,
with the same system and Python, run in a copy of this folder
    python3 -m pip download -d wheels -c requirements/constraints.txt setuptools ".[test,dev,docs]"
    python3 -m pip download -d wheels --no-deps -r requirements/webknossos.txt  # hsds.txt and zarr2.txt, too
(`demo` needs the first one, without [...]); copy `wheels` here and run with PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels."""

# Settings of pip: those that uv has too, and those that change nothing about what is installed.
UV_NAMES = {
    "cert": "SSL_CERT_FILE",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
}
REASON = re.compile(r"\s*(error|ERROR|×)\b|\s*× ")  # the first line of it, of pip and of uv
MAX_REASON_LINES = 12
OF_NO_CONCERN = {"cache-dir", "default-timeout", "disable-pip-version-check", "no-input", "progress-bar", "timeout"}


# ------------------------------------------------------------------------------------------------------ the environment


def ensure_python() -> None:
    """Go on in a newer Python if this one is too old and another one is installed."""
    if sys.version_info >= OLDEST_PYTHON:
        return
    for name in NEWER_NAMES:
        found = shutil.which(name)
        if found:
            sys.exit(subprocess.call([found, *sys.argv]))
    found_version = ".".join(str(part) for part in sys.version_info[:3])
    text = TOO_OLD.format(found=found_version, executable=sys.executable, arguments=" ".join(sys.argv[1:]))
    raise StepFailed(text, EXIT_PYTHON_TOO_OLD)


def ensure_environment(venv: Path = VENV, extras: str = EXTRAS) -> Path:
    """Python of an environment that holds the project and what it needs for `extras`."""
    return ensure_venv(venv, [PROJECT, CONSTRAINTS, KERNELS], partial(install_project, extras=extras), extras)


def ensure_oracle(name: str) -> None:
    """Make the environment of one of ORACLES: what is pinned and nothing else."""
    if sys.version_info >= OPTIONAL_FROM.get(name, (4, 0)):
        say(f"environment: none of {name}, which has no package for this Python")
        return
    pins = CONSTRAINTS.with_name(f"{name}.txt")
    ensure_venv(ROOT / f".venv-{name}", [pins], lambda venv: install(venv, "--no-deps", "-r", str(pins)))


def ensure_venv(venv: Path, sources: list[Path], fill: Callable[[Path], None], details: str = "") -> Path:
    """Python of an environment, which is made and filled if it was not yet, or from other contents of `sources`."""

    def make(folder: Path) -> None:
        make_venv(folder)
        fill(folder)

    ensure(venv, venv_python(venv), sources, make, details)
    return venv_python(venv)


def venv_python(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def make_venv(venv: Path) -> None:
    code, output = run_quietly([sys.executable, "-m", "venv", str(venv)], VENV_TIMEOUT_S)
    if code:
        text = NO_VENV.format(executable=sys.executable, error=last_lines(output, 6), advice=venv_advice(sys.argv[1:]))
        raise StepFailed(text, EXIT_NO_VENV)


def venv_advice(arguments: list[str]) -> str:
    """What to type where this Python has no ensurepip: Debian's own is in /usr."""
    if sys.platform == "win32" or sys.base_prefix != "/usr" or shutil.which("apt") is None:
        return OTHER_VENV.format(arguments=" ".join(arguments))
    command = f"apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if os.geteuid() != 0:
        command = f"sudo {command}" if shutil.which("sudo") else f"su -c '{command}'"
    return DEBIAN_VENV.format(command=command, arguments=" ".join(arguments))


def install_project(venv: Path, extras: str) -> None:
    """The project, editable, with extras. Built with the setuptools pinned, not with whatever is newest today."""
    # The first needs nothing but the index: if it fails, that is out of reach or lacks what is pinned.
    pinned = ("-c", str(CONSTRAINTS))
    install(venv, *pinned, "setuptools", hint=NO_INDEX)
    project = (*pinned, "--no-build-isolation", "--editable", f"{ROOT}[{extras}]" if extras else str(ROOT))
    if not installed_by_uv(venv, *project):
        install(venv, *project)


def installed_by_uv(venv: Path, *arguments: str) -> bool:
    """uv takes a tenth of pip's time. False where there is none, it fails, or pip is told what uv has no word for."""
    settings = uv_settings(venv)
    if settings is None or run_quietly([*pip_install(venv), "-c", str(CONSTRAINTS), "uv"], INSTALL_TIMEOUT_S)[0]:
        return False
    python = str(venv_python(venv))
    uv = [python, "-m", "uv", "pip", "install", "--no-progress", "--python", python]
    code, output = run_quietly([*uv, *arguments], INSTALL_TIMEOUT_S, settings)
    log_install(venv, output)
    if code:
        say(f"environment: uv cannot install the packages, so pip tries; uv said: {reason_in(output)}")
    return code == 0


def uv_settings(venv: Path) -> dict[str, str] | None:
    """What pip's files and variables say, as uv's variables; None if there is something that uv has no word for."""
    code, output = run_quietly([str(venv_python(venv)), "-m", "pip", "config", "list"], VENV_TIMEOUT_S)
    told = dict(line.partition("=")[::2] for line in output.splitlines() if "=" in line)
    values = {name.rpartition(".")[2]: value.strip("'\"") for name, value in told.items()}
    if code or values.keys() - UV_NAMES.keys() - OF_NO_CONCERN:
        return None
    return {UV_NAMES[name]: value for name, value in values.items() if name in UV_NAMES}


def install(venv: Path, *arguments: str, hint: str = "") -> None:
    code, output = run_quietly([*pip_install(venv), *arguments], INSTALL_TIMEOUT_S)
    log = log_install(venv, output)
    if code == 0:
        return
    text = f"{reason_in(output)}\npackages could not be installed (pip's exit code {code}); all of it: {log}"
    if not hint and any(sign in output for sign in NETWORK_SIGNS):
        hint = NO_INDEX
    raise StepFailed(f"{text}\n{hint}".rstrip(), EXIT_INSTALL_FAILED)


def reason_in(output: str) -> str:
    """What an installer gives as its reason, or its last lines."""
    lines = output.strip().splitlines()
    first = next((number for number, line in enumerate(lines) if REASON.match(line)), -MAX_REASON_LINES)
    return "\n".join(lines[first:][:MAX_REASON_LINES])


def pip_install(venv: Path) -> list[str]:
    # Of most files nothing is ever loaded: they are compiled when they are.
    return [str(venv_python(venv)), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-compile"]


def log_install(venv: Path, output: str) -> Path:
    path = venv / LOG_NAME
    with path.open("a", encoding="utf-8") as log:
        log.write(output)
    return path


# ------------------------------------------------------------------------------------------------------------ the verbs


def run_tests(arguments: list[str]) -> int:
    """All checks, then pytest, whose summary is the last thing printed: the tests that are not marked as deep.

    With --deep, all of them; some run on the Windows-like disk, and some without the compiled kernels, first. If these
    fail, the others run too, and the exit code is theirs or that. Other arguments are pytest's, which then gets no
    others.
    """
    if QUICK in arguments:
        return run_quick_tests([argument for argument in arguments if argument != QUICK])
    is_deep = arguments == [DEEP]
    arguments = arguments[is_deep:]
    check_space(Path(tempfile.gettempdir()))
    with ThreadPoolExecutor(1) as pool:
        # They wait for the network mostly.
        others = [pool.submit(ensure_oracle, name) for name in ORACLES]
        python = ensure_environment()
        run_checks(python)
        for other in others:
            other.result()
    code = 0
    if is_deep:
        code = run_windows_like_tests(python) if sys.platform == "linux" else 0
        code = run_tests_without_kernels(python) or code
        code = run_some_tests(python, "Firefox", PAGE_TESTS, WITH_FIREFOX) or code
    elif not arguments:
        arguments = list(FULL_TESTS)
    say("pytest:")
    # Most of the tests wait for processes, disks and patience: two at a time take half as long.
    return run_openly([str(python), "-m", "pytest", *IN_PARALLEL, *arguments], TEST_TIMEOUT_S) or code


def check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        text = f"the tests need {MIN_FREE_BYTES / 1e9:.0f} GB of free space in {folder}; it has {free / 1e9:.1f} GB"
        raise StepFailed(f"{text}. Another folder: the variable TMPDIR", EXIT_DISK_FULL)


def run_windows_like_tests(python: Path) -> int:
    """Run tests on the disk of tests/storage/windows_like_disk.py."""
    return run_some_tests(python, "Windows-like disk", WINDOWS_LIKE_TESTS, WINDOWS_LIKE)


def run_tests_without_kernels(python: Path) -> int:
    """Run tests of pixels with numpy alone. Where no kernels were compiled, the main run does that."""
    _, name = run_quietly([str(python), "-c", NAME_KERNELS], CHECK_TIMEOUT_S)
    if name.strip() != "compiled":
        say("compiled kernels: none here; all tests run with numpy")
        return 0
    return run_some_tests(python, "without compiled kernels", PIXEL_TESTS, WITHOUT_KERNELS)


def run_some_tests(python: Path, title: str, tests: tuple[str, ...], variables: dict[str, str]) -> int:
    """Run tests that are not slow: a line of counts, all output on failure."""
    command = [str(python), "-m", "pytest", "-q", "-m", "not slow", *IN_PARALLEL, *tests]
    code, output = run_quietly(command, TEST_TIMEOUT_S, variables)
    say(f"{title}: {last_lines(output, 1)}")
    if code:
        print(output, flush=True)
    return code


def run_quick_tests(arguments: list[str]) -> int:
    """The checks and the tests without daemons, faults and independent readers: for every change, all day."""
    started = time.monotonic()
    python = ensure_environment()
    with ThreadPoolExecutor(1) as pool:
        checks = pool.submit(run_checks, python)
        code = run_openly([str(python), "-m", "pytest", *QUICK_TESTS, *IN_PARALLEL, *arguments], TEST_TIMEOUT_S)
        checks.result()
    say(f"quick checks and tests: {'failed' if code else 'ok'} ({time.monotonic() - started:.0f} s)")
    return code


def run_checks(python: Path) -> None:
    checks = {
        "ruff check": ["-m", "ruff", "check", "--quiet", "."],
        "ruff format": ["-m", "ruff", "format", "--check", "--quiet", "."],
        "mypy --strict": ["-m", "mypy", "--no-error-summary"],
        "import contracts": ["-c", "from importlinter.cli import lint_imports_command as main; main(['--no-logo'])"],
    }
    for name, command in checks.items():
        started = time.monotonic()
        code, output = run_quietly([str(python), *command], CHECK_TIMEOUT_S)
        say(f"{name}: {'failed' if code else 'ok'} ({time.monotonic() - started:.1f} s)")
        if code:
            raise StepFailed(f"{output.strip()}\n{name} failed with exit code {code}", code)


def run_demo(arguments: list[str]) -> int:
    python = ensure_environment(DEMO_VENV, "")
    return run_openly([str(python), "-m", "acqstream", "demo", *arguments], DEMO_TIMEOUT_S, Path.cwd())


def build_docs(arguments: list[str]) -> int:
    """The site. A link inside it that leads nowhere is an error; --external asks the web about the others."""
    sphinx = [str(ensure_environment()), "-m", "sphinx", "-q", "-W", "--keep-going"]
    code = run_openly([*sphinx, "-b", "html", str(DOCS), str(SITE)], DOCS_TIMEOUT_S)
    if code == 0 and "--external" in arguments:
        code = run_openly([*sphinx, "-b", "linkcheck", str(DOCS), str(SITE.with_name("links"))], DOCS_TIMEOUT_S)
    if code == 0:
        say(f"the site is at {SITE / 'index.html'}")
    return code


def make_wheels(arguments: list[str]) -> int:
    """Build the wheels of this checkout into `dist`."""
    if arguments:
        raise StepFailed(f"wheel takes no arguments, got {' '.join(arguments)}", EXIT_USAGE)
    report_wheels(build_wheels(ensure_environment(), DIST))
    return 0


def run_windows(arguments: list[str]) -> int:
    return run_windows_tests(ensure_environment(), arguments)


VERBS = {"test": run_tests, "test-windows": run_windows, "demo": run_demo, "wheel": make_wheels, "docs": build_docs}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in VERBS:
        print(__doc__, file=sys.stderr)
        return EXIT_USAGE
    try:
        ensure_python()
        return VERBS[sys.argv[1]](sys.argv[2:])
    except StepFailed as failure:
        sys.stdout.flush()
        print(failure, file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
