"""Datasets to export, and the one call that exports them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from acqstream.export.exporter import Exporter, ExportReport, ExportRequest, Kind, parse_choices
from acqstream.storage.files.disk import Disk
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.storage.unforced_disk import UnforcedDisk

SUMMARY = {"PixelSizeUm": 0.5, "z-step_um": 2.0, "Interval_ms": 100, "Comment": "µ"}
TIMES, CHANNELS, DEPTHS, FRAME = range(3), ["DAPI", "GFP"], range(4), (40, 70)
MISSING = (1, "GFP", 2)


def write_cells(path: Path) -> np.ndarray:
    """A dataset of 3 x 2 x 4 frames, one of them missing; the array (time, channel, z, y, x) that it shows."""
    folder = Folder(path, SUMMARY)
    array = np.zeros((len(TIMES), len(CHANNELS), len(DEPTHS), *FRAME), "<u2")
    for number, (time, channel, z) in enumerate(itertools.product(TIMES, CHANNELS, DEPTHS)):
        if (time, channel, z) == MISSING:
            continue
        pixels = image(number, FRAME)
        metadata = {"XPositionUm": 100.0, "YPositionUm": 50.0, "ZPositionUm": 7.0 + 2 * z, "Exposure": number}
        folder.add({"time": time, "channel": channel, "z": z}, pixels, metadata={**metadata, "Camera": "A", "On": True})
        array[time, CHANNELS.index(channel), z] = pixels
    return array


def export(
    path: Path, kind: Kind, out: Path | None = None, *select: str, disk: Disk | None = None, **options: Any
) -> ExportReport:
    request = ExportRequest(kind=kind, choices=parse_choices(select), **options)
    return Exporter(path, request, out, disk=disk or UnforcedDisk()).run()
