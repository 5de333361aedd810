"""Columns of frames: time, exposure and stage place in the same words for every producer, then the metadata's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acqstream.formats.hsds.reference_layout import COLUMN_UNITS
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.mirrors.row_table import choose_numbers, read_numbers
from tests.dataset.test_own_plans import write
from tests.formats.ndtiff.ndtiff_bytes import Folder, image
from tests.log.make_frames import frame_of, write_log
from tests.mirrors.mirror_cases import finish, run_of

STUDIO = {"ElapsedTime-ms": 1500, "Exposure-ms": 12.5, "XPositionUm": 3.0, "ZPositionUm": "7.5"}
PLUS = {"ElapsedTime-ms": 1500.0, "exposure_ms": 12.5, "position": {"x": 3.0, "z": 7.5}}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ([STUDIO], {"time_s": [1.5], "exposure_ms": [12.5], "stage_x_um": [3.0], "stage_z_um": [7.5]}),
        ([PLUS, {}], {"time_s": [1.5, np.nan], "exposure_ms": [12.5, np.nan], "stage_z_um": [7.5, np.nan]}),
        ([{"time_ns": 10**18}, {"time_ns": 10**18 + 10**9}], {"time_s": [0.0, 1.0]}),
        ([{"ElapsedTime-ms": 20, "time_ns": 10**18}, {"time_ns": 10**18}], {"time_s": [0.02, np.nan]}),
        ([{"gain": 2}, {"gain": 3}], {"gain": [2.0, 3.0]}),
    ],
)
def test_columns(tmp_path: Path, metadata: list[dict[str, Any]], expected: dict[str, list[float]]) -> None:
    folder = Folder(tmp_path / "cells")
    for number, one in enumerate(metadata):
        folder.add({"time": number}, image(number, (4, 4)), metadata=one)
    (reader,) = open_readers(tmp_path / "cells")
    names = choose_numbers(reader, len(reader))
    found = dict(zip(names, read_numbers(reader, np.arange(len(reader), dtype=np.int32), names), strict=True))
    reader.close()
    assert {*expected} <= {*names}
    assert ("time_s" in names) == ("time_s" in expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_a_mirror_by_reference_says_their_units(tmp_path: Path) -> None:
    write(tmp_path / "cells")
    finish(run_of(tmp_path / "cells", {"format": "hsds", "pixels": "reference"}, "hsds"))
    documents = [json.loads(file.read_text()) for file in tmp_path.rglob(".dataset.json")]
    attributes = [document["attributes"] for document in documents]
    found = {one["key"]["value"]: one["units"]["value"] for one in attributes if "units" in one and "key" in one}
    assert found == {name: unit for name, unit in COLUMN_UNITS.items() if name != "exposure_ms"}


@pytest.mark.parametrize("settings", [{}, {"pixels": "reference"}], ids=str)
def test_a_mirror_says_the_range_of_its_bits(tmp_path: Path, settings: dict[str, Any]) -> None:
    write_log(tmp_path / "cells", [frame_of(0, bits=12)])
    finish(run_of(tmp_path / "cells", {"format": "hsds", **settings}, "hsds"))
    found = [json.loads(file.read_text())["attributes"] for file in tmp_path.rglob(".dataset.json")]
    assert [one["valid_range"]["value"] for one in found if "valid_range" in one] == [[0, 4095]]
