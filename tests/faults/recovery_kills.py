"""`recovery killed`: recovery itself is killed before each of its storage calls in turn; the next one does the rest."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import acqstream
from acqstream.dataset.dataset import Dataset
from acqstream.errors import DatasetError
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.log import journal
from tests.faults.fault_result import FaultResult, Try
from tests.live.programs import environment, kill
from tests.log.crashed import Step, crash, cut, entry_starts, without_leftovers
from tests.log.make_frames import Frame, frame_of, frames_of
from tests.log.read_back import check_dataset, read_journal, stack_paths

FAULT = "recovery killed"
TRIES = 0  # as many as there are calls
MOST_CALLS = 500

Damage = Callable[[Path, random.Random], int]
"""Changes a dataset whose writer died; how many of its frames must be there after recovery."""


def small_steps() -> list[Step]:
    return list(frames_of(9, (31, 33)))


def large_steps() -> list[Step]:
    """Two roll-overs are not needed: nine of these fill one stack file and begin another."""
    return [1, *(frame_of(number, (320, 512)) for number in range(1, 10)), 40, frame_of(50)]


def mid_batch(folder: Path, chance: random.Random) -> int:
    """Bytes behind the last published frame, whole or not, and a prepared stack file."""
    stack = stack_paths(folder)[-1]
    with stack.open("ab") as file:
        file.write(chance.randbytes(chance.randrange(1, 20_000)))
    (folder / f"{stack.stem}_9.tif.part").write_bytes(b"")
    return len(entry_starts(folder)) - 1


def torn_index(folder: Path, chance: random.Random) -> int:
    starts = entry_starts(folder)
    cut(folder / INDEX_NAME, chance.randrange(starts[-3], starts[-1]))
    return len(starts) - 1


def zeros_in_index(folder: Path, chance: random.Random) -> int:
    """After a power cut a file may have its length, and more, and not its bytes."""
    starts = entry_starts(folder)
    content = (folder / INDEX_NAME).read_bytes()[: chance.randrange(starts[-3], starts[-1])]
    (folder / INDEX_NAME).write_bytes(content.ljust(starts[-1] + chance.randrange(4096), b"\0"))
    return len(starts) - 1


def torn_journal(folder: Path, chance: random.Random) -> int:
    path = folder / journal.JOURNAL_NAME
    size = path.stat().st_size
    cut(path, size - chance.randrange(1, journal.RECORD_BYTES))
    return len(entry_starts(folder)) - 1


def torn_both(folder: Path, chance: random.Random) -> int:
    """The last record is gone and the last two entries are: what has neither was not published."""
    starts = entry_starts(folder)
    torn_journal(folder, chance)
    cut(folder / INDEX_NAME, chance.randrange(starts[-3], starts[-2]))
    return len(starts) - 2


def torn_stack(folder: Path, chance: random.Random) -> int:
    """The last two frames have no entry, and the pixels of the last one are not what its record says."""
    starts = entry_starts(folder)
    cut(folder / INDEX_NAME, starts[-3])
    record = read_journal(folder)[-1]
    with stack_paths(folder)[-1].open("r+b") as file:
        file.seek(int(record["offset"]))
        file.write(bytes(chance.randrange(8, int(record["length"]))))
    return len(starts) - 2


def roll_over(folder: Path, chance: random.Random) -> int:
    """Nothing of the second stack file was published, and a third one is in the way."""
    starts = entry_starts(folder)
    second = stack_paths(folder)[1]
    in_second = sum(second.name.encode() in entry for entry in entries_of(folder))
    kept = len(starts) - 1 - in_second
    cut(folder / INDEX_NAME, starts[kept])
    cut(folder / journal.JOURNAL_NAME, journal.HEADER_BYTES + journal.RECORD_BYTES * (1 + kept))
    shutil.copy(stack_paths(folder)[0], folder / "cells_NDTiffStack_2.tif")
    return kept


def entries_of(folder: Path) -> list[bytes]:
    content, starts = (folder / INDEX_NAME).read_bytes(), entry_starts(folder)
    return [content[start:end] for start, end in itertools.pairwise(starts)]


KINDS: dict[str, tuple[Callable[[], list[Step]], Damage]] = {
    "mid-batch": (small_steps, mid_batch),
    "mid-batch, large": (large_steps, mid_batch),
    "torn index": (small_steps, torn_index),
    "zeros in the index": (small_steps, zeros_in_index),
    "torn journal": (small_steps, torn_journal),
    "torn both": (large_steps, torn_both),
    "torn stack": (small_steps, torn_stack),
    "roll-over": (large_steps, roll_over),
}


def run(seed: int, tries: int, folder: Path, kinds: tuple[str, ...] = tuple(KINDS)) -> FaultResult:
    """Every kind of dataset, killed before every call; `tries`, if not 0, bounds the kills of each kind."""
    result = FaultResult(FAULT, seed)
    began_s = time.monotonic()
    with _recovering() as process:
        for kind in kinds:
            place = folder / kind.replace(" ", "-")
            place.mkdir(parents=True)
            one = Try(seed)
            with one.failing():
                _kill_everywhere(result, kind, place, process, tries or MOST_CALLS)
            one.troubles = [f"{kind}, before any kill: {trouble}" for trouble in one.troubles]
            result.count(one, tries)
            shutil.rmtree(place)
    result.took_s = time.monotonic() - began_s
    return result


def _kill_everywhere(
    result: FaultResult, kind: str, place: Path, process: subprocess.Popen[str], most_calls: int
) -> None:
    make_steps, damage = KINDS[kind]
    steps = make_steps()
    crashed = crash(place / "crashed", steps)
    kept = damage(crashed, random.Random(f"{FAULT} {result.seed} {kind}"))
    frames = [step for step in steps if isinstance(step, Frame)][:kept]
    whole = shutil.copytree(crashed, place / "whole")
    assert _recover(process, whole, 0) == "recovered"
    check_dataset(whole, frames, complete=False)
    for fatal_call in range(1, most_calls + 1):
        one = Try(result.seed)
        ending = _kill_and_recover(one, process, crashed, whole, frames, fatal_call)
        one.troubles = [f"{kind}, killed before call {fatal_call}: {trouble}" for trouble in one.troubles]
        one.acknowledged = len(frames) * one.delivered
        result.count(one, fatal_call)
        if ending != "killed":
            return
    assert most_calls < MOST_CALLS, f"recovery of {kind} makes more than {MOST_CALLS} storage calls"


def _kill_and_recover(
    one: Try, process: subprocess.Popen[str], crashed: Path, whole: Path, frames: list[Frame], fatal_call: int
) -> str:
    folder = shutil.copytree(crashed, crashed.with_name("cells"))
    ending = _recover(process, folder, fatal_call)
    one.delivered = int(ending == "killed")
    one.mistake("before the second recovery", _wrong_frames(folder, frames))
    one.expect(ending != "error", "recovery ended with an error")
    one.expect(_recover(process, folder, 0) == "recovered", "the second recovery ended with an error")
    found, expected = without_leftovers(folder), without_leftovers(whole)
    one.expect(found == expected, f"other files than without the kill: {_differing(found, expected)}")
    shutil.rmtree(folder)
    return ending


def _wrong_frames(folder: Path, frames: list[Frame]) -> list[int]:
    """Numbers of the frames that are shown and are not what was sent; the reader may refuse what is torn."""
    with contextlib.suppress(DatasetError), acqstream.open(folder) as dataset:
        listed = [dict(key) for key in list(dataset.keys())]
        return [frame.header.number for frame in frames if frame.axes in listed and _is_wrong(dataset, frame)]
    return []


def _is_wrong(dataset: Dataset, frame: Frame) -> bool:
    with contextlib.suppress(DatasetError):
        return not np.array_equal(dataset.read_frame(frame.axes), frame.image)
    return False


def _differing(found: dict[str, bytes], expected: dict[str, bytes]) -> str:
    names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    return ", ".join(f"{name} ({len(found.get(name, b''))} of {len(expected.get(name, b''))} bytes)" for name in names)


@contextlib.contextmanager
def _recovering() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.recovering"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        kill(process)


def _recover(process: subprocess.Popen[str], folder: Path, fatal_call: int) -> str:
    """Recover in a child that dies before that call; 0 lets it live."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(fatal_call, folder, file=process.stdin, flush=True)
    return process.stdout.readline().strip()
