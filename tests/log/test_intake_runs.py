"""Many frames reserved at once are stored as if they had come one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acqstream.integrity.verify import verify
from acqstream.log import frame_keys
from acqstream.log.frame_keys import FrameKeys
from acqstream.log.group import Group
from acqstream.log.intake import Intake
from acqstream.log.log import Log
from acqstream.model.frame_header import FrameRun
from tests.log.make_frames import LEAST_LIMIT_BYTES, MIB, Axes, Frame, frame_of, start_log
from tests.log.read_back import check_dataset, read_journal
from tests.log.test_intake import intake_of, put, taken

KINDS: list[tuple[tuple[int, int], str, int | None]] = [
    ((8, 8), "|u1", None),
    ((8, 8), "<u2", None),
    ((8, 8), "<u2", 12),
    ((100, 101), "<u2", None),
    ((256, 511), "<u2", None),
    ((256, 512), "<u2", None),
]


def run_of(frames: list[Frame]) -> FrameRun:
    return FrameRun.of([frame.header for frame in frames])


def put_run(log: Intake | Log, frames: list[Frame]) -> int:
    """Put as many of these frames as go in one piece; how many."""
    run = log.reserve_run(run_of(frames))
    if run is None:
        return 0
    assert 0 < run.count <= len(frames)
    run.pixels[:] = b"".join(frame.image.tobytes() for frame in frames[: run.count])
    run.commit()
    return run.count


def put_all(intake: Intake, frames: list[Frame]) -> None:
    """Put these frames in pieces, or one by one."""
    while frames and (count := put_run(intake, frames)):
        frames = frames[count:]
    for frame in frames:
        put(intake, frame)


def copies(intake: Intake) -> list[tuple[Group, bytes]]:
    """What the writer would get now, with the bytes it would write; its memory is given back."""
    groups = taken(intake)
    found = [(group, bytes(group.memory)) for group in groups]
    intake.release(groups, intake.received)
    return found


def check_places(stored: list[tuple[Group, bytes]], frames: list[Frame]) -> None:
    """In order, back to back on block boundaries, each group of one kind, with every frame's pixels where it says."""
    end: dict[int, int] = {}
    numbers: list[int] = []
    for group, content in stored:
        assert group.start == end.get(group.stack, 4096)
        assert len(content) == group.end - group.start
        end[group.stack] = group.end
        assert len({placement.frames.kind for placement in group.placements}) == 1
        for placement in group.placements:
            start = placement.pixels - group.start
            for header in placement.frames:
                image = frames[len(numbers)].image
                assert content[start : start + image.nbytes] == image.tobytes()
                start += image.nbytes
                numbers.append(header.number)
    assert list(end) == list(range(len(end)))
    assert numbers == list(range(len(frames)))


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_every_frame_has_its_place(data: st.DataObject) -> None:
    memory_bytes = data.draw(st.sampled_from([4 * MIB, 16 * MIB]))
    intake = intake_of(memory_bytes, limit=LEAST_LIMIT_BYTES)
    frames: list[Frame] = []
    stored: list[tuple[Group, bytes]] = []
    for _ in range(data.draw(st.integers(1, 8))):
        shape, dtype, bits = data.draw(st.sampled_from(KINDS))
        count = data.draw(st.integers(1, 12))
        texts = data.draw(st.lists(st.sampled_from([0, 0, 10, 5000, 100_000]), min_size=count, max_size=count))
        some = [
            frame_of(len(frames) + one, shape, dtype, bits=bits, metadata={"text": "x" * texts[one]})
            for one in range(count)
        ]
        frames += some
        ending = data.draw(st.sampled_from(["store", "store", "abandon", "one"]))
        if ending == "abandon" and (run := intake.reserve_run(run_of(some))) is not None:
            run.abandon()
        if ending == "one":
            for frame in some:
                put(intake, frame)
        else:
            put_all(intake, some)
        if data.draw(st.integers(0, 2)):
            stored += copies(intake)
    stored += copies(intake)
    check_places(stored, frames)
    assert intake.received_payload_bytes == sum(frame.image.nbytes for frame in frames)


def test_a_log_of_runs_is_read_back(tmp_path: Path) -> None:
    """Roll-overs inside runs, words and none, checksums and none, one frame refused in between."""
    log = start_log(tmp_path / "cells", limit=LEAST_LIMIT_BYTES, memory_bytes=64 * MIB)
    log.wait_until_open()
    frames = [
        frame_of(number, (100, 101), metadata={"text": "x" * number} if number % 3 else None, checksum=number % 5 > 0)
        for number in range(600)
    ]
    for start in range(0, 600, 60):
        some = [frame.header for frame in frames[start : start + 60]]
        again = [*some[:-1], some[-1]._replace(axes=some[0].axes, axes_text=b"")]
        assert log.reserve_run(FrameRun.of(again)) is None
        done = start
        while done < start + 60:
            done += (count := put_run(log, frames[done : start + 60]))
            assert count
    log.close()
    assert len(list((tmp_path / "cells").glob("*.tif"))) > 2
    check_dataset(tmp_path / "cells", frames)
    records = read_journal(tmp_path / "cells")
    for frame, record in zip(frames, records, strict=True):
        image, words = frame.image, frame.header.metadata
        assert record["checksum"] == xxhash.xxh3_64_intdigest(image.tobytes())
        assert record["metadata_checksum"] == xxhash.xxh3_64_intdigest(words)
        assert (record["length"], record["own_checksum"]) == (image.nbytes, frame.header.checksum is None)


