"""Situations that each chunk format meets: a kill, a full disk, damaged files; and the bytes that it writes.

docs/writing-a-format.md has the table of formats and situations, with the tests of the other cells.
"""

from __future__ import annotations

import errno
import itertools
import json
import random
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.errors import AcqStreamError, DatasetError
from acqstream.formats.check_report import CheckReport
from acqstream.formats.registry import CHUNK_FORMATS
from acqstream.mirrors.comparison import compare
from acqstream.storage.stores.data_path import data_path_of
from acqstream.views.view_run import ViewState
from tests.checksum_files import is_list
from tests.conformance.small_containers import CASES, Case, Made, make
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import PLAIN, check_plain, frames_at, places_of, run_of
from tests.recordings.recording import check, check_keys, digest, masked
from tests.storage.scripted_disk import ScriptedDisk
from tests.storage.unforced_disk import UnforcedDisk

CHUNKS = {"chunks": [2, 8, 10], "levels": 2}
MIRRORS: Mapping[str, Mapping[str, Any]] = {
    "n5": {**PLAIN, "blocks": [3, 8, 10], "levels": 3},
    "wkw": {"format": "wkw", "cube": 32, "levels": 2},
    "ome-zarr": {"format": "ome-zarr", **CHUNKS},
    "ome-zarr raw": {"format": "ome-zarr", **CHUNKS, "compression": "none"},
    "hsds": {"format": "hsds", "pixels": "copy", **CHUNKS},
    "precomputed": {"format": "precomputed", **CHUNKS},
    "precomputed shards": {"format": "precomputed", **CHUNKS, "shards": True},
}
FRAMES = frames_at(places_of(("time", "z"), {"time": 3, "z": 7}))
HALVED = ((2, 2, 2), (2, 2, 2))

SIZES = {"time": 2, "channel": 1, "position": 2, "z": 4, "y": 16, "x": 20}
SMALL: Mapping[str, Case] = {
    name: replace(case, shape=tuple(34 if name == "wkw" and axis == "z" else SIZES[axis] for axis in case.axes))
    for name, case in CASES.items()
    if name.partition(" ")[0] in CHUNK_FORMATS
}
N5_LAYOUTS: Mapping[str, Case] = {
    f"n5 {layout}": replace(SMALL["n5"], options={**SMALL["n5"].options, "layout": layout})
    for layout in ("array", "multiscale")
}
DAMAGED = {name: replace(case, is_described=True) for name, case in {**SMALL, **N5_LAYOUTS}.items()}
KILLED = {name: case for name, case in SMALL.items() if name not in ("hsds one level", "hsds none")}
# Compressors differ between processors and versions: these containers hold plain pixels.
PLAIN_PIXELS: Mapping[str, Mapping[str, object]] = {
    "hsds": {"compression": "none"},
    "n5": {"compression": "raw"},
    "n5 array": {"compression": "raw"},
    "n5 multiscale": {"compression": "raw"},
    "ome-zarr": {"compression": "none"},
    "ome-zarr fields": {"compression": "none"},
    "precomputed": {},
    "precomputed volume": {},
    "precomputed shards": {"shards": {"data_encoding": "raw", "minishard_index_encoding": "raw"}},
    "wkw": {"compression": "raw"},
}
RAW: Mapping[str, Case] = {
    name: replace(DAMAGED[name], options={**DAMAGED[name].options, **options}) for name, options in PLAIN_PIXELS.items()
}


def test_every_format_is_in_each_table() -> None:
    for table in (MIRRORS, SMALL, DAMAGED, KILLED, RAW):
        assert {name.partition(" ")[0] for name in table} == {*CHUNK_FORMATS}


# ------------------------------------------------------------------------------------------------------------ full disk


@pytest.mark.thinned(4)
@pytest.mark.parametrize("kind", ["pwritev", "open", "create", "mkdir", "replace"])
@pytest.mark.parametrize("nth", [1, 7, 30])
@pytest.mark.parametrize("name", MIRRORS)
def test_a_full_disk_is_waited_for(tmp_path: Path, name: str, kind: str, nth: int) -> None:
    """A mirror continues without loss when the disk has space again."""
    cells = tmp_path / "cells"
    write_log(cells, FRAMES)
    disk = ScriptedDisk(UnforcedDisk())
    fault = disk.fail(kind, nth, errno.ENOSPC)
    run = run_of(cells, MIRRORS[name], name=str(MIRRORS[name]["format"]), disk=disk)
    was_held = False
    end = time.monotonic() + 40
    while (wait_s := run.step()) is not None:
        if run.progress().state is ViewState.HELD:
            was_held = True
            assert "No space left" in run.reason
            disk.mend()
        time.sleep(min(wait_s, 0.005))
        assert time.monotonic() < end
    run.close()
    assert was_held == bool(fault.delivered)
    assert run.progress().state is ViewState.COMPLETE
    found = compare(cells, run.folder, len(FRAMES))
    assert (found.frames, found.text) == (len(FRAMES), "all equal")
    if name == "n5":
        check_plain(cells, FRAMES, HALVED)


# ----------------------------------------------------------------------------------------------------------------- kill


class Killed(BaseException):
    """The process ends."""


