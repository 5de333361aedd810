"""Child processes of a benchmark: the program that each runs, its result as JSON, and their end by an interruption.

The program is `python -m acqstream.bench.child_process PLAN`. PLAN is a JSON object with a function and its arguments;
the result is printed as one line of JSON. Only the module of the function is imported, so that each measures itself
alone; this module loads little, because the daemon runs in it as well.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from acqstream.errors import AcquisitionFailed
from acqstream.storage.platform.capabilities import interrupting_signals

if TYPE_CHECKING:
    from acqstream.bench.measurement import Measurement

SIGNALS = interrupting_signals()

_MIN_BYTES_PER_S = 5e6  # a slower process hangs
_GONE_S = 10.0  # longer than a disk takes to let a killed process go

Kind = TypeVar("Kind")


# ----------------------------------------------------------------------------------------------------- in the benchmark


def run_measured(name: str, function: Callable[..., Any], payload_bytes: int, /, **arguments: Any) -> Measurement:
    """Run a function of a module in a child process and return its measurement. name: for errors."""
    from acqstream.bench.measurement import Measurement

    with started_child(name, function, timeout_for(payload_bytes), **arguments) as child:
        return child.result_as(Measurement)


def timeout_for(payload_bytes: int) -> float:
    """Seconds after which a process that writes so many bytes is taken to hang."""
    return 60 + payload_bytes / _MIN_BYTES_PER_S


class Child:
    """A process that prints a JSON document as its last line; one that holds prints a line before, and waits."""

    def __init__(self, name: str, process: subprocess.Popen[str], timeout_s: float) -> None:
        self._name = name
        self._process = process
        self._timeout_s = timeout_s
        self._hangs = False
        self._timer = threading.Timer(timeout_s, self._end_hanging)
        self._timer.name = f"timeout of {name}"
        self._timer.daemon = True  # an interrupt may come before anybody could cancel it
        self._timer.start()

    def _end_hanging(self) -> None:
        self._hangs = True  # first: its end is heard of at once
        self._process.kill()

    def wait_until_ready(self) -> None:
        """Until it has printed its first line. Raises AcquisitionFailed if it ended instead."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self.result()

    def go(self) -> None:
        """Let a process continue that waits in `hold`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended; `result` raises the reason
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def result(self) -> Any:
        """Wait for its end and return the document of its last line. Raises AcquisitionFailed if it failed."""
        out, err = self._process.communicate()
        if self._hangs:
            raise AcquisitionFailed(f"{self._name} did not end within {self._timeout_s:.0f} s")
        lines = out.splitlines()
        if self._process.returncode != 0 or not lines:
            raise AcquisitionFailed(f"{self._name} ended with code {self._process.returncode}: {last_line(err)}")
        return json.loads(lines[-1])

    def result_as(self, kind: type[Kind]) -> Kind:
        """The same as a dataclass, which the function returned."""
        found: Kind = restored(kind, self.result())
        return found

    def end(self) -> None:
        """Kill it if it still runs."""
        self._timer.cancel()
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def child_command(function: Callable[..., Any], /, **arguments: Any) -> list[str]:
    """The command that calls a function of a module with these arguments: JSON values, paths or workloads."""
    # With this process's search path: functions of tools/ are not in the package.
    plan = {"path": sys.path, "module": function.__module__, "function": function.__name__, "arguments": arguments}
    text = json.dumps(plan, default=lambda one: str(one) if isinstance(one, Path) else asdict(one))
    return [sys.executable, "-m", "acqstream.bench.child_process", text]


@contextmanager
def started_child(name: str, function: Callable[..., Any], timeout_s: float, /, **arguments: Any) -> Iterator[Child]:
    """Call a function of a module in a child process, which does not outlive the block."""
    with started_process(name, child_command(function, **arguments), timeout_s=timeout_s) as child:
        yield child


@contextmanager
def started_process(name: str, command: Sequence[str], *, timeout_s: float) -> Iterator[Child]:
    """Start a command that prints as a Child does; it does not outlive the block."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    child = Child(name, process, timeout_s)
    try:
        yield child
    finally:
        child.end()


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


@contextmanager
def cleaned_up_if_interrupted() -> Iterator[None]:
    """Turn each of SIGNALS into SystemExit, with 128 and the signal's number; in the main thread only.

    All child processes are killed first, also one that is just starting, so none writes into a folder that is being
    deleted. Further signals are ignored from then on.
    """
    before = {number: signal.signal(number, _end) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    import psutil

    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=_GONE_S)
    sys.exit(128 + number)


@contextmanager
def temporary_folder(prefix: str, directory: Path | None = None) -> Iterator[Path]:
    """A new folder that is deleted at the end, also where the signal comes while it is being deleted."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        except SystemExit:  # no second one can follow
            with suppress(FileNotFoundError):  # it came last
                shutil.rmtree(folder)
            raise


# --------------------------------------------------------------------------------------------------- in a child process


def hold() -> None:
    """Report that this process is prepared, and wait until `Child.go` is called.

    Ends the process if the other side is gone.
    """
    print("ready", flush=True)
    if not sys.stdin.readline():
        raise SystemExit(1)


def serve(arguments: Sequence[str]) -> None:
    """Run `acqstream` with these arguments until the benchmark is gone, killed ones included.

    The benchmark keeps the other end of this process's standard input.
    """

    def end_with_benchmark() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_benchmark, name="watch-benchmark", daemon=True).start()
    sys.argv = ["acqstream", *arguments]
    runpy.run_module("acqstream", run_name="__main__", alter_sys=True)


def _run(plan: dict[str, Any]) -> Any:
    sys.path[:] = plan["path"]
    function = getattr(importlib.import_module(plan["module"]), plan["function"])
    kinds = get_type_hints(function)
    return function(**{key: restored(kinds.get(key), value) for key, value in plan["arguments"].items()})


def restored(kind: Any, value: Any) -> Any:
    """A value that went through JSON, as its type says: paths, dataclasses, and those in tuples and dictionaries."""
    if kind is Path:
        return Path(value)
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{name: restored(kinds[name], one) for name, one in value.items()})  # type: ignore[operator]
    if get_origin(kind) is dict:
        return {key: restored(get_args(kind)[1], one) for key, one in value.items()}
    return tuple(value) if get_origin(kind) is tuple else value


if __name__ == "__main__":
    print(json.dumps(_run(json.loads(sys.argv[1])), default=asdict), flush=True)
