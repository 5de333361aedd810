"""The daemon of a benchmark: as `acqstream`, but it ends when the benchmark is gone, killed ones too.

The benchmark holds the other end of its standard input.
"""

from __future__ import annotations

import os
import runpy
import signal
import threading


def _end_with_benchmark() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_benchmark, name="watch-benchmark", daemon=True).start()
    runpy.run_module("acqstream", run_name="__main__", alter_sys=True)