@pytest.mark.promise("refused-frames")
@pytest.mark.parametrize("bad", [{0}, {9, 10}, {27}, {38, 39}, set(range(40))])
def test_wrong_checksums_inside_a_run_cost_their_frames_only(tmp_path: Path, bad: set[int]) -> None:
    with start_log(tmp_path / "cells") as log:
        log.wait_until_open()
        frames = [frame_of(number, (16, 16), checksum=number % 3 > 0 or number in bad) for number in range(40)]
        headers = [frame.header for frame in frames]
        for number in bad:
            headers[number] = headers[number]._replace(checksum=(headers[number].checksum or 0) ^ 1)
        for some in (slice(0, 10), slice(10, 40)):
            run = log.reserve_run(FrameRun.of(headers[some]))
            assert run is not None
            run.pixels[:] = b"".join(frame.image.tobytes() for frame in frames[some])
            run.commit()
    assert log.receipt is not None
    good = [frame for frame in frames if frame.header.number not in bad]
    assert (log.receipt.stored, log.receipt.payload_bytes) == (len(good), len(good) * 512)
    assert (log.receipt.refused, sum(gap.count for gap in log.receipt.missing)) == (len(bad), len(bad))
    assert log.receipt.without_checksum == sum(frame.header.checksum is None for frame in good)
    if good:
        check_dataset(tmp_path / "cells", good, tiff_pages=False)
    assert verify(tmp_path / "cells").problems == []


@pytest.mark.parametrize("many_at_once", [True, False])
def test_what_the_window_allows_finds_memory_whichever_frames_bring_the_words(many_at_once: bool) -> None:
    """Every second frame brings metadata, the last one of a message never; the disk takes nothing."""
    intake = intake_of(4 * MIB)
    for _ in range(1000):
        limit, first = intake.limit(), intake.received
        if first >= limit.number:
            break
        some = [
            frame_of(number, (8, 8), metadata={} if number % 2 else {"text": "x" * 16_000}, checksum=False)
            for number in range(first, min(limit.number, first + 20))
        ]
        if many_at_once:
            put_all(intake, some)
        else:
            for frame in some:
                put(intake, frame)
    assert intake.received == limit.number
    assert intake.window.stops == 0
    assert intake.ring.beside_peak_bytes <= MIB


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", range(60))
def test_runs_that_grow_stay_in_the_ring_when_the_disk_is_slow(seed: int) -> None:
    """A run that does not fit before the ring's end is divided there: as a whole it would lose that end."""
    chance, intake = random.Random(seed), intake_of(16 * MIB)
    headers = [frame_of(number, (256, 256), checksum=False).header for number in range(400)]
    frame_bytes, waiting, limit = headers[0].payload_bytes, list[Group](), intake.limit()
    while intake.received < len(headers):
        first = intake.received
        payload = limit.payload_bytes - intake.received_payload_bytes
        count = min(chance.randint(1, 30), len(headers) - first, payload // frame_bytes, limit.number - first)
        some = headers[first : first + count]
        while some:
            run = intake.reserve_run(FrameRun.of(some)) if len(some) > 1 else None
            slot = run or intake.reserve(some[0])
            slot.commit()
            some = some[slot.count :]
        if not count or chance.random() < 0.02:
            waiting += taken(intake)
            done = waiting[: chance.randint(1, len(waiting))] if waiting else []
            if done:
                intake.release(done, done[-1].next_number)
            del waiting[: len(done)]
            limit = intake.limit()
    assert intake.ring.beside_peak_bytes == 0


def test_a_run_is_divided_where_the_ring_ends() -> None:
    """Only the frame that crosses the end comes alone, however many frames are put together."""
    intake = intake_of(4 * MIB)
    counts = []
    for _ in range(20):
        some = [frame_of(intake.received + one, (64, 64), checksum=False) for one in range(150)]
        while some:
            counts.append(count := put_run(intake, some))
            assert count
            some = some[count:]
            copies(intake)
    assert sum(counts) == 20 * 150
    assert len(counts) < 60
    assert counts.count(1) < 12
    assert intake.ring.beside_peak_bytes == 0


names = st.sampled_from([(), ("a",), ("b",), ("a", "b"), ("b", "a")])
rows = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(names, rows, st.booleans()), max_size=30))
def test_keys_of_runs_are_like_a_set(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[tuple[str, ...], list[tuple[int, int]], bool]]
) -> None:
    monkeypatch.setattr(frame_keys, "_RECENT", 7)
    keys = FrameKeys()
    model: set[frozenset[tuple[str, int | str]]] = set()
    for order, values, is_stored in steps:
        some: list[Axes] = [dict(zip(order, row, strict=False)) for row in values]
        new = {frozenset(one.items()) for one in some}
        frames = run_of([frame_of(number, axes=one) for number, one in enumerate(some)])
        is_good = len(new) == len(some) and not new & model
        assert keys.add_run(frames) == is_good
        if is_good and is_stored:
            model |= new
        elif is_good:
            keys.discard_run(frames)
        assert len(keys) == len(model)
