"""A system that is booted from a folder, and commands that run inside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

# Only ever reached by something that hangs.
BOOT_S = 300.0
COMMAND_S = 600.0
WAIT_S = 300.0
_POLL_S = 0.1
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAM = "/opt/acqstream/bin/acqstream"
PYTHON = "/opt/acqstream/bin/python"


class BootedSystem:
    """A Debian in `root`, booted by `boot`, with a network of its own that reaches nobody."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._log = root.with_suffix(".log")
        self._container: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        """Start it, and wait until all units of the boot are done."""
        command = [
            "systemd-nspawn",
            "--quiet",
            "-D",
            str(self.root),
            "--register=no",
            "--keep-unit",
            "--private-network",
        ]
        command += ["--console=pipe", "--boot"]
        with self._log.open("wb") as log:
            self._container = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_until(self._is_booted, "it is booted", BOOT_S)

    def reboot(self) -> None:
        """Shut it down in order, and boot it again."""
        assert self._container is not None
        self._container.terminate()  # asks its first process to power off
        self._container.wait(BOOT_S)
        self.boot()

    def power_off(self) -> None:
        """End it at once, without forcing anything to the disk, and remove its files."""
        container = self._container
        try:
            if container is not None and container.poll() is None:
                first = self._first_process()
                if first is not None:
                    os.kill(first, signal.SIGKILL)  # and so all others; killing systemd-nspawn alone would leave them
                else:
                    container.kill()
                container.wait(BOOT_S)
        finally:
            self._container = None
            shutil.rmtree(self.root, ignore_errors=True)

    def _first_process(self) -> int | None:
        """The number here of the process that has number 1 inside."""
        assert self._container is not None
        assert self._container.poll() is None, f"systemd-nspawn ended: {self.console()}"
        number = self._container.pid
        for child in Path(f"/proc/{number}/task/{number}/children").read_text().split():
            try:
                status = Path(f"/proc/{child}/status").read_text()
                is_other_root = os.stat(f"/proc/{child}/root").st_ino == os.stat(self.root).st_ino
            except OSError:
                continue
            (numbers,) = (line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
            if numbers[1:] == ["1"] and is_other_root:
                return int(child)
        return None

    def _is_booted(self) -> bool:
        if self._first_process() is None:
            return False
        return self.run("systemctl is-system-running", check=False).stdout.strip() in ("running", "degraded")

    def command(self, *arguments: str, user: str = "root") -> list[str]:
        """What runs a program inside from here."""
        first = self._first_process()
        assert first is not None, f"the system has no first process: {self.console()}"
        home = "/root" if user == "root" else f"/home/{user}"
        environment = [f"PATH={_PATH}", f"HOME={home}", f"USER={user}", "LANG=C.UTF-8"]
        enter = ["nsenter", "--target", str(first), "--all", "env", "-i", *environment]
        return [*enter, *([] if user == "root" else ["runuser", "-u", user, "--"]), *arguments]

    def run(
        self, script: str, *, user: str = "root", check: bool = True, login: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """A shell script inside. login: as in a session of its own, with a service manager for the user."""
        shell = ["runuser", "-l", user, "-c", script] if login else ["bash", "-ec", script]
        command = self.command(*shell, user="root" if login else user)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=COMMAND_S
        )
        if check:
            assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}\n{self.journal()}"
        return done

    def acqstream(self, *arguments: str, user: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The installed program. It has no `endpoint` unless one is given: it must find its daemon."""
        return self.run(" ".join([PROGRAM, *arguments]), user=user, check=check)

    def status(self, user: str) -> Any:
        """What `acqstream status --json` prints."""
        return json.loads(self.acqstream("status", "--json", user=user).stdout)

    def unit(self, name: str) -> str:
        """A property of the service."""
        return self.run(f"systemctl show acqstream --property={name} --value").stdout.strip()

    def wait_until(self, is_so: Callable[[], bool], what: str, longest_s: float = WAIT_S) -> None:
        deadline = time.monotonic() + longest_s
        while not is_so():
            assert time.monotonic() < deadline, f"not within {longest_s:g} s: {what}\n{self.journal()}"
            time.sleep(_POLL_S)

    def journal(self) -> str:
        """The latest lines of the service, and of the console."""
        if self._container is None or self._container.poll() is not None or self._first_process() is None:
            return self.console()
        command = self.command("journalctl", "--no-pager", "--lines=60")
        lines = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S).stdout
        return f"{self.console()}\n{lines}"

    def console(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]


# Records until it is told to close. It prints the transport, and to each "show" how many frames are published.
_PRODUCER = """
import sys, threading
import numpy as np
import acqstream
name, options = sys.argv[1], dict(one.split("=") for one in sys.argv[2:])
end = threading.Event()
run = acqstream.create(
    name, buffer_mb=16, patience_s=float(options.get("patience_s", 300)), resume="resume" in options,
    endpoint=options.get("endpoint"), transport=options.get("transport", "auto"),
)
print(run.transport, flush=True)
def hear():
    for line in sys.stdin:
        if line.strip() == "show":
            print(run.progress.published, flush=True)
        else:
            break
    end.set()
threading.Thread(target=hear, daemon=True).start()
number = run.next
try:
    while not end.wait(0.01):
        run.put(np.full((64, 64), number % 65536, np.uint16), time=number)
        number += 1
    run.close()
finally:
    print("END", run.receipt and run.receipt.complete, run.receipt and run.receipt.stored, number, flush=True)
"""


class Producer:
    """A program inside that puts a frame each 10 ms until `close`."""

    def __init__(self, system: BootedSystem, name: str, *options: str, user: str, prefix: tuple[str, ...] = ()) -> None:
        self._system = system
        command = system.command(*prefix, PYTHON, "-c", _PRODUCER, name, *options, user="root" if prefix else user)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.transport = self._line()

    def _line(self) -> str:
        line = _pipe(self._process.stdout).readline().strip()
        assert line, f"the producer ended: {_pipe(self._process.stderr).read()}\n{self._system.journal()}"
        return line

    def _tell(self, word: str) -> None:
        print(word, file=_pipe(self._process.stdin), flush=True)

    def published(self) -> int:
        self._tell("show")
        return int(self._line())

    def wait_for_more(self) -> None:
        """Until 20 more frames than now are published."""
        goal = self.published() + 20
        self._system.wait_until(lambda: self.published() >= goal, f"{goal} frames are published")

    def close(self) -> tuple[bool, int, int]:
        """End it: whether its receipt is complete, frames stored and frames put."""
        self._tell("close")
        word, is_complete, stored, put = self._line().split()
        assert word == "END"
        _, errors = self._process.communicate(timeout=WAIT_S)
        assert self._process.returncode == 0, errors
        return is_complete == "True", int(stored), int(put)

    def wait(self) -> str:
        """Wait until it ends by itself; its errors."""
        _, errors = self._process.communicate(timeout=2 * WAIT_S)
        return errors

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
