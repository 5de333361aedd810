"""Plates of OME-Zarr while they are recorded: readers find every listed well, and our reader the whole array."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore

import acqstream
from acqstream.errors import DatasetError
from acqstream.formats.ome_zarr.foreign import open_array
from acqstream.storage.stores.data_path import data_path_of
from acqstream.views.view_run import ViewRun, ViewState
from tests.log.make_frames import Frame, start_log, write_log
from tests.mirrors.mirror_cases import declared, finish, frames_at, places_of, run_of, shuffled

NAMES = ("A1_0000", "A1_0001", "A2_0000", "A2_0001", "C3_0000", "C3_0001")
WELLS = {"A/1": (0, 1), "A/2": (2, 3), "C/3": (4, 5)}
SIZES = {"time": 3, "position": len(NAMES), "channel": 2}
AXES = tuple(SIZES)
SETTINGS: dict[str, Any] = {"format": "ome-zarr", "chunks": [1, 16, 16], "levels": 2}
VARIANTS: dict[str, dict[str, Any]] = {"raw": {"compression": "none"}, "blosc": {}}


def listed_wells(container: Path) -> list[str]:
    root = json.loads((container / "zarr.json").read_text())["attributes"]["ome"]
    return [well["path"] for well in root["plate"]["wells"]]


def read_field(container: Path, well: str, field: int) -> Any:
    group = json.loads((container / well / str(field) / "zarr.json").read_text())
    assert "multiscales" in group["attributes"]["ome"]
    kvstore = {"driver": "file", "path": str(container / well / str(field) / "0")}
    return tensorstore.open({"driver": "zarr3", "kvstore": kvstore}).result().read().result()


def check_listed(container: Path, frames: list[Frame]) -> int:
    """Every field of every listed well has the pixels of its frames; the number of wells."""
    wells = listed_wells(container)
    for well in wells:
        images = json.loads((container / well / "zarr.json").read_text())["attributes"]["ome"]["well"]["images"]
        assert [image["path"] for image in images] == [str(field) for field in range(len(WELLS[well]))]
        for field, position in enumerate(WELLS[well]):
            found = read_field(container, well, field)
            assert len(found)
            for frame in frames:
                time, at, channel = (int(frame.axes[name]) for name in AXES)
                if at == position and time < len(found):
                    assert np.array_equal(found[time, channel], frame.image)
    return len(wells)


def step_until_waiting(run: ViewRun) -> None:
    run.step()
    while run.progress().state is not ViewState.WAITING:
        run.step()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "growing"])
def test_what_a_growing_plate_lists_can_be_read(tmp_path: Path, variant: str, is_declared: bool) -> None:
    frames = frames_at(places_of(AXES, SIZES), (20, 34))
    folder, container = tmp_path / "cells", tmp_path / "cells.ome.zarr"
    spec: dict[str, Any] = {"axes": declared(AXES, SIZES)} if is_declared else {}
    seen = set()
    with start_log(folder, summary={"PositionNames": list(NAMES)}, **spec) as log:
        log.append(frames[0].header, frames[0].image)
        assert log.wait_for_published(1)
        run = run_of(folder, {**SETTINGS, **VARIANTS[variant]}, name="ome-zarr")
        for count, frame in enumerate(frames[1:], 2):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(count)
            step_until_waiting(run)
            if count % 7 == 0:  # its process is killed
                run.close()
                run = run_of(folder, {**SETTINGS, **VARIANTS[variant]}, name="ome-zarr")
                run.step()
            if (container / "zarr.json").exists():
                seen.add(check_listed(container, frames[:count]))
    finish(run)
    assert check_listed(container, frames) == len(WELLS)
    assert len(seen) > 1 or variant == "blosc"  # its shards are stored at the end
    with acqstream.open(container) as found, acqstream.open(folder) as log_of:
        assert found.levels[0].axes == log_of.levels[0].axes
        assert np.array_equal(found.levels[0].read(), log_of.levels[0].read())


def test_names_as_values_of_the_axis(tmp_path: Path) -> None:
    """A mirror made afterwards knows the names from the frames, in whatever order they came."""
    places = places_of(AXES, SIZES, {"position": NAMES})
    frames = frames_at(shuffled(places, 3), (20, 34))
    write_log(tmp_path / "cells", frames)
    finish(run_of(tmp_path / "cells", SETTINGS, name="ome-zarr"))
    container = tmp_path / "cells.ome.zarr"
    assert sorted(listed_wells(container)) == sorted(WELLS)
    for well, positions in WELLS.items():
        fields = [json.loads((container / well / str(field) / "zarr.json").read_text()) for field in range(2)]
        names = {field["attributes"]["ome"]["multiscales"][0]["name"] for field in fields}
        assert names == {NAMES[position] for position in positions}
    with acqstream.open(container) as found, acqstream.open(tmp_path / "cells") as log:
        assert np.array_equal(found.levels[0].read(), log.levels[0].read())


def test_a_plate_of_others_lists_its_images(tmp_path: Path) -> None:
    """The same files without our note are a plate of other software: the error says how to choose."""
    frames = frames_at(places_of(AXES, SIZES), (20, 34))
    write_log(tmp_path / "cells", frames, summary={"PositionNames": list(NAMES)})
    finish(run_of(tmp_path / "cells", SETTINGS, name="ome-zarr"))
    container = tmp_path / "cells.ome.zarr"
    root = json.loads((container / "zarr.json").read_text())
    del root["attributes"]["acqstream"]
    (container / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(DatasetError, match=r"a plate, not one image; open the path of one image.*A/1/0 \(A1_0000\)"):
        acqstream.open(container)
    assert open_array(data_path_of(container / "C" / "3" / "1"))[0].spec.shape == (3, 2, 20, 34)


def test_the_option_turns_it_off(tmp_path: Path) -> None:
    frames = frames_at(places_of(AXES, SIZES), (20, 34))
    write_log(tmp_path / "cells", frames, summary={"PositionNames": list(NAMES)})
    finish(run_of(tmp_path / "cells", {**SETTINGS, "plate": False}, name="ome-zarr"))
    root = json.loads((tmp_path / "cells.ome.zarr" / "zarr.json").read_text())["attributes"]["ome"]
    assert root == {"version": "0.5", "bioformats2raw.layout": 3}
    image = json.loads((tmp_path / "cells.ome.zarr" / "4" / "zarr.json").read_text())["attributes"]["ome"]
    assert image["multiscales"][0]["name"] == NAMES[4]


def test_names_that_come_one_by_one_make_a_collection(tmp_path: Path) -> None:
    """The declared size says how many names will come, and nothing of what they mean: the last one means no well."""
    names = (*NAMES[:-1], "background")
    frames = frames_at(places_of(("position",), {}, {"position": names}), (20, 34))
    folder, container = tmp_path / "cells", tmp_path / "cells.ome.zarr"
    with start_log(folder, axes=declared(("position",), SIZES)) as log:
        log.append(frames[0].header, frames[0].image)
        assert log.wait_for_published(1)
        run = run_of(folder, SETTINGS, name="ome-zarr")
        step_until_waiting(run)
        for count, frame in enumerate(frames[1:], 2):
            log.append(frame.header, frame.image)
            assert log.wait_for_published(count)
            step_until_waiting(run)
    finish(run)
    root = json.loads((container / "zarr.json").read_text())["attributes"]["ome"]
    assert root == {"version": "0.5", "bioformats2raw.layout": 3}
    for number, name in enumerate(names):
        image = json.loads((container / str(number) / "zarr.json").read_text())["attributes"]["ome"]
        assert image["multiscales"][0]["name"] == name
    with acqstream.open(container) as found, acqstream.open(folder) as log_of:
        assert np.array_equal(found.levels[0].read(), log_of.levels[0].read())


def test_a_mirror_made_after_a_run_that_ended_early_is_a_plate(tmp_path: Path) -> None:
    """All names are known, although fewer came than were declared."""
    frames = frames_at(places_of(("position",), {}, {"position": NAMES[:4]}), (20, 34))
    write_log(tmp_path / "cells", frames, axes=declared(("position",), SIZES))
    finish(run_of(tmp_path / "cells", SETTINGS, name="ome-zarr"))
    assert listed_wells(tmp_path / "cells.ome.zarr") == ["A/1", "A/2"]
