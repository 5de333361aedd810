"""ome-types reads the OME-XML of our exports: the schema of OME holds, and planes and channels are as sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from acqstream.export.ome_images import OmeChannel, OmeImage, OmePixels, OmePlane, ome_xml
from acqstream.model.run_note import RunNote
from tests.export.sample_exports import CHANNELS, export, write_cells

ome_types = pytest.importorskip("ome_types")
pytest.importorskip("lxml")  # checks the schema

pytestmark = pytest.mark.oracle

NOTES = [
    RunNote("drug <added>", 1_790_000_000_000_000_000, 1234, "run", {"ul": 5}),
    RunNote("Zellen 細胞", 0, None, "page"),
]


def test_the_document_of_an_export_follows_the_schema(tmp_path: Path) -> None:
    write_cells(tmp_path / "cells")
    report = export(tmp_path / "cells", "ome-tiff")
    with tifffile.TiffFile(report.path) as file:
        text = file.ome_metadata
    assert text is not None
    (image,) = ome_types.from_xml(text, validate=True).images
    pixels = image.pixels
    assert (pixels.size_t, pixels.size_c, pixels.size_z, pixels.size_y, pixels.size_x) == (3, 2, 4, 40, 70)
    assert (pixels.physical_size_x, pixels.physical_size_z, pixels.time_increment) == (0.5, 2.0, 0.1)
    assert [channel.name for channel in pixels.channels] == CHANNELS


@pytest.mark.parametrize("wells", [("", ""), ("A/1", "B/12")], ids=["images", "plate"])
@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3)], ids=["grey", "rgb"])
def test_every_element_follows_the_schema(wells: tuple[str, str], shape: tuple[int, ...]) -> None:
    """Planes with times, exposures and places, a date, steps, significant bits, control characters in names."""
    planes = [OmePlane((t, 0, z), (1.5, -2.0, 0.25 * z), 0.1 * t, 0.01) for t in range(2) for z in range(3)]
    date = "2026-11-29T10:00:00.125Z"
    images = [
        OmeImage(
            f"site {at}\x00", range(6 * at, 6 * at + 6), (1.5, None, 3.0), well, planes, date, {"T": (500.0, "ms")}
        )
        for at, well in enumerate(wells)
    ]
    steps = {"X": (650.0, "nm"), "Y": (650.0, "nm"), "Z": (2.0, "um")}
    pixels = OmePixels(shape, np.dtype("u1"), 2, 3, [OmeChannel("a\x1b<&", "#ff8000")], steps, 7, NOTES)
    document = ome_types.from_xml(ome_xml(images, pixels, "test"), validate=True)
    assert [image.name for image in document.images] == ["site 0", "site 1"]
    notes = [(one.description, one.value) for one in document.structured_annotations.comment_annotations]
    assert notes == [
        ("2026-09-21 14:13:20+00:00, before frame 1,234 (run)", "drug <added> (ul=5)"),
        ("1970-01-01 00:00:00+00:00, after the run (page)", "Zellen 細胞"),
    ]
    assert [len(image.annotation_refs) for image in document.images] == [2, 0]
    for image in document.images:
        found = [(plane.the_t, plane.the_z, plane.delta_t, plane.exposure_time) for plane in image.pixels.planes]
        assert found == [(plane.at[0], plane.at[2], plane.delta_s, plane.exposure_s) for plane in planes]
    samples = [sample for plate in document.plates for well in plate.wells for sample in well.well_samples]
    assert [sample.image_ref.id for sample in samples] == (["Image:0", "Image:1"] if wells[0] else [])
