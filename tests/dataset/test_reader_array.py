"""The array of a reader's frames, and the order that its producer asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from acqstream.frames.frame_snapshot import array_of
from tests.formats.ndtiff.ndtiff_bytes import Folder, image

ORDER = ["z", "time"]
AXES = [{"name": "channel", "labels": ["b", "a"]}, {"name": "time", "size": 4}]


def reader_of(folder: Folder, request: dict[str, Any] | None = None) -> NDTiffReader:
    if request is not None:
        values = {"format": "acqstream", "version": 1, "state": "COMPLETE", "request": request}
        (folder.path / "acqstream.json").write_text(json.dumps(values))
    return open_readers(folder.path)[0]


def filled(path: Path, summary: dict[str, Any]) -> Folder:
    folder = Folder(path / "data", summary)
    for number, channel in enumerate(["a", "b"]):
        folder.add({"z": 3, "time": number, "channel": channel}, image(number))
    return folder


@pytest.mark.parametrize(
    ("request_", "summary", "expected"),
    [
        (None, {}, ()),
        (None, {"AxisOrder": ORDER}, ("z", "time")),
        (None, {"AxisOrder": ["z", 3]}, ("z",)),
        (None, {"AxisOrder": "z"}, ()),
        ({"axes": []}, {"AxisOrder": ORDER}, ()),  # our writer's, by its first frame
        ({"axes": AXES}, {"AxisOrder": ["channel", "time"]}, ("channel", "time")),
        ({"axes": AXES, "summary": {"AxisOrder": ORDER}}, {"AxisOrder": ORDER}, ("z", "time")),
    ],
)
def test_the_declared_order(tmp_path: Path, request_: Any, summary: dict[str, Any], expected: tuple[str, ...]) -> None:
    reader = reader_of(filled(tmp_path, summary), request_)
    assert reader.declared_order == expected
    reader.close()


def test_the_array_has_order_and_names_as_declared(tmp_path: Path) -> None:
    reader = reader_of(filled(tmp_path, {"AxisOrder": ["z", "time", "channel"]}), {"axes": AXES})
    array = array_of(reader)
    assert array.axes == ("channel", "time", "z", "y", "x")
    assert array.values == {"channel": ["b", "a"], "time": [0, 1], "z": [3]}
    assert array.with_plan().values["time"] == range(4)
    reader.close()


def test_the_sets_of_axes_that_frames_have(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    reader = reader_of(folder)
    assert reader.key_kinds() == []
    with pytest.raises(DatasetError, match="holds no frame yet"):
        array_of(reader)
    folder.add({"time": 0}, image(0))
    reader.refresh()
    assert reader.key_kinds() == [("time",)]
    folder.add({"time": 1, "z": -1}, image(1))
    folder.add({"z": 2}, image(2))
    reader.refresh()
    assert sorted(reader.key_kinds()) == [("time",), ("time", "z"), ("z",)]
    array = array_of(reader)
    assert (array.values, array.homes) == ({"time": [0, 1], "z": [-1, 0, 2]}, {"time": 0, "z": 0})
    keys = [reader.key(row) for row in range(3)]
    assert [array.place(key) for key in keys] == [(0, 1), (1, 0), (0, 2)]
    reader.close()
