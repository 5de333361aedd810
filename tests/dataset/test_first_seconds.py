"""A dataset, or a mirror, that is opened within its first seconds is awaited, or has "no frame yet"."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import AcqStreamError, UnsupportedFeature, WaitTimeout
from tests.live.daemon_process import DaemonProcess
from tests.waiting import HANG_S, until

MIRRORS: list[Any] = [
    "n5",
    "wkw",
    "ome-zarr",
    "precomputed",
    "hsds",
    {"format": "hsds", "pixels": "copy", "name": "copy"},
]
NAMES = ["cells", "cells.n5", "cells.wkw", "cells.ome.zarr", "cells.precomputed", "cells.hsds", "cells.copy.hsds"]


def first_words(path: Path) -> str:
    """What a program that reads the first image at once is told; "" for an image."""
    try:
        with acqstream.open(path) as dataset:
            dataset.levels[0].read((0,))
    except (AcqStreamError, IndexError) as error:
        return str(error)
    return ""


@pytest.mark.timeout_s(200)
def test_opening_waits_for_the_first_frame(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with DaemonProcess(data) as daemon, ThreadPoolExecutor(len(NAMES)) as pool:
        waiting = [pool.submit(acqstream.open, data / name, wait_s=HANG_S) for name in NAMES]  # nothing exists
        assert "no such file" in first_words(data / "cells")
        with acqstream.create("cells", endpoint=daemon.endpoint, mirrors=MIRRORS) as run:
            for name in NAMES:
                until(lambda name=name: "no frame yet" in first_words(data / name), f"{name} is told")  # type: ignore[misc]
            with pytest.raises(WaitTimeout, match=r"has no frame yet after 0\.2 s"):
                acqstream.open(data / "cells.n5", wait_s=0.2)
            for time in range(3):
                run.put(np.full((32, 48), time + 1, np.uint16), time=time)
            for name, opening in zip(NAMES, waiting, strict=True):
                with opening.result(HANG_S) as dataset:
                    assert dataset.levels[0].read((0,)).any(), name


def test_waiting_ends_where_no_frame_can_come(tmp_path: Path) -> None:
    with pytest.raises(WaitTimeout, match=r"nothing has no frame yet after 0\.1 s: .*no such file"):
        acqstream.open(tmp_path / "nothing", wait_s=0.1)
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "string"}')
    with pytest.raises(UnsupportedFeature, match="data_type"):
        acqstream.open(tmp_path, wait_s=HANG_S)
