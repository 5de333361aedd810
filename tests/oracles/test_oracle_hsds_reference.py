"""A real HSDS server and h5pyd read mirrors by reference: every frame, live while they grow, and after."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.mirrors import reference_view
from acqstream.views.view_run import ViewRun
from tests.log.make_frames import frame_of, start_log, write_log
from tests.mirrors.mirror_cases import finish, frames_at, places_of, run_of
from tests.oracles.hsds_server import CACHE_S, HsdsServer, needs_hsds
from tests.waiting import until

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout_s(300), needs_hsds()]

DOMAIN, BUCKET = "/home/acq.h5", "acqstream"
HSDS = {"format": "hsds"}


@pytest.mark.deep
def test_every_frame_every_scale_and_every_number(tmp_path: Path) -> None:
    keys = places_of(("time", "channel", "z"), {"time": 5, "z": 3}, {"channel": ["DAPI", "Cy5"]})
    frames = [frame_of(n, (21, 26), axes=key, metadata={"Exposure-ms": n / 2}) for n, key in enumerate(keys)]
    write_log(tmp_path / "cells", frames[:-1])  # the last one is missing
    finish(run_of(tmp_path / "cells", HSDS, "hsds"))
    with HsdsServer(tmp_path / "cells.hsds", BUCKET) as server:
        with acqstream.open(tmp_path / "cells") as right:
            assert np.array_equal(server.read(DOMAIN, "/level 0"), right.levels[0].read())
        assert server.read(DOMAIN, "/time").tolist() == [0, 1, 2, 3, 4]
        assert server.read(DOMAIN, "/channel").tolist() == [b"DAPI", b"Cy5"]
        exposures = server.read(DOMAIN, "/metadata/Exposure-ms").reshape(-1)
        assert exposures[:-1].tolist() == [n / 2 for n in range(29)]
        assert np.isnan(exposures[-1])
        objects = server.objects(DOMAIN)
        assert objects["/level 0"]["attrs"]["axes"] == ["time", "channel", "z", "y", "x"]
        assert objects["/level 0"]["chunks"] == [1, 1, 1, 21, 26]


def test_colours_and_eight_bits(tmp_path: Path) -> None:
    for name, frames in {
        "rgb": frames_at(places_of(("time",), {"time": 3}), (9, 12, 3), "|u1"),
        "grey": frames_at(places_of(("z",), {"z": 3}), (9, 12), "|u1"),
    }.items():
        write_log(tmp_path / name, frames)
        finish(run_of(tmp_path / name, HSDS, "hsds"))
        with HsdsServer(tmp_path / f"{name}.hsds", BUCKET) as server:
            assert np.array_equal(server.read(DOMAIN, "/level 0"), np.stack([frame.image for frame in frames]))


def test_a_server_shows_it_grow_and_never_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table chunks are published incomplete and written again, while the server may keep the old ones for CACHE_S.

    Uneven capture times change the space with each frame, and it is announced each second.
    """
    assert reference_view.PARTIAL_S + reference_view.SETTLE_S + CACHE_S <= 11.0  # the page promises 12 s
    monkeypatch.setattr(reference_view, "PARTIAL_S", 1.5)
    assert reference_view.SETTLE_S > CACHE_S
    times = [{"ElapsedTime-ms": 300 * t + t * t % 7} for t in range(40)]
    frames = [frame_of(t, (21, 26), axes={"time": t}, metadata=times[t]) for t in range(40)]
    right = np.stack([frame.image for frame in frames])
    sizes: list[int] = []
    with start_log(tmp_path / "cells") as log:
        run = run_of(tmp_path / "cells", HSDS, "hsds")
        log.append(frames[0].header, frames[0].image)
        until(lambda: run.step() is not None and (tmp_path / "cells.hsds" / BUCKET / "home").exists(), "it appears")
        with HsdsServer(tmp_path / "cells.hsds", BUCKET) as server:
            for frame in frames[1:]:
                log.append(frame.header, frame.image)
                poll(run, server, right, sizes)
        log.close()
    finish(run)
    assert sizes == sorted(sizes)
    assert len(set(sizes) - {0, 40}) >= 3, "it was seen in parts"
    with HsdsServer(tmp_path / "cells.hsds", BUCKET) as server:
        assert np.array_equal(server.read(DOMAIN, "/level 0"), right)


def poll(run: ViewRun, server: HsdsServer, right: np.ndarray, sizes: list[int]) -> None:
    """Let the mirror work, and compare what the server has then."""
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        run.step()
        time.sleep(0.01)
    found = server.read(DOMAIN, "/level 0")
    sizes.append(len(found))
    assert np.array_equal(found, right[: len(found)])
