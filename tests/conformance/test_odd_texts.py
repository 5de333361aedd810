"""Texts of foreign documents that are no file names, in each place of one: an error of ours, or no harm."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream

GOLDEN = Path(__file__).parents[1] / "golden"
DOCUMENTS = [
    ("precomputed/cv_u16_unsharded_gz", "info"),
    ("ome_zarr/oz_05.ome.zarr", "zarr.json"),
    ("ome_zarr/oz_04.ome.zarr", ".zattrs"),
    ("ome_zarr/ow_plate.ome.zarr", "zarr.json"),
    ("wkw/wk_dataset", "datasource-properties.json"),
]
TEXTS = ["\ud800", "a\0b", "a" * 5000, "/".join("a" * 3000), "..", "/etc", "\udc80"]


def _changed(document: Any, text: str) -> Iterator[Any]:
    """The document with this text in place of one of its own, for each of them."""
    places: list[list[Any]] = []

    def find(value: Any, path: list[Any]) -> None:
        if isinstance(value, str):
            places.append(path)
        entries = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else [])
        for key, one in entries:
            find(one, [*path, key])

    find(document, [])
    for *folders, last in places:
        changed = target = copy.deepcopy(document)
        for key in folders:
            target = target[key]
        target[last] = text
        yield changed


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[:12])
@pytest.mark.parametrize(("folder", "name"), DOCUMENTS)
def test_odd_texts(tmp_path: Path, folder: str, name: str, text: str) -> None:
    shutil.copytree(GOLDEN / folder, tmp_path / "set")
    document = tmp_path / "set" / name
    n_changed = 0
    for changed in _changed(json.loads(document.read_text()), text):
        n_changed += 1
        document.write_text(json.dumps(changed))
        try:
            with acqstream.open(tmp_path / "set") as dataset:
                assert dataset.levels[0].shape
                np.asarray(dataset.levels[0].read(tuple(slice(0, 2) for _ in dataset.levels[0].shape)))
        except acqstream.AcqStreamError as error:
            if str(tmp_path) not in str(error):
                raise
    assert n_changed >= 4
