"""BigDataViewer's layout where channels and positions appear that nobody declared: its XML file, read by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import tensorstore
from numpy.typing import NDArray

import acqstream
from acqstream.errors import ConfigError
from acqstream.log.log import Log
from acqstream.model.acquisition_spec import AxisSpec
from acqstream.views.view_run import ViewRun
from tests.log.make_frames import Axes, Frame, start_log, write_log
from tests.mirrors.mirror_cases import array_of, declared, finish, frames_at, places_of, run_of
from tests.waiting import until

BDV: dict[str, Any] = {"format": "n5", "compression": "raw", "blocks": [2, 16, 16], "levels": 2}
SIZES = {"time": 2, "position": 3, "channel": 2, "z": 4}
NAMES = {"channel": ("DAPI", "GFP")}


class Listed:
    """What an XML file lists."""

    def __init__(self, path: Path) -> None:
        root = ElementTree.parse(path).getroot()
        sequence = root.find("SequenceDescription")
        assert sequence is not None
        assert sequence.findtext("ImageLoader/n5") == path.with_suffix(".n5").name
        names = {
            str(group.get("name")): {entry.findtext("id"): entry.findtext("name") for entry in group}
            for group in sequence.findall("ViewSetups/Attributes")
        }
        self.setups: dict[int, tuple[str, str]] = {}
        for setup in sequence.findall("ViewSetups/ViewSetup"):
            number = int(setup.findtext("id") or -1)
            assert number not in self.setups
            kinds = {kind: names[kind][setup.findtext(f"attributes/{kind}")] for kind in ("channel", "tile")}
            self.setups[number] = str(kinds["channel"]), str(kinds["tile"])
        first, last = (int(sequence.findtext(f"Timepoints/{end}") or 0) for end in ("first", "last"))
        self.times = range(first, last + 1)
        views = [
            (int(view.get("timepoint") or 0), int(view.get("setup") or 0))
            for view in root.findall("ViewRegistrations/ViewRegistration")
        ]
        assert sorted(views) == sorted((time, setup) for time in self.times for setup in self.setups)


def check_as_it_grows(container: Path) -> Listed:
    """Whatever is listed can be opened: the setups' attributes are there, and their names differ."""
    listed = Listed(container.with_suffix(".xml"))
    for setup in listed.setups:
        assert (container / f"setup{setup}" / "attributes.json").exists()
    assert len(set(listed.setups.values())) == len(listed.setups)
    return listed


def follow_log(run: ViewRun, log: Log, frames: list[Frame]) -> int:
    most = 0
    for frame in frames:
        log.append(frame.header, frame.image)
        assert log.wait_for_published(frame.header.number + 1)
        while run.progress().cursor <= frame.header.number:
            assert run.step() is not None
        run.settle()
        most = max(most, len(check_as_it_grows(run.path.with_name("cells.n5")).setups))
    return most


def follow(frames: list[Frame], folder: Path, **more: Any) -> int:
    """Record, and mirror meanwhile; the most setups that were listed before the end."""
    with start_log(folder, **more) as log:
        log.wait_until_open()
        run = run_of(folder, BDV)
        try:
            most = follow_log(run, log, frames)
        except BaseException:
            run.close()
            raise
    finish(run)
    return most


def volume(container: Path, setup: int, time: int) -> NDArray[Any]:
    kvstore = {"driver": "file", "path": f"{container}/setup{setup}/timepoint{time}/s0"}
    found: NDArray[Any] = tensorstore.open({"driver": "n5", "kvstore": kvstore}).result().read().result()
    return found.T


@pytest.mark.parametrize("order", [("time", "position", "channel", "z"), ("z", "channel", "position", "time")])
def test_undeclared_channels_and_positions(tmp_path: Path, order: tuple[str, ...]) -> None:
    frames = frames_at(places_of(order, SIZES, NAMES))
    most = follow(frames, tmp_path / "cells")
    container = tmp_path / "cells.n5"
    listed = check_as_it_grows(container)
    assert most == len(listed.setups) == 6
    assert list(listed.times) == [0, 1]
    right = array_of(frames)
    for setup, (channel, tile) in listed.setups.items():
        position = int(tile.removeprefix("position "))
        for time in listed.times:
            found = volume(container, setup, time)
            assert np.array_equal(found, right[time, position, NAMES["channel"].index(channel)]), (setup, time)
    for path in (container, container.with_suffix(".xml")):
        with acqstream.open(path) as mirror:
            assert mirror.levels[0].axes == ("position", "time", "channel", "z", "y", "x")
            assert np.array_equal(mirror.levels[0].read(), np.swapaxes(right, 0, 1))


def test_one_undeclared_axis_is_numbered_without_gaps(tmp_path: Path) -> None:
    frames = frames_at(places_of(("time", "channel"), {"time": 2, "channel": 3}))
    follow(frames, tmp_path / "cells")
    assert sorted(check_as_it_grows(tmp_path / "cells.n5").setups) == [0, 1, 2]