class KillingDisk(ScriptedDisk):
    """Ends the process at the call of this number; a write stores its first half. No later call does anything."""

    def __init__(self, nth: int) -> None:
        super().__init__(UnforcedDisk())
        self._left = nth
        self.is_dead = False

    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        if self._left == 1 and not self.is_dead:
            content = b"".join(bytes(buffer) for buffer in buffers)
            self._inner.pwritev(fd, [content[: len(content) // 2]], offset)
        return super().pwritev(fd, buffers, offset)

    def _enter(self, kind: str, path: str, offset: int = 0, length: int = 0) -> None:
        if kind == "close":  # as the system does for a process that ends
            return
        self._left -= 1
        self.is_dead = self.is_dead or self._left <= 0
        if self.is_dead:
            raise Killed
        super()._enter(kind, path, offset, length)


def store_and_finish(made: Made) -> None:
    made.store_all()
    for number, level in enumerate(made.levels):
        made.writer.grow(number, level.shape)
    made.writer.sync()
    made.writer.finish(made.levels)


@pytest.mark.thinned(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_a_writer_killed_at_any_disk_call_is_caught_up_with(tmp_path: Path, name: str) -> None:
    """From the first document to the end. A reader of what it left finds right pixels and zeros, or an error."""
    for nth in itertools.count(1):
        folder, disk = tmp_path / str(nth), KillingDisk(nth)
        folder.mkdir()
        try:
            store_and_finish(make(name, folder, disk=disk, case=KILLED[name]))
        except Killed:
            pass
        left = pixels_of(folder)
        made = make(name, folder, case=KILLED[name])
        for number, found in enumerate(left):
            inside = made.part(number)[tuple(slice(0, size) for size in found.shape)]
            assert np.array_equal(found, np.where(found == 0, 0, inside)), f"level {number} after call {nth}"
        store_and_finish(made)
        check_container(made)
        shutil.rmtree(folder)
        if not disk.is_dead:
            break
    assert nth > 20


def pixels_of(folder: Path) -> Sequence[NDArray[Any]]:
    """All levels of the container in this folder; none where it cannot be opened yet."""
    try:
        with acqstream.open(next(folder.iterdir(), folder)) as ds:
            return [level.read() for level in ds.levels]
    except DatasetError:
        return []


def check_container(made: Made) -> None:
    with acqstream.open(made.folder) as ds:
        assert ds.complete
        for number, level in enumerate(ds.levels):
            assert np.array_equal(level.read(), made.part(number))
    report = CheckReport()
    made.format.check(data_path_of(made.folder), report)
    assert not report.problems


# -------------------------------------------------------------------------------------------------------------- hostile

TRIES = 60
WORDS = [b"-1", b"0", b"1e999", b"null", b"[]", b"{}", b'"x"', b"9" * 30, b"true", b"[[1]]", b"NaN"]


def read_all(made: Made) -> None:
    with acqstream.open(made.folder) as ds:
        for level in ds.levels:
            if np.prod(level.shape, dtype=float) < 1e6:
                assert level.read().shape == level.shape
    made.format.check(data_path_of(made.folder), CheckReport())


def error_of(made: Made) -> str | None:
    try:
        read_all(made)
    except AcqStreamError as error:
        return str(error)
    return None


def is_document(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def damage(content: bytes, chance: random.Random) -> bytes:
    """With a value replaced, some bytes changed, or cut."""
    kind = chance.randrange(3)
    if kind == 0 and b"," in content:
        parts = content.split(b",")
        parts[chance.randrange(len(parts))] = chance.choice(WORDS)
        return b",".join(parts)
    if kind == 1:
        return content[: chance.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(chance.choice((1, 2, 8))):
        changed[chance.randrange(len(changed))] = chance.choice(b'0123456789,[]{}"x\x00\xff')
    return bytes(changed)


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_at_random(tmp_path: Path, name: str) -> None:
    """An error of ours that names the container, or the right shape, in bounded time and memory; nothing else."""
    made = make(name, tmp_path, case=DAMAGED[name])
    store_and_finish(made)
    chance = random.Random(str(tmp_path))
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and not is_list(path))
    documents = [path for path in files if is_document(path)]
    others = [path for path in files if path not in documents]
    refused = 0
    for number in range(TRIES):
        path = chance.choice(documents if number % 3 else others)
        content = path.read_bytes()
        path.write_bytes(damage(content, chance))
        text = error_of(made)
        if text is not None:
            refused += 1
            assert str(tmp_path) in text
        path.write_bytes(content)
    assert refused > TRIES // 10
    read_all(made)


# -------------------------------------------------------------------------------------------------------- written bytes


@pytest.mark.parametrize("name", RAW)
def test_a_container_has_the_recorded_bytes(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file but the lists of checksums. ACQSTREAM_RECORD=1 records in tests/recordings/containers.json."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    store_and_finish(make(name, tmp_path, case=RAW[name]))
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and not is_list(path))
    check("containers", name, {str(path.relative_to(tmp_path).as_posix()): digest_of(path) for path in files})


def digest_of(path: Path) -> str:
    content = path.read_bytes()
    return digest(masked(content) if is_document(path) else content)


def test_nothing_else_is_recorded() -> None:
    check_keys("containers", [*RAW])
