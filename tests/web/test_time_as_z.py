"""The option z=time: volumes of a precomputed container in which time takes the place of z."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tensorstore
from numpy.typing import NDArray

from tests.log.make_frames import Axes, frame_of, start_log, wait_for, write_log
from tests.mirrors.mirror_cases import array_of, frames_at, halved, places_of
from tests.web.web_process import Site

SIZES = {"time": 3, "channel": 2, "z": 4}
FRAMES = frames_at(places_of(tuple(SIZES), SIZES), (21, 26))
ARRAY = array_of(FRAMES, tuple(SIZES))


def read(site: Site, path: str, **more: Any) -> NDArray[Any]:
    """A volume without its axis of components, as (z, y, x)."""
    kvstore = {"driver": "http", "base_url": f"{site.url}/data/{path}/"}
    spec = {"driver": "neuroglancer_precomputed", "kvstore": kvstore, **more}
    found: NDArray[Any] = tensorstore.open(spec, open=True).result().read().result()
    return found[..., 0].T


def test_time_takes_the_place_of_z(site, data):
    write_log(data / "cells", FRAMES)
    for channel in range(2):
        for options, z in (("z=time", 0), ("z%3Dtime", 0), (f"z=time,g={len(FRAMES)}", 0), ("z=3", 3)):
            found = read(site, f"cells@{options}/precomputed/channel{channel}")
            assert np.array_equal(found, ARRAY[:, channel, z]), options
    found = read(site, "cells@channel=1,z=time/precomputed")
    assert np.array_equal(found, ARRAY[:, 1, 0])
    assert np.array_equal(read(site, "cells/precomputed/time1/channel1"), ARRAY[1, 1])


def test_the_plane_is_that_of_the_first_frame(site, data):
    """Also when a smaller z comes later: an address never shows another plane."""
    keys: list[Axes] = [{"time": time, "z": z} for time in range(3) for z in (2, 0, 1)]
    frames = [frame_of(number, axes=key) for number, key in enumerate(keys)]
    write_log(data / "cells", frames)
    expected = np.stack([frame.image for frame in frames[::3]])
    for count in (3, 6, 9):
        found = read(site, f"cells@z=time,g={count}/precomputed")
        assert np.array_equal(found, expected[: len(found)])
        assert len(found) >= count // 3 - 1
    assert np.array_equal(read(site, "cells@z=time/precomputed"), expected)


def test_levels_and_ranges(site, data):
    keys: list[Axes] = [{"time": time, "z": z} for time in range(2) for z in range(2)]
    frames = [frame_of(number, (700, 600), axes=key) for number, key in enumerate(keys)]
    write_log(data / "cells", frames, memory_bytes=2**24)
    expected = np.stack([frames[0].image, frames[2].image])
    for level in range(2):
        assert np.array_equal(read(site, "cells@z=time/precomputed", scale_index=level), expected)
        expected = halved(expected, (1, 2, 2))
    chunk = "/data/cells@z=time/precomputed/s0/0-600_0-700_1-2"
    assert site.ask(chunk).body == frames[2].image.tobytes()
    part = site.ask(chunk, headers={"Range": "bytes=10-19"})
    assert (part.status, part.body) == (206, frames[2].image.tobytes()[10:20])
    assert site.ask(chunk, "HEAD").headers["content-length"] == str(2 * 600 * 700)
    assert site.ask("/data/cells@z=time/precomputed/s0/0-600_0-700_2-3").status == 404
    page = site.ask("/data/cells@z=time/precomputed").body
    assert b'href="/data/cells@z=time/precomputed/info"' in page


def test_it_grows_along_time(site, data):
    with start_log(data / "cells") as log:
        sizes = []
        for frame in FRAMES:
            log.append(frame.header, frame.image)
            count = frame.header.number + 1
            wait_for(log, lambda count=count: log.cursors().published >= count)
            with site.context.shelf.borrow(data / "cells") as dataset:
                dataset._refreshed_s = float("-inf")
            reply = site.ask("/data/cells@z=time/precomputed/channel0/info")
            if reply.status == 404:
                continue
            size = json.loads(reply.body)["scales"][0]["size"]
            assert size[:2] == [26, 21]
            assert np.array_equal(read(site, "cells@z=time/precomputed/channel0"), ARRAY[: size[2], 0, 0])
            sizes.append(size[2])
        assert sizes == sorted(sizes)
        assert set(sizes) == {1, 2, 3}
        pinned = read(site, "cells@z=time,g=8/precomputed/channel1")
        assert np.array_equal(pinned, ARRAY[:1, 1, 0])


def test_a_run_without_z_is_the_same(site, data):
    frames = frames_at(places_of(("time",), {"time": 3}), (21, 26))
    write_log(data / "cells", frames)
    expected = np.stack([frame.image for frame in frames])
    for options in ("", "@z=time"):
        assert np.array_equal(read(site, f"cells{options}/precomputed"), expected)


@pytest.mark.parametrize(
    "path",
    [
        *("cells@time=1,z=time/precomputed/channel0/info", "cells@z=time/precomputed/time0/channel0/info"),
        *("planes@z=time/precomputed/info", "cells@z=channel/precomputed/info", "cells@time=z/precomputed/info"),
        *("cells@z=time/ome.zarr/zarr.json", "cells@z=time/n5/attributes.json", "cells@z=time,z=1/precomputed/info"),
    ],
)
def test_other_uses_name_nothing(site, data, path):
    write_log(data / "cells", FRAMES)
    write_log(data / "planes", frames_at(places_of(("z",), {"z": 3}), (21, 26)))
    assert site.ask(f"/data/{path}").status == 404