def test_more_channels_than_were_declared_end_the_mirror_and_are_there_when_it_is_made_again(tmp_path: Path) -> None:
    places: list[Axes] = [{"position": p, "channel": c} for p in range(2) for c in range(2)]
    frames = frames_at([*places, {"position": 0, "channel": 2}])
    axes = (AxisSpec("position", 2), AxisSpec("channel", 2))
    with pytest.raises(ConfigError, match="cannot get longer along 'channel': it was declared with 2"):
        follow(frames, tmp_path / "cells", axes=axes)
    for setup, frame in enumerate(frames[:4]):
        assert np.array_equal(volume(tmp_path / "cells.n5", setup, 0)[0], frame.image)
    finish(run_of(tmp_path / "cells", BDV, is_remade=True))
    with acqstream.open(tmp_path / "cells.n5") as mirror:
        assert np.array_equal(mirror.levels[0].read()[0, 2], frames[4].image)
        assert len(check_as_it_grows(tmp_path / "cells.n5").setups) == 6


def test_the_xml_file_of_a_complete_mirror_keeps_what_programs_have_noted_there(tmp_path: Path) -> None:
    frames = frames_at(places_of(("time", "z"), {"time": 2, "z": 3}))
    write_log(tmp_path / "cells", frames, axes=declared(("time", "z"), {"time": 5, "z": 4}))
    finish(run_of(tmp_path / "cells", BDV))
    path = tmp_path / "cells.xml"
    registered = path.read_text().replace("<affine>1.0", "<affine>0.5")
    path.write_text(registered)
    finish(run_of(tmp_path / "cells", BDV))
    assert path.read_text() == registered
    assert "<affine>0.5" in registered
    assert acqstream.open(tmp_path / "cells.n5").complete
    path.unlink()
    finish(run_of(tmp_path / "cells", BDV))
    assert "<last>1</last>" in path.read_text()


def n5_array(container: Path) -> int:
    kvstore = {"driver": "file", "path": f"{container}/s0"}
    size: int = tensorstore.open({"driver": "n5", "kvstore": kvstore}).result().shape[-1]  # x is first
    return size


def last_time(container: Path) -> int:
    return int(ElementTree.parse(container.with_suffix(".xml")).findtext(".//Timepoints/last") or -1) + 1


def setups(container: Path) -> int:
    return len(ElementTree.parse(container.with_suffix(".xml")).findall(".//ViewSetup"))


def bounding_box(container: Path) -> int:
    layers = json.loads((container / "datasource-properties.json").read_bytes())["dataLayers"]
    return int(layers[0]["boundingBox"]["depth"])


@pytest.mark.parametrize(
    ("settings", "axes", "announced"),
    [
        ({"format": "n5", "layout": "array"}, ("time",), n5_array),
        ({"format": "n5", "layout": "array"}, ("position", "z"), n5_array),
        ({"format": "n5"}, ("time", "z"), last_time),
        ({"format": "n5"}, ("position", "z"), setups),
        ({"format": "wkw"}, ("z",), bounding_box),
    ],
)
def test_planned_places_are_not_announced(
    tmp_path: Path, settings: dict[str, Any], axes: tuple[str, ...], announced: Callable[[Path], int]
) -> None:
    """Other programs see 8 of 20 that were expected, and with sizes that were declared; then all."""
    sizes = dict(zip(axes, (20, 2), strict=False))
    frames = frames_at(places_of(axes, sizes))
    n_first = len(frames) * 8 // 20
    open_sizes = (AxisSpec(axes[0]), *declared(axes[1:], sizes))
    specs: dict[str, dict[str, Any]] = {
        "expect": {"expect": len(frames), "axes": open_sizes},
        "sizes": {"axes": declared(axes, sizes)},
    }
    for name, spec in specs.items():
        with start_log(tmp_path / name, **spec) as log:
            run = run_of(tmp_path / name, settings, settings["format"])
            for frame in frames[:n_first]:
                log.append(frame.header, frame.image)
            until(lambda run=run: run.step() is not None and run.progress().cursor == n_first, "taken")  # type: ignore[misc]
            run.settle()
            container = Path(run.view.summary()["container"])
            assert announced(container) == 8
            with acqstream.open(container) as found:
                assert found.shape[0] == 8
            for frame in frames[n_first:]:
                log.append(frame.header, frame.image)
        finish(run)
        assert announced(container) == 20


def test_a_channel_behind_a_single_position_is_announced_as_planned(tmp_path: Path) -> None:
    """Setups are numbered by its size, so it cannot grow; a single image has the name of the dataset."""
    sizes = {"position": 1, "channel": 3}
    write_log(
        tmp_path / "cells",
        frames_at(places_of(("position", "channel"), sizes)),
        axes=declared(("position", "channel"), sizes),
    )
    finish(run_of(tmp_path / "cells", {"format": "n5"}, "n5"))
    assert setups(tmp_path / "cells.n5") == 3


@pytest.mark.parametrize("settings", [{"format": "n5"}, {"format": "ome-zarr", "name": "small"}])
def test_a_single_image_has_the_name_of_the_dataset(tmp_path: Path, settings: dict[str, Any]) -> None:
    write_log(tmp_path / "cells", frames_at([{}]))
    container = Path(finish(run_of(tmp_path / "cells", settings, settings["format"])).view.summary()["container"])
    if settings["format"] == "n5":
        assert ElementTree.parse(container.with_suffix(".xml")).findtext(".//ViewSetup/name") == "cells"
    else:
        ome = json.loads((container / "zarr.json").read_bytes())["attributes"]["ome"]
        assert ome["multiscales"][0]["name"] == "cells"
