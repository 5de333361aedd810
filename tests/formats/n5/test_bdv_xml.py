"""The XML file of BigDataViewer: what it says, and opening a container by it."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import acqstream
from acqstream.errors import CorruptDataset, DatasetError
from acqstream.formats.n5 import FORMAT
from tests.formats.n5.n5_samples import GOLDEN, create, plan_levels, samples, spec_of, with_shape, write_pyramid
from tests.storage.unforced_disk import UnforcedDisk

AXES = ("time", "position", "channel", "z", "y", "x")


@pytest.fixture
def made(tmp_path):
    array = samples((3, 2, 2, 4, 6, 8), "uint16")
    space = {
        "scale": (1.0, 1.0, 1.0, 0.5, 0.1, 0.1),
        "units": ("s", "", "", "um", "um", "um"),
        "translation": (0.0, 0.0, 0.0, 3.0, 2.0, -1.0),
    }
    write_pyramid(tmp_path / "cells.n5", array, AXES, labels={"channel": ("DAPI", "a < b\x00")}, **space)
    return tmp_path, array


def test_it_lists_setups_time_points_and_registrations(made):
    folder, _ = made
    root = ElementTree.fromstring((folder / "cells.xml").read_text())
    assert root.findtext("BasePath") == "."
    loader = root.find("SequenceDescription/ImageLoader")
    assert (loader.get("format"), loader.get("version"), loader.findtext("n5")) == ("bdv.n5", "1.0", "cells.n5")
    setups = root.findall("SequenceDescription/ViewSetups/ViewSetup")
    assert [setup.findtext("id") for setup in setups] == ["0", "1", "2", "3"]
    assert [setup.findtext("name") for setup in setups] == [
        "position 0, DAPI",
        "position 0, a < b?",
        "position 1, DAPI",
        "position 1, a < b?",
    ]
    assert {setup.findtext("size") for setup in setups} == {"8 6 4"}
    assert {setup.findtext("voxelSize/size") for setup in setups} == {"0.1 0.1 0.5"}
    assert {setup.findtext("voxelSize/unit") for setup in setups} == {"um"}
    assert [(s.findtext("attributes/channel"), s.findtext("attributes/tile")) for s in setups] == [
        ("0", "0"),
        ("1", "0"),
        ("0", "1"),
        ("1", "1"),
    ]
    names = [entry.findtext("name") for entry in root.iterfind("SequenceDescription/ViewSetups/Attributes/Channel")]
    assert names == ["DAPI", "a < b?"]
    assert root.findtext("SequenceDescription/Timepoints/last") == "2"
    views = root.findall("ViewRegistrations/ViewRegistration")
    assert {(view.get("timepoint"), view.get("setup")) for view in views} == {
        (str(t), str(s)) for t in range(3) for s in range(4)
    }
    assert {view.findtext("ViewTransform/affine") for view in views} == {
        "0.1 0.0 0.0 -1.0 0.0 0.1 0.0 2.0 0.0 0.0 0.5 3.0"
    }


def test_every_setup_that_it_lists_is_there(made):
    folder, array = made
    for time, setup in np.ndindex(3, 4):
        with acqstream.open(folder / "cells.n5" / f"setup{setup}" / f"timepoint{time}") as ds:
            assert np.array_equal(ds.levels[0].read(), array[time, setup // 2, setup % 2])


def test_a_container_opens_by_it(made):
    folder, array = made
    with acqstream.open(folder / "cells.xml") as ds:
        assert ds.path == folder / "cells.n5"
        assert np.array_equal(ds.levels[0].read(), array)


def test_of_many_time_points_the_last_few_are_listed_at_the_next_sync(tmp_path):
    options = FORMAT.parse_options({})
    (level,) = plan_levels(spec_of(np.zeros((100, 4, 4), "u1"), ("time", "y", "x")), options)
    writer = create(tmp_path / "a.n5", with_shape([level], (0, 1, 4, 4)), options, UnforcedDisk())

    def listed():
        root = ElementTree.fromstring((tmp_path / "a.xml").read_text())
        return int(root.findtext("SequenceDescription/Timepoints/last")) + 1

    seen = set()
    for times in range(1, 101):
        writer.grow(0, (times, 1, 4, 4))
        assert times - times // 32 <= listed() <= times
        seen.add(listed())
    assert 31 < len(seen) < 70
    writer.grow(0, (101, 1, 4, 4))
    writer.sync()
    assert listed() == 101


def write_xml(path, n5, voxel="<voxelSize><unit>um</unit><size>0.1 0.2 0.3</size></voxelSize>"):
    path.write_text(
        '<SpimData version="0.2"><BasePath type="relative">.</BasePath><SequenceDescription>'
        f'<ImageLoader format="bdv.n5" version="1.0"><n5 type="relative">{n5}</n5></ImageLoader>'
        f"<ViewSetups><ViewSetup><id>0</id>{voxel}</ViewSetup></ViewSetups></SequenceDescription></SpimData>"
    )


def test_voxel_sizes_of_other_writers_stand_in_it(tmp_path):
    from tests.formats.n5.n5_samples import make_dataset

    make_dataset(tmp_path / "a.n5" / "setup0" / "timepoint0" / "s0", [2, 2, 2], [2, 2, 2])
    write_xml(tmp_path / "a.xml", "a.n5")
    with acqstream.open(tmp_path / "a.xml") as ds:
        assert (ds.levels[0].scale[2:], ds.levels[0].units[2:]) == ((0.3, 0.2, 0.1), ("um", "um", "um"))
    write_xml(tmp_path / "b.xml", GOLDEN / "multiscale_bdv.n5", voxel="<voxelSize><size>a b c</size></voxelSize>")
    with acqstream.open(tmp_path / "b.xml", follow_links=True) as ds:
        assert ds.shape == (2, 2, 12, 48, 64)


def test_damaged_ones_are_named(tmp_path):
    path = tmp_path / "a.xml"
    path.write_text("<SpimData bdv.n5")
    with pytest.raises(CorruptDataset, match="is not an XML text"):
        acqstream.open(path)
    write_xml(path, "")
    with pytest.raises(CorruptDataset, match="names no N5 container"):
        acqstream.open(path)
    write_xml(path, "missing.n5")
    with pytest.raises(DatasetError, match=r"missing\.n5: "):
        acqstream.open(path)
