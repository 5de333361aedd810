"""Datasets that other software wrote, or that were damaged on purpose: every image, byte for byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import CorruptDataset
from acqstream.formats.ndtiff.folders import find_folders
from acqstream.formats.ndtiff.reader import NDTiffReader, open_readers
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN

SETS = {path.parent.name: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*/expected.json"))}
READABLE = [name for name, expected in SETS.items() if expected["levels"]]
UNFINISHED = {"zero_tail", "torn_index", "torn_index_prefix"}


def check_image(reader: NDTiffReader, expected: dict[str, Any]) -> None:
    row = reader.row(expected["axes"])
    pixels = reader.read_pixels(row)
    assert (str(pixels.dtype), list(pixels.shape)) == (expected["dtype"], expected["shape"])
    assert (reader.frame_dtype(row), reader.frame_shape(row)) == (pixels.dtype, pixels.shape)
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == expected["sha256"]
    metadata = reader.read_metadata(row)
    if "metadata" in expected:
        assert metadata == expected["metadata"]
    else:
        text = json.dumps(metadata, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        assert hashlib.sha256(text.encode()).hexdigest() == expected["metadata_sha256"]


def check_level(reader: NDTiffReader, images: list[dict[str, Any]], unreadable: list[dict[str, Any]]) -> None:
    assert sorted(map(repr, map(canonical, reader.keys()))) == sorted(
        repr(canonical(axes)) for axes in [*(image["axes"] for image in images), *unreadable]
    )
    for expected in images:
        check_image(reader, expected)
    for axes in unreadable:
        with pytest.raises(CorruptDataset, match="beyond the end"):
            reader.read_pixels(reader.row(axes))


def canonical(axes: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(axes.items())


@pytest.mark.parametrize("name", READABLE)
def test_every_image_of_every_level_is_as_written(name: str) -> None:
    expected = SETS[name]
    data = GOLDEN / name / "data"
    readers = open_readers(data)
    assert [reader.path for reader in readers] == [data / level["folder"] for level in expected["levels"].values()]
    for reader, level in zip(readers, expected["levels"].values(), strict=True):
        check_level(reader, level["images"], expected.get("unreadable", []))
        assert reader.summary_metadata == expected["summary_metadata"]
        assert reader.complete == (name not in UNFINISHED)
        reader.close()


def test_later_duplicate_wins_and_its_key_comes_once() -> None:
    (reader,) = open_readers(GOLDEN / "duplicate_axes" / "data")
    assert list(reader.keys()) == [{"time": 0}, {"time": 1}]
    assert len(reader) > 2
    reader.close()


def test_lost_index_names_the_way_out() -> None:
    with pytest.raises(CorruptDataset, match="acqstream repair"):
        open_readers(GOLDEN / "lost_index" / "data")


@pytest.mark.parametrize("name", ["java_pyramid_u16", "real_v2_flat", "v1_5_rgb"])
def test_the_full_resolution_or_a_file_in_it_gives_all_levels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = GOLDEN / name / "data" / "Full resolution"
    stack = next(folder.glob("*.tif"))
    expected = find_folders(folder.parent).levels
    for place in (folder, stack):
        assert find_folders(place).levels == expected
    monkeypatch.chdir(folder)
    assert [path.name for path in find_folders(Path()).levels] == [path.name for path in expected]


def test_a_lower_level_gives_that_level() -> None:
    folder = GOLDEN / "java_pyramid_u16" / "data" / "Downsampled_x4"
    for place in (folder, folder / "NDTiff.index"):
        (reader,) = open_readers(place)
        assert (reader.path, reader.level) == (folder, 2)
        reader.close()
