"""A real Neuroglancer shows our precomputed and OME-Zarr mirrors: every pixel on its screen is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.views.view_run import ViewRun
from tests.dataset.web_server import serving
from tests.log.make_frames import start_log, write_log
from tests.mirrors.mirror_cases import array_of, declared, finish, frames_at, halved, places_of, run_of
from tests.oracles.neuroglancer_page import NeuroglancerPage, needs_neuroglancer
from tests.waiting import until

pytestmark = [pytest.mark.oracle, *needs_neuroglancer]

SIZES = {"time": 2, "channel": 2, "z": 5}
SHAPE = (96, 128)
FRAMES = frames_at(places_of(tuple(SIZES), SIZES), SHAPE)
ARRAY = array_of(FRAMES, tuple(SIZES))  # time, channel, z, y, x
LOWER = halved(ARRAY, (1, 1, 1, 2, 2))
SUMMARY = {"PixelSize_um": 0.5, "z-step_um": 2.0}
PLANE = {"x": (0.5e-6, "m"), "y": (0.5e-6, "m"), "z": (2e-6, "m")}

NAMES = {"precomputed": "cells.precomputed", "ome-zarr": "cells.ome.zarr"}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "precomputed": {"format": "precomputed", "chunks": [1, 32, 64], "levels": 2},
    "precomputed png": {"format": "precomputed", "chunks": [1, 32, 64], "levels": 2, "encoding": "png"},
    "precomputed shards": {"format": "precomputed", "chunks": [2, 32, 64], "levels": 2, "shards": True},
    "precomputed murmur gzip": {
        "format": "precomputed",
        "chunks": [2, 32, 64],
        "levels": 2,
        "shards": {"hash": "murmurhash3_x86_128", "data_encoding": "gzip", "minishard_bits": 1},
    },
    "ome-zarr": {"format": "ome-zarr", "chunks": [1, 32, 64], "levels": 2},
    "ome-zarr raw": {"format": "ome-zarr", "chunks": [1, 32, 64], "levels": 2, "compression": "none"},
    "ome-zarr zstd": {"format": "ome-zarr", "chunks": [2, 32, 64], "levels": 2, "compression": "zstd"},
    "ome-zarr unsharded": {"format": "ome-zarr", "chunks": [1, 32, 64], "levels": 2, "shards": False},
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NeuroglancerPage]:
    with NeuroglancerPage(tmp_path_factory.mktemp("neuroglancer")) as page:
        yield page


def mirror(folder: Path, settings: Mapping[str, Any]) -> str:
    """Write the frames and their mirror; the name of its folder."""
    write_log(folder / "cells", FRAMES, summary=SUMMARY, axes=declared(tuple(SIZES), SIZES))
    finish(run_of(folder / "cells", settings, name=str(settings["format"])))
    return NAMES[str(settings["format"])]


def view_of(name: str, time: int, channel: int, z: int) -> dict[str, Any]:
    """Where Neuroglancer has a frame."""
    if name.endswith("precomputed"):  # a volume for each time and channel
        source = f"{name}/time{time}/channel{channel}/|neuroglancer-precomputed:"
        return {"source": source, "dimensions": PLANE, "place": {"z": z}}
    return {
        "source": f"{name}/|zarr3:",
        "dimensions": {**PLANE, "t": (1, "")},
        "place": {"z": z, "t": time},
        "local": {"c'": channel},
        "begin": -0.5,  # coordinates of OME-Zarr are those of centres
    }


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pixel_is_on_the_screen(tmp_path: Path, page: NeuroglancerPage, kind: str) -> None:
    name = mirror(tmp_path, KINDS[kind])
    with serving(tmp_path) as (url, _):
        for time, channel, z in ((0, 0, 0), (1, 0, 4), (1, 1, 2)):
            where = view_of(name, time, channel, z)
            source = f"{url}/{where.pop('source')}"
            shown = page.plane(source, shape=SHAPE, **where)
            assert np.array_equal(shown, ARRAY[time, channel, z])
            lower = partial(page.plane, source, shape=LOWER.shape[-2:], zoom=2, **where)
            # A page on a busy machine can be photographed before all parts are drawn.
            until(lambda: np.array_equal(lower(), LOWER[time, channel, z]), "the lower level is shown")  # noqa: B023


@pytest.mark.parametrize("kind", ["precomputed", "precomputed shards", "ome-zarr", "ome-zarr raw"])
def test_a_page_shows_what_a_growing_mirror_has(tmp_path: Path, page: NeuroglancerPage, kind: str) -> None:
    """Frames of the second time come while the page shows the first; loaded again it has them."""
    settings = KINDS[kind]
    name = str(settings["format"])
    half = len(FRAMES) // 2
    with start_log(tmp_path / "cells", summary=SUMMARY, axes=declared(tuple(SIZES), SIZES)) as log:
        run = run_of(tmp_path / "cells", settings, name=name)
        try:
            for first, last in ((0, half), (half, len(FRAMES))):
                for frame in FRAMES[first:last]:
                    log.append(frame.header, frame.image)
                until(partial(_has_taken, run, last), "the frames are taken", every_s=0.0)
                run.settle()
                run.save()
                with serving(tmp_path) as (url, _):  # at a new address: nothing is kept from the page before
                    where = view_of(NAMES[name], 0 if first == 0 else 1, 1, 3)
                    source = f"{url}/{where.pop('source')}"
                    shown = page.plane(source, shape=SHAPE, **where)
                    assert np.array_equal(shown, ARRAY[0 if first == 0 else 1, 1, 3])
        finally:
            run.close()


def _has_taken(run: ViewRun, count: int) -> bool:
    return run.step() is None or run.progress().cursor >= count
