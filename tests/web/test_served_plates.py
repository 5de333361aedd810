"""Plates as viewers see them: the documents that a mirror has, from the names of positions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore

import acqstream
from acqstream.log.log import Log
from acqstream.web.data.data_address import DataOptions
from tests.log.make_frames import Frame, start_log, wait_for, write_log
from tests.mirrors.mirror_cases import declared, finish, frames_at, places_of, run_of, shuffled
from tests.web.web_process import Site, web_thread

NAMES = ("A1_0000", "A1_0001", "B2_0000", "B2_0001", "C12")
FIELDS = {"A/1/0": 0, "A/1/1": 1, "B/2/0": 2, "B/2/1": 3, "C/12/0": 4}
SIZES = {"time": 2, "position": len(NAMES), "channel": 2}
AXES = tuple(SIZES)
SUMMARY = {"PositionNames": [*NAMES], "ChNames": ["DAPI", "GFP"], "PixelSize_um": 0.5}
FRAMES = frames_at(places_of(AXES, SIZES), (20, 34))
COLLECTION = {"version": "0.5", "bioformats2raw.layout": 3}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    data = tmp_path / "data"
    data.mkdir()
    with web_thread(data) as site:
        yield site


def data_of(site: Site) -> Path:
    assert site.context is not None
    return site.context.settings.data


def document(site: Site, path: str) -> dict[str, Any]:
    reply = site.ask(f"/data/{path}")
    assert reply.status == 200, path
    found: dict[str, Any] = json.loads(reply.body)
    return found


def ome(site: Site, path: str = "", dataset: str = "cells") -> dict[str, Any]:
    """What a group in OME-Zarr 0.5 says of itself."""
    found: dict[str, Any] = document(site, f"{dataset}/ome.zarr/{path}zarr.json")["attributes"].get("ome", {})
    return found


def wells_of(plate: dict[str, Any]) -> list[str]:
    return [well["path"] for well in plate["plate"]["wells"]]


def grow(site: Site, log: Log, frame: Frame) -> None:
    """Append a frame and have the server look at once."""
    log.append(frame.header, frame.image)
    count = log.cursors().received
    wait_for(log, lambda: log.cursors().published >= count)
    look_again(site)


def look_again(site: Site) -> None:
    assert site.context is not None
    with site.context.shelf.borrow(data_of(site) / "cells") as dataset:
        dataset._refreshed_s = 0.0


def read(site: Site, driver: str, path: str) -> Any:
    kvstore = {"driver": "http", "base_url": f"{site.url}/data/cells/{path}/"}
    return tensorstore.open({"driver": driver, "kvstore": kvstore}, open=True).result().read().result()


def test_its_documents_are_those_of_the_mirror(site: Site) -> None:
    folder = data_of(site) / "cells"
    write_log(folder, FRAMES, axes=declared(AXES, SIZES), summary=SUMMARY)
    finish(run_of(folder, {"format": "ome-zarr"}, name="ome-zarr"))
    mirror = data_of(site) / "cells.ome.zarr"
    groups = ["", *(f"{row}/" for row in "ABC"), "A/1/", "B/2/", "C/12/", *(f"{field}/" for field in FIELDS)]
    for path in groups:
        stored = json.loads((mirror / path / "zarr.json").read_text())
        assert ome(site, path) == stored["attributes"].get("ome", {}), path
        assert document(site, f"cells/ome.zarr/{path}zarr.json")["node_type"] == "group"
    assert wells_of(ome(site)) == ["A/1", "B/2", "C/12"]
    assert not (mirror / "OME").exists()
    for path in ("OME/zarr.json", "0/zarr.json", "A/2/zarr.json", "D/zarr.json", "A/1/2/zarr.json"):
        assert site.ask(f"/data/cells/ome.zarr/{path}").status == 404


def test_in_0_4_it_says_the_same_in_other_words(site: Site) -> None:
    write_log(data_of(site) / "cells", FRAMES, axes=declared(AXES, SIZES), summary=SUMMARY)
    new = ome(site)["plate"]
    old = document(site, "cells/v2.ome.zarr/.zattrs")
    assert old == {"plate": {**new, "version": "0.4"}}
    for path in ("", "A/", "A/1/", "A/1/0/"):
        assert document(site, f"cells/v2.ome.zarr/{path}.zgroup") == {"zarr_format": 2}
    well = document(site, "cells/v2.ome.zarr/B/2/.zattrs")
    assert well == {"well": {**ome(site, "B/2/")["well"], "version": "0.4"}}
    (image,) = document(site, "cells/v2.ome.zarr/B/2/1/.zattrs")["multiscales"]
    assert (image["version"], image["name"]) == ("0.4", "B2_0001")


@pytest.mark.parametrize(("driver", "layout"), [("zarr3", "ome.zarr"), ("zarr", "v2.ome.zarr")])
def test_every_field_has_its_frames(site: Site, driver: str, layout: str) -> None:
    frames = frames_at(shuffled(places_of(AXES, SIZES), 5), (20, 34))
    write_log(data_of(site) / "cells", frames, summary=SUMMARY)
    for path, position in FIELDS.items():
        found = read(site, driver, f"{layout}/{path}/0")
        for frame in frames:
            time, at, channel = (int(frame.axes[name]) for name in AXES)
            if at == position:
                assert np.array_equal(found[time, channel], frame.image), path


def test_our_reader_sees_the_dataset(site: Site) -> None:
    folder = data_of(site) / "cells"
    write_log(folder, FRAMES, summary=SUMMARY)
    with acqstream.open(folder) as own, acqstream.open(f"{site.url}/data/cells/ome.zarr") as served:
        assert served.levels[0].axes == own.levels[0].axes
        assert np.array_equal(served.levels[0].read(), own.levels[0].read())


def test_a_growing_plate_lists_a_well_when_its_fields_have_come(site: Site) -> None:
    frames = frames_at(places_of(("position",), {"position": len(NAMES)}), (20, 34))
    listed = []
    with start_log(data_of(site) / "cells", summary=SUMMARY) as log:
        for count, frame in enumerate(frames, 1):
            grow(site, log, frame)
            listed.append(wells_of(ome(site)))
            for path in listed[-1]:
                images = ome(site, f"{path}/")["well"]["images"]
                assert all(ome(site, f"{path}/{image['path']}/")["multiscales"] for image in images)
            for path, position in FIELDS.items():
                assert (site.ask(f"/data/cells/ome.zarr/{path}/zarr.json").status == 200) == (position < count)
            assert site.ask("/data/cells/ome.zarr/C/zarr.json").status == (404 if count < len(NAMES) else 200)
    assert listed == [[], ["A/1"], ["A/1"], ["A/1", "B/2"], ["A/1", "B/2", "C/12"]]


def test_a_run_that_ended_early_lists_the_fields_that_came(site: Site) -> None:
    frames = frames_at(places_of(("position",), {"position": 3}), (20, 34))
    write_log(data_of(site) / "cells", frames, axes=declared(("position",), SIZES), summary=SUMMARY)
    assert wells_of(ome(site)) == ["A/1", "B/2"]
    assert [image["path"] for image in ome(site, "B/2/")["well"]["images"]] == ["0"]
    assert site.ask("/data/cells/ome.zarr/C/12/zarr.json").status == 404


def test_names_that_come_with_the_frames_make_a_plate_when_the_run_has_ended(site: Site) -> None:
    """Until then another name may mean no well; an address with a number of frames keeps its folders."""
    sizes = {"position": len(NAMES), "angle": 2}
    frames = frames_at(places_of(tuple(sizes), sizes, {"position": NAMES}), (20, 34))
    with start_log(data_of(site) / "cells") as log:
        for frame in frames:
            grow(site, log, frame)
            assert ome(site) == COLLECTION
        image = ome(site, "0/")
    look_again(site)
    assert wells_of(ome(site)) == ["A/1", "B/2", "C/12"]
    assert len(ome(site, "B/2/")["well"]["images"]) == 4
    pinned = f"cells@g={len(frames)}"
    assert ome(site, dataset=pinned) == COLLECTION
    assert ome(site, "0/", pinned) == image


def test_names_that_come_one_by_one_make_a_plate_at_the_end_of_a_declared_run_that_ended_early(site: Site) -> None:
    frames = frames_at(places_of(("position",), {}, {"position": NAMES[:4]}), (20, 34))
    with start_log(data_of(site) / "cells", axes=declared(("position",), SIZES)) as log:
        for frame in frames:
            grow(site, log, frame)
            assert ome(site) == COLLECTION
    look_again(site)
    assert wells_of(ome(site)) == ["A/1", "B/2"]


def test_names_that_mean_no_wells_are_a_collection(site: Site) -> None:
    names = [*NAMES[:-1], "background"]
    write_log(data_of(site) / "cells", FRAMES, summary={"PositionNames": names})
    assert ome(site) == COLLECTION
    assert ome(site, "4/")["multiscales"][0]["name"] == "background"
    assert site.ask("/data/cells/v2.ome.zarr/A/1/.zattrs").status == 404


def test_one_position_is_an_image(site: Site) -> None:
    write_log(data_of(site) / "cells", FRAMES, summary=SUMMARY)
    assert "multiscales" in ome(site, dataset="cells@position=2")


def test_other_formats_keep_their_layout(site: Site) -> None:
    write_log(data_of(site) / "cells", FRAMES, summary=SUMMARY)
    assert document(site, "cells/n5/attributes.json")["n5"]
    assert "image" in document(site, "cells/xarray.zarr/zarr.json")["consolidated_metadata"]["metadata"]


@pytest.mark.parametrize("summary", [{}, {"PositionNames": [f"A1_{number:04}" for number in range(150)]}])
def test_a_late_image_is_found_by_a_reader_that_asks_for_its_folder(site: Site, summary: dict[str, Any]) -> None:
    frames = frames_at(places_of(("position",), {"position": 150}), (20, 34))
    write_log(data_of(site) / "cells", frames, summary=summary)
    path = "A/1/140" if summary else "140"
    assert site.ask(f"/data/cells/ome.zarr/{path}/").status == 200
    assert site.ask(f"/data/cells/ome.zarr/{path[:-3]}150/").status == 404


def test_neuroglancer_shows_the_first_field(site: Site) -> None:
    write_log(data_of(site) / "cells", FRAMES, summary=SUMMARY)
    identity = data_identity(site)
    state = json.loads(site.ask("/view/cells/state.json").body)
    path = f"/data/cells@id={identity},g={len(FRAMES)}/ome.zarr/A/1/0/"
    assert state["layers"][0]["source"].split("|")[0].endswith(path)
    assert [layer["name"] for layer in state["layers"]] == ["cells DAPI", "cells GFP"]


def data_identity(site: Site) -> str:
    assert site.context is not None
    with site.context.shelf.borrow(data_of(site) / "cells") as dataset:
        assert dataset.array("ome.zarr", DataOptions()) is not None
        return dataset.identity[:12]
