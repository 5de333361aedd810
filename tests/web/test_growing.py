"""Growing runs, generations, holes and rewritten frames."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
import tensorstore
from numpy.typing import NDArray

from acqstream.model.acquisition_spec import AxisSpec
from tests.log.make_frames import Axes, append, frame_of, frames_of, start_log, write_log
from tests.mirrors.mirror_cases import array_of, declared, frames_at, places_of
from tests.web.web_process import Site, web_thread

SIZES = {"time": 3, "channel": 2, "z": 4}
FRAMES = frames_at(places_of(tuple(SIZES), SIZES), (21, 26))
ARRAY = array_of(FRAMES, tuple(SIZES))
STACK = 8  # frames of one time


def shape_of(site: Site, options: str = "", name: str = "cells") -> list[int] | None:
    """The announced shape of level 0; None where there is no array yet."""
    assert site.context is not None
    with site.context.shelf.borrow(site.context.settings.data / name) as dataset:
        dataset._refreshed_s = 0.0
    reply = site.ask(f"/data/{name}{options}/ome.zarr/0/zarr.json")
    if reply.status == 404:
        assert reply.headers["cache-control"] == "no-store"
        return None
    shape: list[int] = json.loads(reply.body)["shape"]
    return shape


def read(site: Site, options: str = "", name: str = "cells") -> NDArray[Any]:
    base = f"{site.url}/data/{name}{options}/ome.zarr/0/"
    spec = {"driver": "zarr3", "kvstore": {"driver": "http", "base_url": base}}
    found: NDArray[Any] = tensorstore.open(spec, open=True).result().read().result()
    return found


def test_a_dataset_without_a_frame_is_not_there_yet(site, data):
    (data / "empty").mkdir()
    assert site.ask("/data/empty/ome.zarr/zarr.json").status == 404
    assert site.ask("/data/none/ome.zarr/zarr.json").status == 404


@pytest.mark.parametrize("is_declared", [True, False])
def test_an_index_is_announced_when_it_is_complete(site, data, is_declared):
    """Nothing that was announced is zeros, and what was planned is not announced."""
    axes = declared(tuple(SIZES), SIZES) if is_declared else ()
    shapes = []
    with start_log(data / "cells", axes=axes) as log:
        for number, frame in enumerate(FRAMES):
            append(log, [frame])
            shape = shape_of(site)
            shapes.append(shape)
            if shape is not None:
                found = read(site)
                assert np.array_equal(found, ARRAY[tuple(slice(size) for size in shape)])
                assert found.any(axis=(-1, -2)).all()
            assert (number + 1 < STACK) <= (shape is None or not is_declared)
        assert shapes[STACK - 1] == [1, 2, 4, 21, 26]
        assert shapes[2 * STACK - 2] == [1, 2, 4, 21, 26]
        assert shapes[2 * STACK - 1] == [2, 2, 4, 21, 26]
    assert shape_of(site) == [3, 2, 4, 21, 26]


def test_a_run_that_ended_early_shows_all_it_has(site, data):
    write_log(data / "cells", FRAMES[: STACK + 3], axes=declared(tuple(SIZES), SIZES))
    assert shape_of(site) == [2, 2, 4, 21, 26]
    assert site.ask("/data/cells/ome.zarr/0/c/1/1/3/0/0").status == 404
    expected = ARRAY[:2].copy()
    expected[1].reshape(-1, 21, 26)[3:] = 0
    assert np.array_equal(read(site), expected)


def test_a_generation_stays_as_it_was(site, data):
    with start_log(data / "cells") as log:
        append(log, FRAMES[:STACK])
        before = read(site, f"@g={STACK}")
        documents = site.ask(f"/data/cells@g={STACK}/ome.zarr/zarr.json").body
        append(log, FRAMES[STACK : 2 * STACK])
        assert shape_of(site) == [2, 2, 4, 21, 26]
        assert shape_of(site, f"@g={STACK}") == [1, 2, 4, 21, 26]
        assert np.array_equal(read(site, f"@g={STACK}"), before)
        assert site.ask(f"/data/cells@g={STACK}/ome.zarr/zarr.json").body == documents
        assert shape_of(site, f"@g={2 * STACK + 1}") is None  # it is not there yet


def test_every_generation_is_what_a_shorter_run_was(data):
    """Places never move: whatever comes later, a snapshot has the same array."""
    keys: list[Axes] = [
        {"time": 0, "z": 2},
        {"time": 0, "z": 0},
        {"time": 0, "z": -1},
        {"time": 1, "z": 2},
        {"time": 7, "z": 0},
        {"time": 1, "z": 2},  # again
        {"time": 1, "z": 0, "channel": "GFP"},
        {"time": 2, "z": 0, "channel": "DAPI"},
    ]
    frames = [frame_of(number, axes=axes) for number, axes in enumerate(keys)]
    write_log(data / "cells", frames, replace_duplicates=True)
    for count in range(1, len(frames)):
        write_log(data / f"first{count}", frames[:count], replace_duplicates=True)
    with web_thread(data) as site:
        for count in range(1, len(frames)):
            pinned, alone = shape_of(site, f"@g={count}"), shape_of(site, f"@g={count}", name=f"first{count}")
            if pinned is None:
                continue
            assert alone is not None
            assert pinned[1:] == alone[1:]
            inside = tuple(slice(size) for size in pinned)
            assert np.array_equal(read(site, f"@g={count}"), read(site, f"@g={count}", name=f"first{count}")[inside]), (
                count
            )


def test_only_a_pinned_chunk_of_a_known_dataset_is_kept_for_ever(site, data):
    write_log(data / "cells", FRAMES)
    identity = "00000000000000000000000000000007"
    chunk = "ome.zarr/0/c/0/0/0/0/0"
    for options, cache in (
        ("", "no-cache"),
        (f"@g={len(FRAMES)}", "no-cache"),
        (f"@id={identity}", "no-cache"),
        (f"@id={identity[:12]},g={len(FRAMES)}", "private, max-age=31536000, immutable"),
    ):
        assert site.ask(f"/data/cells{options}/{chunk}").headers["cache-control"] == cache
        assert site.ask(f"/data/cells{options}/ome.zarr/zarr.json").headers["cache-control"] == "no-cache"
    assert site.ask(f"/data/cells@id=ffffffff,g=1/{chunk}").status == 404


def test_a_frame_that_is_written_again_gets_another_tag(site, data):
    chunk = "ome.zarr/0/c/0/0/0"
    first, second = frame_of(0, axes={"time": 0}), frame_of(1, axes={"time": 0})
    with start_log(data / "cells", replace_duplicates=True) as log:
        append(log, [first])
        before = site.ask(f"/data/cells/{chunk}")
        assert before.body == first.image.tobytes()
        append(log, [second])
        shape_of(site)  # looks at the index
        after = site.ask(f"/data/cells/{chunk}", headers={"If-None-Match": before.headers["etag"]})
        assert (after.status, after.body) == (200, second.image.tobytes())
        assert site.ask(f"/data/cells@g=1/{chunk}").body == first.image.tobytes()
        assert site.ask(f"/data/cells/{chunk}", headers={"If-None-Match": after.headers["etag"]}).status == 304


def test_a_name_that_is_given_again_shows_the_new_dataset(site, data):
    write_log(data / "cells", frames_of(3))
    assert read(site).shape[0] == 3
    (data / "cells").rename(data / "old")
    write_log(data / "cells", frames_of(2, (16, 16)))
    with site.context.shelf.borrow(data / "cells") as dataset:
        dataset._refreshed_s = 0.0
    site.ask("/data/cells/ome.zarr/zarr.json")  # finds that it was replaced
    assert read(site).shape == (2, 16, 16)


@pytest.mark.parametrize(
    "key",
    [
        *("0/c/01/0/0/0/0", "0/c/+1/0/0/0/0", "0/c/1/0/0/0", "0/c/1/0/0/0/0/0", "00/c/1/0/0/0/0", "0/c/9/0/0/0/0"),
        *("0/c/-1/0/0/0/0", "0/c/1/0/0/1/0", "0/c/99999999999999999999/0/0/0/0", "0/c/1e0/0/0/0/0", "9/c/0/0/0/0/0"),
        *("0/c/%D9%A1/0/0/0/0", "1/zarr.jso", "0/1/0/0/0/0", "s0/0/0/0/0/0"),
    ],
)
def test_other_spellings_and_places_are_not_there(site, data, key):
    write_log(data / "cells", FRAMES)
    assert site.ask("/data/cells/ome.zarr/0/c/1/0/0/0/0").status == 200
    reply = site.ask(f"/data/cells/ome.zarr/{key}")
    assert (reply.status, reply.headers["cache-control"]) == (404, "no-store")


def test_an_axis_is_fixed(site, data):
    keys = places_of(("time", "position", "channel"), {"time": 2, "position": 3, "channel": 0}, {"channel": ["a", "b"]})
    frames = frames_at(keys, (20, 24))
    write_log(data / "cells", frames)
    expected = {tuple(frame.axes.values()): frame.image for frame in frames}
    found = read(site, "@position=2")
    assert found.shape == (2, 2, 20, 24)
    assert np.array_equal(found[1, 0], expected[1, 2, "a"])
    assert np.array_equal(read(site, "@position=1,channel=b")[0], expected[0, 1, "b"])
    many = "9" * 5000  # digits that Python refuses to convert
    for options in ("@position=3", "@channel=c", "@angle=0", "@position=02", f"@position={many}", f"@position=-{many}"):
        assert shape_of(site, options) is None


def test_images_of_a_collection(site, data):
    keys = places_of(("time", "position"), {"time": 2, "position": 3})
    frames = frames_at(keys, (20, 24))
    write_log(data / "cells", frames)
    root = json.loads(site.ask("/data/cells/ome.zarr/zarr.json").body)["attributes"]["ome"]
    assert root["bioformats2raw.layout"] == 3
    series = json.loads(site.ask("/data/cells/ome.zarr/OME/zarr.json").body)["attributes"]["ome"]["series"]
    old = json.loads(site.ask("/data/cells/v2.ome.zarr/OME/.zattrs").body)["series"]
    assert series == old == ["0", "1", "2"]
    assert site.ask("/data/cells/ome.zarr/OME/METADATA.ome.xml").headers["content-type"] == "application/xml"
    for position in range(3):
        spec = {"kvstore": {"driver": "http", "base_url": f"{site.url}/data/cells/ome.zarr/{position}/0/"}}
        found = tensorstore.open({"driver": "zarr3", **spec}, open=True).result().read().result()
        images = [frame.image for frame in frames if frame.axes["position"] == position]
        assert np.array_equal(found, np.stack(images))
    assert site.ask("/data/cells/ome.zarr/3/0/zarr.json").status == 404
    assert b'href="/data/cells/ome.zarr/2/"' in site.ask("/data/cells/ome.zarr").body


def test_a_frame_of_another_shape_is_absent(site, data):
    frames = [frame_of(0), frame_of(1, (16, 16)), frame_of(2)]
    write_log(data / "cells", frames)
    assert site.ask("/data/cells/ome.zarr/0/c/1/0/0").status == 404
    assert site.ask("/data/cells/ome.zarr/0/c/2/0/0").body == frames[2].image.tobytes()


def test_followers_of_a_growing_run_never_see_torn_or_missing_frames(site, data):
    """Several clients poll while frames arrive."""
    sizes = {"time": 40, "channel": 2, "z": 4}
    frames = frames_at(places_of(tuple(sizes), sizes), (21, 26))
    expected = array_of(frames, tuple(sizes))
    faults: list[str] = []
    is_over = threading.Event()

    def follow() -> None:
        seen = 0
        while not is_over.is_set():
            reply = site.ask("/data/cells/ome.zarr/0/zarr.json")
            if reply.status == 404:
                continue
            shape = json.loads(reply.body)["shape"]
            if shape[0] < seen:
                faults.append(f"shape went from {seen} to {shape}")
            seen = shape[0]
            chunk = site.ask(f"/data/cells/ome.zarr/0/c/{seen - 1}/1/3/0/0")
            if chunk.status != 200 or chunk.body != expected[seen - 1, 1, 3].tobytes():
                faults.append(f"time {seen - 1}: {chunk.status} {len(chunk.body)}")

    threads = [threading.Thread(target=follow) for _ in range(3)]
    with start_log(data / "cells", axes=(AxisSpec("time"), AxisSpec("channel", 2), AxisSpec("z", 4))) as log:
        for thread in threads:
            thread.start()
        try:
            for frame in frames:
                append(log, [frame])
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
    assert not faults
    assert shape_of(site) == [*expected.shape]
    assert np.array_equal(read(site), expected)
