"""Images of other software are read as expected.json says; damaged ones raise our errors."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from acqstream.errors import AcqStreamError
from acqstream.formats.chunk_reader import ChunkReader
from acqstream.formats.ome_zarr.foreign import open_array
from acqstream.formats.ome_zarr.metadata import axis_name
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.ome_zarr.ome_zarr_golden import EXPECTED, GOLDEN, digest, read_all

_UNITS = {"micrometer": "um", "um": "um", "second": "s", None: ""}
_WITHOUT_UNITS = "ome-zarr-py"  # its files state no unit, although expected.json lists what it was given


def _open(path: str) -> list[ChunkReader]:
    return open_array(data_path_of(GOLDEN / path))


@pytest.mark.parametrize("image", EXPECTED["images"], ids=lambda image: image["path"])
def test_that_an_image_is_read(image: dict[str, Any]) -> None:
    try:
        levels = _open(image["path"])
    except AcqStreamError:
        assert image.get("optional")
        return
    assert len(levels) == len(image["levels"])
    axes = tuple(axis_name(axis["name"], axis.get("type")) for axis in image["axes"])
    for reader, expected in zip(levels, image["levels"], strict=True):
        spec = reader.spec
        assert spec.axes == axes
        has_units = not image["writer"].startswith(_WITHOUT_UNITS)
        assert spec.units == tuple(_UNITS[axis.get("unit")] if has_units else "" for axis in image["axes"])
        assert list(spec.shape) == expected["shape"]
        assert spec.dtype.name == expected["dtype"]
        assert spec.scale == pytest.approx(expected["scale"])
        assert spec.translation == pytest.approx(expected["translation"])
        assert list(spec.labels.get("channel", [])) == image["channels"]
        assert digest(read_all(reader)) == expected["sha256"]
        assert reader.complete
        copy: ChunkReader = pickle.loads(pickle.dumps(reader))  # noqa: S301 - of our own
        assert copy.spec == spec


@pytest.mark.parametrize("entry", EXPECTED["corrupt"], ids=lambda entry: Path(entry["path"]).name)
def test_that_damage_is_an_error_of_ours(entry: dict[str, Any]) -> None:
    started = time.monotonic()
    try:
        found = digest(read_all(_open(entry["path"])[0]))
    except AcqStreamError:
        assert entry["expect"] != "full"
    else:
        assert entry["expect"] != "error"
        assert found == entry.get("sha256", EXPECTED["corrupt_truth"]["sha256"])
    assert time.monotonic() - started < 5


def test_the_factors_of_levels() -> None:
    assert [reader.spec.factors for reader in _open("zp_pyramid.ome.zarr")] == [
        (1, 1, 1, 1),
        (1, 1, 2, 2),
        (1, 1, 4, 4),
    ]


def test_one_level_by_itself() -> None:
    whole, alone = _open("zp_pyramid.ome.zarr")[1], _open("zp_pyramid.ome.zarr/1")[0]
    assert (alone.spec.axes, alone.spec.scale, alone.spec.units) == (
        whole.spec.axes,
        whole.spec.scale,
        whole.spec.units,
    )
    assert digest(read_all(alone)) == digest(read_all(whole))
    assert sorted(alone.stored()) == sorted(whole.stored())
