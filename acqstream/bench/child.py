"""The one child program of the benchmarks: `python -m acqstream.bench.child PLAN`.

PLAN is a JSON object. "run" is a key of RUNS, and its other fields are the arguments of that function. The result is
printed as one line of JSON. Only the module of that function is imported, so that each measures itself alone.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

RUNS = {
    "daemon": "child:serve",
    "producer": "producers:send",
    "paced producer": "producers:send_paced",
    "tiled producer": "producers:send_tiled",
    "mirrored producer": "producers:send_mirrored",
    "peer": "peers:write_frames",
    "tensorstore blocks": "block_peer:write_blocks",
    "lz4 blocks": "block_peer:compress_blocks",
    "tensorstore shards": "shard_peer:write_zarr_shards",
    "tensorstore frames": "shard_peer:write_zarr_frames",
    "tensorstore volumes": "shard_peer:write_volumes",
    "acquire-zarr shards": "shard_peer:append_frames",
    "reader": "readers:measure",
    "follower": "readers:follow",
    "demonstration": "demonstration:follow",
    "mirror": "mirror_alone:measure_mirror",
    "sendfile": "sendfile_peer:answer_with_file",
}
"""Module of acqstream.bench and function, by the name of what is run."""

_PATHS = frozenset({"folder", "dataset", "out"})


def run(plan: dict[str, Any]) -> Any:
    """Run a plan in this process and return the result of its function."""
    module, _, name = RUNS[plan["run"]].partition(":")
    arguments = {key: _decoded(key, value) for key, value in plan.items() if key != "run"}
    return getattr(importlib.import_module(f"acqstream.bench.{module}"), name)(**arguments)


def _decoded(key: str, value: Any) -> Any:
    if key in _PATHS:
        return Path(value)
    if key == "workload":
        from acqstream.bench.workload import Workload  # not for the daemon, whose memory is measured

        return Workload.of(value)
    return value


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


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1])), default=asdict), flush=True)
