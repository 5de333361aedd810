from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from acqstream.bench.workload import Workload, run_workload, workload_of
from acqstream.simulate.frame_pool import read_stamp


def test_frames_fill_the_bytes() -> None:
    assert workload_of((256, 256), "uint16", 10**6) == Workload((256, 256), "uint16", 7)
    assert workload_of((2048, 2048), "uint16", 1).frames == 1
    assert Workload((4, 5, 3), "uint8", 2).payload_bytes == 120


def test_goes_through_the_command_line() -> None:
    workload = Workload((16, 32), "uint8", 3)
    assert Workload.from_argument(workload.as_argument()) == workload


def test_puts_every_frame_then_finishes() -> None:
    seen: list[object] = []

    def put(image: NDArray[Any], number: int) -> None:
        assert read_stamp(image) == number
        seen.append(number)

    measured = run_workload(Workload((256, 256), "uint8", 20), put, lambda: seen.append("end"), role="producer")
    assert seen == [*range(20), "end"]
    assert measured.frames == 20
    assert measured.payload_bytes == 20 * 65536
    assert measured.processes["producer"].cpu_s >= 0
    assert measured.latency.max_ms >= measured.latency.p50_ms
