"""Power cuts, simulated: what was not forced is lost piece by piece; what was called durable must be there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.errors import DatasetError
from acqstream.integrity.recover import recover
from acqstream.log import journal
from acqstream.log.log import Log
from acqstream.log.state_file import STATE_NAME
from acqstream.model.acquisition_spec import TileSpec
from tests.log.make_frames import MIB, Frame, frame_of, memory_of, spec_of
from tests.log.read_back import check_ours, read_journal
from tests.storage.recording_disk import Change, RecordingDisk, build

LIMIT_BYTES = 7_600_000
SKIPS = {2: 1, 5: 3, 9: 1, 10: 2, 17: 40, 63: 2}  # numbers that never come: the first one, and how many
END = 65  # the number behind the last one


def numbers_put() -> list[int]:
    skipped = {number for first, count in SKIPS.items() for number in range(first, first + count)}
    return [number for number in range(END) if number not in skipped]


FRAMES = [
    frame_of(number, (320, 512) if place % 2 else (9, 11), axes={"row": place // 4, "column": place % 4})
    for place, number in enumerate(numbers_put())
]


def record(folder: Path, **spec_fields: Any) -> tuple[list[Change], list[int]]:
    """The changes of a whole run, and for every count of them how many numbers were durable then."""
    disk = RecordingDisk(folder.parent)
    seen: list[tuple[int, int]] = [(0, 0)]
    log: Log | None = None

    def on_change() -> None:
        if log is not None:
            durable = log.cursors().durable  # before the count: never too much is expected of too few changes
            seen.append((len(disk.changes), durable))

    spec = spec_of(**spec_fields)
    log = Log(folder, spec, memory=memory_of(2 * MIB), disk=disk, on_change=on_change, stack_limit_bytes=LIMIT_BYTES)
    with log:
        for place, frame in enumerate(FRAMES):
            skip_to(log, frame.header.number)
            log.append(frame.header, frame.image)
            if place % 3 == 2:
                assert log.wait_for_published(frame.header.number + 1)
        skip_to(log, END)
    durable = [max(number for count, number in seen if count <= position) for position in range(len(disk.changes) + 1)]
    assert durable[-1] == END
    return disk.changes, durable


def skip_to(log: Log, number: int) -> None:
    while log.received < number:
        log.skip(log.received, SKIPS[log.received], "planned")


def check_journal(folder: Path, original: Path, durable: int) -> None:
    """Every frame has its own number still, and what is durable its own record: with the producer's checksum."""
    records, before = read_journal(folder), read_journal(original)
    frames = records[records["flags"] == journal.FRAME]
    assert list(frames["number"]) == [frame.header.number for frame in FRAMES[: len(frames)]]
    kept = before[before["number"] < durable]
    assert records[: len(kept)].tobytes() == kept.tobytes()


def check_never_wrong(folder: Path) -> None:
    """Before any recovery: a listed frame is right, or it is refused."""
    try:
        dataset = acqstream.open(folder)
    except DatasetError:
        return
    by_axes = {tuple(frame.axes.items()): frame for frame in FRAMES}
    with dataset:
        for axes in list(dataset.keys()):
            frame: Frame = by_axes[tuple(axes.items())]
            try:
                image = dataset.read_frame(axes)
            except DatasetError:
                continue
            assert np.array_equal(image, frame.image), f"frame {frame.header.number} is wrong before recovery"


@pytest.mark.promise("power-cut")
@pytest.mark.parametrize(
    ("cuts", "fields"),
    [
        (150, {"durability": "batch"}),
        (100, {"durability": "close"}),
        (100, {"durability": "batch", "tiles": TileSpec((2, 4))}),
        pytest.param(1000, {"durability": "batch"}, marks=pytest.mark.slow),
        pytest.param(1000, {"durability": "close"}, marks=pytest.mark.slow),
    ],
    ids=["few", "unforced", "tiled", "many", "many unforced"],
)
def test_durable_frames_survive_and_none_is_wrong(tmp_path: Path, cuts: int, fields: dict[str, Any]) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    original = tmp_path / "cells"
    changes, durable = record(original, **fields)
    recovered = 0
    for cut in range(cuts):
        position = chance.randrange(len(changes) + 1)
        place = f"seed {seed}, cut {cut} after {position} changes"
        folder = tmp_path / "cut" / "cells"
        build(changes[:position], folder.parent, chance)
        if not (folder / STATE_NAME).exists():
            assert durable[position] == 0, place
        else:
            if fields["durability"] == "batch":  # else an entry anywhere in the index may have lost its end
                check_never_wrong(folder)
            recover(folder)
            with acqstream.open(folder) as dataset:
                count, complete = len(list(dataset.keys())), dataset.complete
            check_ours(folder, FRAMES[:count], complete=complete)
            check_journal(folder, original, durable[position])
            recovered += 1
        shutil.rmtree(folder.parent)
    assert recovered > cuts // 2
