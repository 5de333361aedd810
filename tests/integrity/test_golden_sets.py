"""Datasets of earlier versions open, verify, recover and resume; the same calls still write the same bytes."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.integrity.recover import recover
from acqstream.integrity.verify import verify
from acqstream.log.journal import HEADER_BYTES, JOURNAL_NAME, RECORD_DTYPE, unpack
from acqstream.log.log import Log
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, read_receipt, read_state
from acqstream.model.acquisition_spec import AcquisitionSpec
from acqstream.model.state import AcquisitionState
from tests.integrity.golden_runs import GOLDEN_RUNS
from tests.log.make_frames import Frame, frame_of, memory_of
from tests.waiting import WAIT_S

SETS = Path(__file__).parents[1] / "golden" / "acqstream"
EXPECTED = {path.parent.name: json.loads(path.read_text()) for path in sorted(SETS.glob("*/expected.json"))}
CRASHED = [name for name in EXPECTED if name.startswith("crashed")]
RESUMABLE = [name for name in EXPECTED if name.startswith(("crashed", "interrupted"))]
_RECORD_FIELDS = [name for name in RECORD_DTYPE.names or () if name not in ("packing", "crc")]
_CHANGING = {"started_at", "changed_at", "finished_at", "path", "versions", "settings", "root_sha256"}


def copy_of(name: str, tmp_path: Path) -> Path:
    return shutil.copytree(SETS / name / "data", tmp_path / "cells")


def check_frames(folder: Path, frames: list[dict[str, Any]]) -> None:
    with acqstream.open(folder) as dataset:
        assert list(dataset.keys()) == [frame["axes"] for frame in frames]
        for frame in frames:
            image = dataset.read_frame(frame["axes"])
            assert (str(image.dtype), list(image.shape)) == (frame["dtype"], frame["shape"])
            assert hashlib.sha256(image.tobytes()).hexdigest() == frame["sha256"]
            assert dataset.read_metadata(frame["axes"]) == frame["metadata"]


def contents(folder: Path) -> dict[str, Any]:
    """Every file: the bytes, or of those with times in them the other values."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found[str(path.relative_to(folder))] = path.read_bytes()
        if path.name == JOURNAL_NAME:  # equal but for the packing, which versions 1 and 2 have not
            records, _ = unpack(bytearray(path.read_bytes()[HEADER_BYTES:]))
            found[path.name] = records[[*_RECORD_FIELDS]].tolist()
        if path.name in (STATE_NAME, RECEIPT_NAME):
            values = json.loads(path.read_text())
            found[path.name] = [(key, value) for key, value in values.items() if key not in _CHANGING]
            found[path.name] = [pair for pair in found[path.name] if pair != ("refused", 0)]  # new since these sets
    return found


def test_all_sets_are_there() -> None:
    assert EXPECTED.keys() == GOLDEN_RUNS.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_the_same_calls_write_the_same_bytes(name: str, tmp_path: Path) -> None:
    run = GOLDEN_RUNS[name](tmp_path / "data")
    assert contents(run.folder) == contents(SETS / name / "data")
    assert run.expected() == EXPECTED[name]


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in CRASHED])
def test_a_finished_set_opens_and_verifies(name: str, tmp_path: Path) -> None:
    folder, expected = copy_of(name, tmp_path), EXPECTED[name]
    check_frames(folder, expected["frames"])
    result = verify(folder)
    assert result.ok
    assert (result.frames, result.hashed_frames, result.state) == (
        len(expected["frames"]),
        len(expected["frames"]),
        expected["state"],
    )
    receipt = read_receipt(str(folder))
    assert (receipt is not None) == (expected["state"] == "COMPLETE")
    assert receipt is None or receipt.root_sha256 == result.root_sha256
    assert recover(folder) is None


@pytest.mark.parametrize("name", CRASHED)
def test_a_crashed_set_is_recovered_and_verifies(name: str, tmp_path: Path) -> None:
    folder, expected = copy_of(name, tmp_path), EXPECTED[name]
    assert not verify(folder).ok
    report = recover(folder)
    assert report is not None
    assert (report.published, report.rolled_forward) == (expected["next"], int(name == "crashed_torn"))
    check_frames(folder, expected["frames"])
    assert read_state(str(folder)).state is AcquisitionState.INTERRUPTED
    result = verify(folder)
    assert (result.problem_count, result.missing_count, result.hashed_frames) == (0, 0, len(expected["frames"]))
    assert recover(folder) is None


@pytest.mark.parametrize("name", RESUMABLE)
def test_an_unfinished_set_is_resumed_and_verifies(name: str, tmp_path: Path) -> None:
    folder, expected = copy_of(name, tmp_path), EXPECTED[name]
    if name in CRASHED:
        assert recover(folder) is not None
    frames = resume(folder, expected["next"], next(iter(expected["frames"][0]["axes"])))
    result = verify(folder)
    assert result.ok
    assert result.frames == len(expected["frames"]) + len(frames)
    added = [
        {
            "axes": frame.axes,
            "dtype": str(frame.image.dtype),
            "shape": list(frame.image.shape),
            "metadata": frame.metadata,
            "sha256": hashlib.sha256(frame.image.tobytes()).hexdigest(),
        }
        for frame in frames
    ]
    check_frames(folder, expected["frames"] + added)


def resume(folder: Path, first: int, axis: str) -> list[Frame]:
    """Two more frames, and the end."""
    state = read_state(str(folder))
    log = Log(folder, AcquisitionSpec(dataset_id=state.dataset_id, name=state.name), memory=memory_of(), resume=state)
    log.wait_until_open(WAIT_S)
    assert log.received == first
    frames = [frame_of(number, (16, 24), axes={axis: 5000 + number}) for number in (first, first + 1)]
    with log:
        for frame in frames:
            log.append(frame.header, frame.image)
    return frames
