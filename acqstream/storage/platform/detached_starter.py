"""A program of its own: starts a process that outlives its caller, and reports how that process ended meanwhile.

Run as a file, without this package, so that it starts quickly: `python -I -S detached_starter.py`. The first line of
its input is an order in JSON: `command`, `environment`, `folder` (to work in) and `options`, a list of keywords for
subprocess.Popen: the first that the system accepts are taken. The output of the process goes where the output of this
program goes.

The program ends with the exit code of the process, or with 0 as soon as its own standard input is closed. So the
process is not a child of the caller: no process must wait for it, and programs that end the caller's children miss it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

_FAILED_START = 127  # as a shell reports a command that cannot be run


def _start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    *attempts, last = order["options"]
    common = {"stdin": subprocess.DEVNULL, "env": order["environment"], "cwd": order["folder"]}
    for options in attempts:
        try:
            return subprocess.Popen(order["command"], **common, **options)
        except PermissionError:
            continue  # for example a job of Windows that no process may leave
    return subprocess.Popen(order["command"], **common, **last)


def _leave() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Start the process, and wait for it or for the end of the standard input."""
    try:
        process = _start(json.loads(sys.stdin.buffer.readline()))
    except OSError as error:
        sys.stderr.write(f"cannot start: {error}\n")
        sys.exit(_FAILED_START)
    threading.Thread(target=_leave, daemon=True).start()
    code = process.wait()
    os._exit(code if 0 <= code < 256 else 1)  # a signal, or an exception code of Windows, fits into no exit code


if __name__ == "__main__":
    main()
