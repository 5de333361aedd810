"""Specs of arrays: what all chunk formats compute with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from acqstream.arrays.array_spec import ArraySpec
from acqstream.errors import ConfigError, CorruptDataset
from acqstream.formats.chunk_layout import Plan
from acqstream.formats.registry import chunk_format
from acqstream.mirrors.mirror_container import open_publisher
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.stores.data_path import data_path_of


def test_axes_are_put_in_order_with_all_that_belongs_to_them() -> None:
    spec = ArraySpec(
        axes=("y", "time", "x"),
        shape=(20, 5, 30),
        dtype=np.dtype("uint16"),
        chunk_shape=(10, 1, 15),
        block_shape=(5, 1, 5),
        scale=(0.5, 2.0, 0.25),
        units=("um", "s", "nm"),
        translation=(7.0, 8.0, 9.0),
        labels={"time": ("first",)},
    )
    assert spec.ordered(("time", "z", "y", "x")) == ArraySpec(
        axes=("time", "z", "y", "x"),
        shape=(5, 1, 20, 30),
        dtype=np.dtype("uint16"),
        scale=(2.0, 1.0, 0.5, 0.25),
        units=("s", "", "um", "nm"),
        translation=(8.0, 0.0, 7.0, 9.0),
        labels={"time": ("first",)},
    )


def test_a_level_lies_on_the_centres_of_its_blocks() -> None:
    full = ArraySpec(
        axes=("time", "z", "y", "x"),
        shape=(0, 1, 21, 30),
        dtype=np.dtype("uint16"),
        scale=(2.0, 1.0, 0.5, 0.25),
        translation=(8.0, 0.0, 7.0, 9.0),
    )
    level = full.reduced((1, 2, 2, 4))
    assert level.shape == (0, 1, 10, 7)
    assert level.factors == (1, 2, 2, 4)
    assert level.scale == (2.0, 2.0, 1.0, 1.0)
    assert level.translation == (8.0, 0.5, 7.25, 9.375)


HUGE = 2_000_000


@pytest.mark.parametrize("name", ["n5", "wkw"])
def test_more_folders_than_can_be_looked_at_are_refused(tmp_path: Path, name: str) -> None:
    found = chunk_format(name)
    options = found.parse_options({"levels": 1})

    def plan_of(time: int) -> Plan:
        axes = ("time", "channel", "z", "y", "x")
        return found.plan(ArraySpec(axes=axes, shape=(time, 2, 4, 40, 40), dtype=np.dtype("u2")), options)

    with pytest.raises(ConfigError, match=r"million|1,000,000"):
        plan_of(HUGE)
    writer = open_publisher(found, tmp_path / f"a.{name}", plan_of(0), options, LocalDisk())
    with pytest.raises(ConfigError, match=r"million|1,000,000"):
        writer.grow(0, (HUGE, 2, 4, 40, 40))
    writer.grow(0, (2, 2, 4, 40, 40))
    assert found.open(data_path_of(tmp_path / f"a.{name}"))[0].spec.shape == (2, 2, 4, 40, 40)


def test_a_hostile_file_cannot_make_a_reader_look_at_all_of_them(tmp_path: Path) -> None:
    found = chunk_format("wkw")
    options = found.parse_options({"levels": 1})
    spec = ArraySpec(axes=("time", "channel", "z", "y", "x"), shape=(2, 2, 4, 40, 40), dtype=np.dtype("u2"))
    open_publisher(found, tmp_path / "a.wkw", found.plan(spec, options), options, LocalDisk())
    path = tmp_path / "a.wkw" / "acqstream-array.json"
    whole = json.loads(path.read_text())
    for shape in ([2**32 - 1, 2, 4, 40, 40], [0, 2**32 - 1, 4, 40, 40]):
        whole["levels"][0]["shape"] = shape
        path.write_text(json.dumps(whole))
        with pytest.raises(CorruptDataset, match="shape"):
            found.open(data_path_of(tmp_path / "a.wkw"))
