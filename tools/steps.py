"""Steps of the commands in tools/: other programs with time limits, and folders that are made once and kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP_NAME = "made-from.txt"

EXIT_INSTALL_FAILED = 5
EXIT_TIMED_OUT = 124
INTERRUPTED_TIMEOUT_S = 60  # for what has to end in order

OWN_SETTINGS = {"PYTHONNOUSERSITE": "1", "PYTHONUTF8": "1"}  # of every Python that a step starts
# With the last one each of the many processes that tests start would compile all that it loads: a second or more.
LEFT_OUT = frozenset({"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"})

NETWORK_SIGNS = (
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Could not transfer artifact",
    "getaddrinfo failed",
    "Max retries exceeded",
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "CERTIFICATE_VERIFY_FAILED",
)


class StepFailed(Exception):
    """A step ended with this exit code; the text says why and what to do."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


# --------------------------------------------------------------------------------------------------- folders made once


def ensure(folder: Path, product: Path, sources: list[Path], make: Callable[[Path], None], details: str = "") -> None:
    """Make `folder` if it lacks `product`, or was made from other contents of `sources` or other `details`."""
    key, stamp = environment_key(sources, details), folder / STAMP_NAME
    with only_one_run(folder):
        if stamp.is_file() and stamp.read_text() == key and product.is_file():
            return
        version = ".".join(str(part) for part in sys.version_info[:3])
        say(f"environment: making {folder} with Python {version} (once; a minute or a few)")
        started = time.monotonic()
        if folder.exists():
            shutil.rmtree(folder)
        make(folder)
        stamp.write_text(key)
        say(f"environment: {folder.name} ready after {time.monotonic() - started:.0f} s")


def environment_key(sources: list[Path], details: str) -> str:
    """Digest of all inputs: the files, this Python, and the checkout's folder, which scripts in an environment name."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    digest.update(f"{sys.version}\n{sys.base_prefix}\n{ROOT}\n{details}".encode())
    return digest.hexdigest()


@contextlib.contextmanager
def only_one_run(folder: Path) -> Iterator[None]:
    """Let one run at a time make the folder. Systems without fcntl go without this lock."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ------------------------------------------------------------------------------------------------------------ processes


def say(text: str) -> None:
    print(text, flush=True)


def last_lines(text: str, count: int) -> str:
    return "\n".join(text.strip().splitlines()[-count:])


def child_environment() -> dict[str, str]:
    """Nothing from the user's own site-packages or PYTHONPATH gets in."""
    inherited = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return {**inherited, **OWN_SETTINGS}


def run_quietly(command: list[str], timeout_s: int, variables: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and all output of a command, with further variables of the environment."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**child_environment(), **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = error.output.decode("utf-8", "replace") if isinstance(error.output, bytes) else error.output or ""
        return EXIT_TIMED_OUT, f"{output}\nno end after {timeout_s} s: {' '.join(command)}"
    return done.returncode, done.stdout


def run_openly(command: list[str], timeout_s: int, folder: Path = ROOT) -> int:
    """Exit code of a command that prints for itself; the terminal interrupts it as it does this process."""
    with subprocess.Popen(command, cwd=folder, env=child_environment()) as process:
        try:
            return process.wait(timeout_s)
        except KeyboardInterrupt:
            return process.wait(INTERRUPTED_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            say(f"no end after {timeout_s} s: {' '.join(command)}")
            return EXIT_TIMED_OUT
        finally:
            process.kill()
