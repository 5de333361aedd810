"""A real HSDS server and h5pyd: golden trees, and our mirrors, after and while they grow."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.formats.hsds.metadata import DOMAIN
from acqstream.views.view_run import ViewState
from tests.formats.hsds.hsds_data import BUCKET, EXPECTED, GOLDEN
from tests.log.make_frames import Frame, start_log, write_log
from tests.mirrors.mirror_cases import finish, frames_at, places_of, run_of
from tests.oracles.hsds_server import CACHE_S, HsdsServer, needs_hsds
from tests.waiting import until

pytestmark = [pytest.mark.oracle, pytest.mark.slow, needs_hsds()]


def test_the_server_serves_the_golden_trees(tmp_path):
    """The expected values are those of the server, and the fixture works."""
    shutil.copytree(GOLDEN / "handmade", tmp_path / "root")
    with HsdsServer(tmp_path / "root", BUCKET) as server:
        for domain, expected in EXPECTED["handmade"].items():
            frames = expected["objects"]["/frames"]
            assert server.shape(domain, "/frames") == frames["shape"]
            assert server.objects(domain)["/frames"]["attrs"] == frames["attrs"]
            array = server.read(domain, "/frames")
            little = array.astype(array.dtype.newbyteorder("<"))
            assert hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest() == frames["sha256_c_order"]


def settings_of(**more: Any) -> dict[str, Any]:
    return {"format": "hsds", "pixels": "copy", **more}


SIZES = {"time": 3, "channel": 2, "z": 3}
PLACES = places_of(("time", "channel", "z"), SIZES, {"channel": ["DAPI", "GFP"]})
KINDS: dict[str, tuple[dict[str, Any], list[Frame]]] = {
    "lz4": (settings_of(levels=2), frames_at(PLACES, (60, 70))),
    "zlib": (settings_of(levels=2, compression="zlib", chunks=[2, 32, 32]), frames_at(PLACES, (60, 70))),
    "zstd": (settings_of(levels=2, compression="zstd", chunks=[1, 60, 70]), frames_at(PLACES, (60, 70))),
    "none": (settings_of(levels=1, compression="none"), frames_at(PLACES, (60, 70))),
    "8 bit": (settings_of(levels=2), frames_at(PLACES, (60, 70), "|u1")),
    "8 bit zlib": (settings_of(levels=1, compression="zlib"), frames_at(PLACES, (60, 70), "|u1")),
    "RGB": (settings_of(levels=2), frames_at(PLACES, (60, 70, 3), "|u1")),
    "one frame": (settings_of(levels=1), frames_at([{}], (60, 70))),
}


def test_h5pyd_reads_every_item_of_our_mirrors(tmp_path):
    """All kinds by one server: its start takes longer than everything else."""
    root = tmp_path / "root"
    made: dict[str, Path] = {}
    for number, (kind, (settings, frames)) in enumerate(KINDS.items()):
        cells = tmp_path / f"cells{number}"
        write_log(cells, frames, summary={"PixelSizeUm": 0.5, "Who": "µ"})
        assert finish(run_of(cells, settings, "hsds")).progress().state is ViewState.COMPLETE
        made[kind] = cells.with_name(f"{cells.name}.hsds")
        # Each container is a root with one bucket: here they are buckets of one server.
        shutil.copytree(made[kind] / "acqstream", root / f"kind{number}")
    with HsdsServer(root, "kind0") as server:
        for number, container in enumerate(made.values()):
            check_levels(server, container, f"kind{number}")


def check_levels(server: HsdsServer, container: Path, bucket: str) -> None:
    """Every item of every level, and the attributes, as h5pyd and as our reader have them."""
    with acqstream.open(container) as ds:
        objects = server.objects(DOMAIN, bucket)
        assert objects.keys() == {"/", *(f"/level {number}" for number in range(len(ds.levels)))}
        assert json.loads(objects["/"]["attrs"]["summary"])["Who"] == "µ"
        for number, level in enumerate(ds.levels):
            found, right = server.read(DOMAIN, f"/level {number}", bucket), level.read()
            assert found.dtype == right.dtype
            assert np.array_equal(found, right.reshape(found.shape))
            attributes = objects[f"/level {number}"]["attrs"]
            assert attributes["axes"] == attributes["DIMENSION_LABELS"] == [*level.axes]
            assert attributes["scale"] == pytest.approx(level.scale)
            assert attributes["units"] == [*level.units]


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        (settings_of(levels=2, chunks=[1, 40, 30]), {"time": 6, "z": 2}),
        (settings_of(levels=1, compression="zlib", chunks=[4, 40, 30]), {"z": 11}),
    ],
    ids=["a frame in a chunk", "four planes in a chunk"],
)
def test_h5pyd_sees_a_mirror_grow_and_never_a_part_of_a_chunk(tmp_path, settings, sizes):
    frames = frames_at(places_of([*sizes], sizes), (40, 30))
    assert all(frame.image.any() for frame in frames), "zeros would be a chunk that was not stored"
    right = np.stack([frame.image for frame in frames]).reshape(*sizes.values(), 40, 30)
    cells, container, seen = tmp_path / "cells", tmp_path / "cells.hsds", set[int]()
    with contextlib.ExitStack() as stack:
        with start_log(cells) as log:
            run = run_of(cells, settings, "hsds")
            for number, frame in enumerate(frames, 1):
                log.append(frame.header, frame.image)
                assert log.wait_for_published(number)
                while run.progress().cursor < number:
                    time.sleep(run.step() or 0)
                # All is stored as it is: chunks with some of their planes are rewritten later.
                until(lambda: run.view.settle() is None, "all is stored")
                if number == 1:
                    server = stack.enter_context(HsdsServer(container, "acqstream"))
                check_part(server, right)
                wait_for_stated(server, container)
                seen.add(check_part(server, right))
        finish(run)
        wait_for_stated(server, container)
        assert check_part(server, right) == right.shape
    assert len(seen) > 2, "it grew"


def wait_for_stated(server: HsdsServer, container: Path) -> None:
    """Wait until the server shows the sizes of level 0 in its document, the one with the longest x."""
    shapes = [json.loads(path.read_text())["shape"]["dims"] for path in container.rglob(".dataset.json")]
    stated = max(shapes, key=lambda dims: dims[-1])
    until(lambda: server.shape(DOMAIN, "/level 0") == stated, f"the server shows {stated}", CACHE_S + 30)


def check_part(server: HsdsServer, right: NDArray[Any]) -> tuple[int, ...]:
    """The shape of what h5pyd reads, which must have the right items."""
    found = server.read(DOMAIN, "/level 0")
    assert np.array_equal(found, right[tuple(slice(0, size) for size in found.shape)]), found.shape
    return found.shape
