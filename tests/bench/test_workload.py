from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acqstream.bench.child_process import restored
from acqstream.bench.workload import Workload, run_workload, workload_of


def test_frames_fill_the_bytes() -> None:
    assert workload_of((256, 256), "uint16", 10**6) == Workload((256, 256), "uint16", 7)
    assert workload_of((2048, 2048), "uint16", 1).frames == 1
    assert workload_of((64, 64), "uint16", 10**9, 500).frames == 500
    assert Workload((4, 5, 3), "uint8", 2).payload_bytes == 120


def test_goes_through_the_command_line() -> None:
    workload = Workload((16, 32), "uint8", 3, pool_bytes=5)
    assert restored(Workload, json.loads(json.dumps(asdict(workload)))) == workload


def test_puts_every_frame_then_finishes() -> None:
    seen: list[object] = []
    workload = Workload((256, 256), "uint8", 20, pool_bytes=5 * 65536)
    pool = workload.pool()

    def put(image: NDArray[Any], number: int) -> None:
        assert (image == pool[number % 5]).all()
        seen.append(number)

    measured = run_workload(workload, put, lambda: seen.append("end"))
    assert seen == [*range(20), "end"]
    assert measured.frames == 20
    assert measured.payload_bytes == 20 * 65536
    assert measured.processes["producer"].cpu_s >= 0
    assert measured.latency.max_ms >= measured.latency.p999_ms >= measured.latency.p50_ms


def test_frames_are_camera_like_and_differ() -> None:
    pool = Workload((64, 64), "uint16", 10**6, pool_bytes=2**19).pool()
    assert len(pool) == 64
    assert len({image.tobytes() for image in pool}) == 64
    assert 50 < pool[0].min() < pool[0].max() / 5  # an offset, and spots far above it
    dark = pool[0][pool[0] < np.quantile(pool[0], 0.1)]
    assert 5 < dark.std() < 50  # shot noise
    assert len(Workload((2048, 2048), "uint16", 100, pool_bytes=1).pool()) == 2  # the next one is never the same
