"""Distances and places that nobody declared, from Pycro-Manager's frames into the mirrors."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import acqstream
from tests.client.pycromanager import microscope
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (importlib.util.find_spec("pycromanager") and importlib.util.find_spec("mm_test_adapters")),
        reason="needs pycromanager and mm-test-adapters",
    ),
]

STACKS = """
EVENTS = pycromanager.multi_d_acquisition_events(
    xy_positions=np.array([[100.0, 20.0], [160.5, -35.0]]), z_start=5, z_end=6.5, z_step=0.3
)
with Acquisition("stacks", mirrors=["n5", "wkw"], **options) as acq:
    acq.acquire(EVENTS)
tell(path=acq.run.path)
"""


@pytest.mark.timeout_s(90)
def test_z_step_and_stage_places_reach_the_mirrors(shared_daemon):
    told = microscope.run("import numpy as np\n" + STACKS, endpoint=shared_daemon.endpoint)
    path = Path(told[0]["path"])
    n5, wkw = path.with_suffix(".n5"), path.with_suffix(".wkw")

    def is_complete(mirror):
        try:
            with acqstream.open(mirror) as ds:
                return ds.complete
        except acqstream.DatasetError:
            return False

    for mirror in (n5, wkw):
        until(lambda mirror=mirror: is_complete(mirror), f"{mirror.name} is complete")
    root = ElementTree.fromstring(n5.with_suffix(".xml").read_text())
    voxels = root.findall("SequenceDescription/ViewSetups/ViewSetup/voxelSize")
    assert {(voxel.findtext("unit"), voxel.findtext("size")) for voxel in voxels} == {("um", "1.0 1.0 0.3")}
    places = []
    for view in root.findall("ViewRegistrations/ViewRegistration"):
        affine = np.array([*map(float, view.findtext("ViewTransform/affine").split())]).reshape(3, 4)
        assert affine[:, :3].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0.3]]
        places.append(affine[:, 3].tolist())
    assert places == [[68.5, 4.5, 5.0], [129.0, -50.5, 5.0]]  # half an image from the stage's place
    with acqstream.open(path) as ds, acqstream.open(n5) as first, acqstream.open(wkw) as second:
        assert ds.levels[0].z_step_um == 0.3
        for mirror in (first, second):
            level = mirror.levels[0]
            assert dict(zip(level.axes, level.units, strict=True)) == {"position": "", "z": "um", "y": "um", "x": "um"}
            assert (level.z_step_um, level.pixel_size_um) == (0.3, 1.0)
            assert level.places == ((5.0, 4.5, 68.5), (5.0, -50.5, 129.0))
