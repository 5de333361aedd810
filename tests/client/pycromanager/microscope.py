"""Programs with a core of their own: Pycro-Manager keeps one for the life of the process, and so does pymmcore-plus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]

PRELUDE = """
import hashlib, json, sys, threading, time
import mm_test_adapters
import pycromanager
import acqstream
from acqstream.client.pycromanager import Acquisition, forward

began = time.monotonic()
arguments = json.loads(sys.argv[1])
endpoint = arguments["endpoint"]
options = {"endpoint": endpoint, "buffer_mb": 16, "patience_s": arguments.get("patience_s", 10.0)}
folder = str(mm_test_adapters.device_adapter_path())
pycromanager.start_headless(folder, config_file=folder + "/MMConfig_demo.cfg", python_backend=True, buffer_size_mb=64)
core = pycromanager.Core()
core.set_exposure(1)


def set_camera(width, height, **properties):
    for name, value in {"OnCameraCCDXSize": width, "OnCameraCCDYSize": height, **properties}.items():
        core.set_property("Camera", name, value)


def sha(image):
    return hashlib.sha256(image.tobytes()).hexdigest()


def tell(**values):
    print(json.dumps(values), flush=True)


def error_of(action):
    '''What `action` raises, as words, and how long it took.'''
    since = time.monotonic()
    try:
        action()
    except BaseException as error:
        return {"kind": type(error).__name__, "text": str(error), "took_s": time.monotonic() - since}
    return {"kind": None, "text": "", "took_s": time.monotonic() - since}


set_camera(64, 32, Mode="Noise")
"""


EPILOGUE = """
# Ends as an interpreter does, threads and exit functions first, without destroying the core: its own native code then
# frees memory twice at times.
import atexit, os
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


def start(program: str, **arguments: Any) -> subprocess.Popen[str]:
    """Run PRELUDE and `program`; each line of its output is one JSON value. A program that raises ends with 1."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYMM_LOG_FILE": "0"}
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program + EPILOGUE, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process: subprocess.Popen[str], timeout_s: float = 45.0) -> list[Any]:
    """What it told, and that it ended by itself: a thread that hangs keeps the interpreter."""
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        raise AssertionError(f"hangs after:\n{output}\n{errors[-4000:]}") from None
    assert process.returncode == 0, errors[-4000:]
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def run(program: str, **arguments: Any) -> list[Any]:
    return finish(start(program, **arguments))
