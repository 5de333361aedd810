"""Recovery, repair, verification and reading of a dataset in which a stranger replaced a file."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

import acqstream
from acqstream.errors import AcqStreamError, CorruptDataset
from acqstream.formats.check_report import Problem
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.integrity.facts import stored_checksum
from acqstream.integrity.recover import recover
from acqstream.integrity.repair import repair
from acqstream.integrity.verify import verify
from acqstream.log.journal import HEADER_BYTES, JOURNAL_NAME
from acqstream.log.journal_file import read_journal
from acqstream.log.state_file import RECEIPT_NAME, STATE_NAME, read_receipt, read_state
from acqstream.mirrors.mirror_container import NOTE_NAME, read_note
from acqstream.storage.files.read_file import ReadFile
from acqstream.views.checkpoint import CHECKPOINT_NAME, Checkpoint, read_checkpoint
from tests.log.crashed import crash
from tests.log.hostile_files import ANY_FILE, JSON_FILE, SPARSE_BYTES, sparse
from tests.log.make_frames import frames_of
from tests.log.read_back import check_dataset

FRAMES = frames_of(5, (6, 7))
CASES = [
    *[(STATE_NAME, kind) for kind in JSON_FILE],
    *[(name, kind) for name in (JOURNAL_NAME, INDEX_NAME) for kind in ANY_FILE],
]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crash(tmp_path_factory.mktemp("crashed") / "cells", FRAMES)


@pytest.fixture
def folder(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "cells"))


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except AcqStreamError as error:
        return str(error)
    return ""


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_recovery_ends_and_names_the_file(folder: Path, name: str, kind: str) -> None:
    JSON_FILE[kind](folder / name)
    if kind == "sparse" and name != STATE_NAME:  # a hole behind the last record or entry is cut off
        assert recover(folder) is not None
        check_dataset(folder, FRAMES, complete=False)
        return
    with pytest.raises((CorruptDataset, acqstream.errors.StorageError)) as caught:
        recover(folder)
    assert str(folder / name) in str(caught.value).replace("\\\\", "\\")  # an OSError shows backslashes twice


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_repair_ends(folder: Path, name: str, kind: str) -> None:
    JSON_FILE[kind](folder / name)
    error = error_of(lambda: repair(folder, force=True))
    if error:
        assert str(folder / name) in error
        return
    with acqstream.open(folder) as dataset:
        assert len(list(dataset.keys())) == len(FRAMES)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_verify_ends(folder: Path, name: str, kind: str) -> None:
    JSON_FILE[kind](folder / name)
    problems: list[Problem] = []
    error = error_of(lambda: problems.extend(verify(folder).problems))
    named = str(folder if name == INDEX_NAME else folder / name)  # what cannot be opened: the whole folder is told of
    assert error or any(problem.path.startswith(named) for problem in problems)


@pytest.mark.parametrize("kind", JSON_FILE)
def test_reading_goes_on_beside_a_hostile_state(folder: Path, kind: str) -> None:
    JSON_FILE[kind](folder / STATE_NAME)
    with acqstream.open(folder) as dataset:
        assert len(list(dataset.keys())) == len(FRAMES)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (RECEIPT_NAME, lambda folder: read_receipt(str(folder))),
        (CHECKPOINT_NAME, read_checkpoint),
        (NOTE_NAME, read_note),
        (STATE_NAME, lambda folder: read_state(str(folder))),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "sparse", "folder", "deep", "many items"])
def test_our_other_files_are_read_with_a_bound(
    tmp_path: Path, name: str, read: Callable[[Path], object], kind: str
) -> None:
    JSON_FILE[kind](tmp_path / name)
    with pytest.raises(CorruptDataset, match=name):
        read(tmp_path)


def test_an_ordinary_checkpoint_is_read(tmp_path: Path) -> None:
    saved = Checkpoint("pyramid", "0" * 32, 4, ("a.tif", 8), False, {"a": 1}, "gave up", True)
    (tmp_path / CHECKPOINT_NAME).write_bytes(saved.encode())
    assert read_checkpoint(tmp_path) == saved


def test_a_journal_with_sound_records_between_holes_takes_little_memory(folder: Path) -> None:
    path = folder / JOURNAL_NAME
    good = path.read_bytes()
    sparse(path)
    with path.open("r+b") as file:
        for at in range(2**30, 2**36, 2**30):
            file.seek(at)
            file.write(good[HEADER_BYTES:])
    for most in (0, 2**20):
        content = read_journal(path, max_damaged=most)
        assert content.records.tobytes().startswith(good[HEADER_BYTES:])
        assert content.prefix.tobytes() == good[HEADER_BYTES:]
        assert content.records.nbytes <= 64 * most + 2**22 < SPARSE_BYTES


def test_a_record_of_gigabytes_in_a_sparse_stack_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(b"pixels")
    os.truncate(path, 2**30)
    tracemalloc.start()
    try:
        assert stored_checksum(ReadFile(path), 0, 2**30) is not None
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    assert stored_checksum(ReadFile(path), 0, 6) == xxhash.xxh3_64_intdigest(b"pixels")
    assert stored_checksum(ReadFile(path), 2**30 - 1, 2) is None
    assert stored_checksum(ReadFile(path), 0, 2**60) is None
