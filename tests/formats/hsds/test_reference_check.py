"""`verify` of a mirror by reference: every entry of its table, its documents, and the stacks that it names."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import CorruptDataset
from acqstream.formats.check_report import CheckReport
from acqstream.formats.chunk_format import ChunkCounts
from acqstream.formats.hsds.foreign import check
from acqstream.formats.hsds.reference_layout import encode_reference_note, is_reference_note, parse_reference_note
from acqstream.formats.hsds.reference_reader import ReferenceLevel
from acqstream.mirrors.comparison import prove_by_log
from acqstream.storage.stores.data_path import data_path_of
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import finish, frames_at, places_of, run_of

KEYS = places_of(("time", "z"), {"time": 5, "z": 4})
NOTE = "acqstream-hsds.json"


@pytest.fixture
def container(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", frames_at(KEYS[:-1]))
    finish(run_of(tmp_path / "cells", {"format": "hsds"}, "hsds"))
    return tmp_path / "cells.hsds"


def problems(container: Path) -> tuple[ChunkCounts, list[str]]:
    report = CheckReport()
    counts = check(data_path_of(container), report)
    return counts, [problem.text for problem in report.problems]


def table_file(container: Path) -> Path:
    reader = ReferenceLevel(data_path_of(container), follows_links=False)
    return container / reader.layout.table_key((0, 0))


def change_table(container: Path, change: Callable[[np.ndarray[Any, Any]], None]) -> None:
    reader = ReferenceLevel(data_path_of(container), follows_links=False)
    records = np.array(reader.table.rows((0, 0)))
    change(records)
    table_file(container).write_bytes(zlib.compress(records.tobytes()))


def test_a_sound_one(container: Path) -> None:
    counts, found = problems(container)
    assert found == []
    assert (counts.arrays, counts.chunks, counts.missing) == (1, 19, 1)
    assert counts.payload_bytes == 19 * 21 * 26 * 2
    proof = prove_by_log(container)
    assert (proof.compared.frames, proof.compared.different, proof.reason) == (19, 0, "")
    assert proof.proved == [f"19 frames lie in the stacks where the index has them, in {container.with_suffix('')}"]


def test_every_entry_is_compared_with_the_index(container: Path) -> None:
    def swap(records: np.ndarray[Any, Any]) -> None:
        records[[0, 1], 2] = records[[1, 0], 2]

    change_table(container, swap)
    assert problems(container)[1] == []  # both are frames of the stack
    proof = prove_by_log(container)
    assert (proof.compared.frames, proof.compared.different) == (19, 2)
    assert "'z': 2" in proof.compared.named[0]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("offset", 10**9, "has a frame that ends at"),
        ("offset", -1, "has frames of another size"),
        ("size", 7, "has frames of another size"),
        ("file_uri", b"acqstream/stacks/../secret", "expected a stack of acqstream/stacks/"),
        ("file_uri", b"other/stacks/a.tif", "expected a stack of"),
        ("file_uri", b"acqstream/stacks/a.tif", "this stack is missing"),
    ],
)
def test_wrong_entries(container: Path, field: str, value: Any, expected: str) -> None:
    def spoil(records: np.ndarray[Any, Any]) -> None:
        records[field][1, 1] = value

    change_table(container, spoil)
    (found,) = problems(container)[1]
    assert expected in found
    with acqstream.open(container) as ds, pytest.raises(CorruptDataset):
        ds.levels[0].read()


@pytest.mark.parametrize("content", [b"", b"x", zlib.compress(b"short"), zlib.compress(bytes(10**6)), bytes(10**6)])
def test_damaged_table_chunks(container: Path, content: bytes) -> None:
    table_file(container).write_bytes(content)
    (found,) = problems(container)[1]
    assert "decompress" in found
    with acqstream.open(container) as ds, pytest.raises(CorruptDataset, match="decompress"):
        ds.levels[0].read()


def test_missing_and_changed_documents(container: Path) -> None:
    for path in container.rglob(".dataset.json"):
        content = path.read_bytes()
        path.unlink()
        assert problems(container)[1] == ["is missing; HSDS servers need it"]
        path.write_bytes(content.replace(b'"lastModified": 1', b'"lastModified": 2'))
        assert problems(container)[1] == ["differs from what our note states"]
        path.write_bytes(content)
    assert problems(container)[1] == []


def test_a_missing_dataset(container: Path) -> None:
    (container.parent / "cells").rename(container.parent / "away")
    counts, (found,) = problems(container)
    assert counts.chunks == 0
    assert "its pixels lie in the dataset" in found


def test_notes_come_back_and_damaged_ones_are_refused(container: Path) -> None:
    content = (container / NOTE).read_bytes()
    assert is_reference_note(content)
    assert encode_reference_note(parse_reference_note(content, "a")) == content
    values = json.loads(content)
    for name, wrong in {
        "version": 2,
        "axes": ["time", "y", "x"],
        "shape": [5, 4, 0, 26],
        "type": {"class": "H5T_FLOAT", "base": "H5T_IEEE_F32LE"},
        "stacks": ["../a.tif"],
        "steps": [0, 4],
        "header": {"bytes": 2**40, "xxh3": ""},
        "uri_bytes": 10**9,
    }.items():
        with pytest.raises(CorruptDataset):
            parse_reference_note(json.dumps({**values, name: wrong}).encode(), "a")
    for name in values:
        with_less = {key: value for key, value in values.items() if key != name}
        if name not in ("attributes", "calibrated", "places_um", "stage_axes", "shown_axes", "axis_values", "looks"):
            with pytest.raises(CorruptDataset):
                parse_reference_note(json.dumps(with_less).encode(), "a")
