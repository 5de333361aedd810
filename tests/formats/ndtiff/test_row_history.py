"""Snapshots of a growing reader answer as a reader did that had these frames alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.formats.ndtiff.reader import NDTiffReader
from tests.log.make_frames import Axes, frame_of, write_log

KEYS: list[Axes] = [
    {"time": 0, "z": 1},
    {"time": 0, "channel": "DAPI"},
    {"time": 0, "z": 0},
    {"time": 1, "z": 1},
    {"time": 0, "z": 1},  # again
    {"time": 1, "z": 0, "channel": "GFP"},
    {"time": 0, "z": 1},
]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> NDTiffReader:
    folder = tmp_path_factory.mktemp("history") / "cells"
    write_log(folder, [frame_of(number, axes=axes) for number, axes in enumerate(KEYS)], replace_duplicates=True)
    return NDTiffReader(folder, folder)


@pytest.mark.parametrize("stop", range(len(KEYS) + 1))
def test_the_last_row_before_counts(reader, stop):
    for key in KEYS:
        rows = [row for row in range(stop) if KEYS[row] == key]
        assert reader.history.find(key, stop) == (rows[-1] if rows else None)
    assert reader.history.find({"time": 9}, stop) is None
    assert reader.history.find({"angle": 0}, stop) is None


@pytest.mark.parametrize("stop", range(len(KEYS) + 1))
def test_names_values_and_counts(reader, stop):
    before = KEYS[:stop]
    names = list(dict.fromkeys(name for key in before for name in key))
    assert sorted(reader.history.names(stop)) == sorted(names)
    for name in ("time", "z", "channel", "angle"):
        assert set(reader.history.values(name, stop)) == {key[name] for key in before if name in key}
    at_0 = {tuple(sorted(key.items(), key=str)) for key in before if key["time"] == 0}
    assert reader.history.count_keys("time", 0, stop) == len(at_0)
    assert reader.history.count_keys("channel", "none", stop) == 0


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_any_order(tmp_path_factory: pytest.TempPathFactory, places: list[tuple[int, int]]) -> None:
    folder = Path(tmp_path_factory.mktemp("any")) / "cells"
    keys: list[Axes] = [{"time": time, "z": z} for time, z in places]
    write_log(folder, [frame_of(number, axes=axes) for number, axes in enumerate(keys)], replace_duplicates=True)
    reader = NDTiffReader(folder, folder)
    try:
        for stop in range(len(keys) + 1):
            assert reader.history.count_keys("z", 1, stop) == len({place for place in places[:stop] if place[1] == 1})
            for key in keys:
                rows = [row for row in range(stop) if keys[row] == key]
                assert reader.history.find(key, stop) == (rows[-1] if rows else None)
    finally:
        reader.close()
