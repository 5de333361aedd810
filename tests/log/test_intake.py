"""The intake: every frame gets its place, within a window that never moves back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.errors import FrameRefused
from acqstream.formats.ndtiff.layout import LARGE_FRAME_BYTES, PACKED_GROUP_BYTES
from acqstream.log.frame_keys import FrameKeys
from acqstream.log.group import Gap, Group
from acqstream.log.group_builder import Placing
from acqstream.log.intake import MAX_FRAMES_IN_FLIGHT, Intake
from acqstream.log.memory import Ring
from acqstream.model.state import Limit
from acqstream.storage.page_memory import PageMemory
from tests.log.make_frames import LEAST_LIMIT_BYTES, MIB, Frame, frame_of

BLOCK = 4096
LARGE = (256, 512)  # exactly as many bytes as make a frame large


def intake_of(memory_bytes: int = 2 * MIB, *, limit: int = 2**32, replace: bool = False) -> Intake:
    placing = Placing("cells", {}, stack_limit_bytes=limit)
    return Intake(placing, Ring(PageMemory(memory_bytes).view), keys=None if replace else FrameKeys())


def put(intake: Intake, frame: Frame) -> None:
    slot = intake.reserve(frame.header)
    assert len(slot.pixels) == frame.image.nbytes
    slot.pixels[:] = frame.image.tobytes()
    slot.commit()


def taken(intake: Intake) -> list[Group]:
    """What the writer would get now, the open group included."""
    with intake.condition:
        assert intake.close_group()
        entries = intake.pop_closed(2**62)
    return [entry for entry in entries if isinstance(entry, Group)]


def check_groups(groups: list[Group], frames: list[Frame]) -> None:
    """In order, back to back on block boundaries, with every frame's pixels where it says."""
    end = {0: BLOCK}
    numbers: list[int] = []
    for group in groups:
        assert group.start == end.get(group.stack, BLOCK)
        assert group.start % BLOCK == group.end % BLOCK == 0
        assert len(group.memory) == group.end - group.start
        end[group.stack] = group.end
        for placement in group.placements:
            assert bytes(group.pixels_of(placement)) == frames[len(numbers)].image.tobytes()
            numbers.append(placement.frames.number)
    assert numbers == list(range(len(frames)))


def test_large_frames_are_groups_of_their_own() -> None:
    intake, frames = intake_of(), [frame_of(number, LARGE) for number in range(3)]
    for frame in frames:
        put(intake, frame)
        assert len(intake._groups._closed) == frame.header.number + 1
    groups = taken(intake)
    check_groups(groups, frames)
    assert [len(group.placements) for group in groups] == [1, 1, 1]
    assert frames[0].image.nbytes == LARGE_FRAME_BYTES


def test_a_slot_that_is_filled_after_the_end_counts_as_not_received() -> None:
    """The receipt is made from what was received when the log ended."""
    intake, frames = intake_of(), [frame_of(number, LARGE) for number in range(2)]
    put(intake, frames[0])
    slot = intake.reserve(frames[1].header)
    intake.release_outside()
    slot.commit()
    assert intake.received == 1


def test_packed_groups_end_at_their_size_and_where_the_kind_changes() -> None:
    shapes = [(255, 512)] * 20 + [(16, 16)] * 5 + [(16, 17)] + [LARGE] + [(16, 16)] * 2
    intake, frames = intake_of(8 * MIB), [frame_of(number, shape) for number, shape in enumerate(shapes)]
    for frame in frames:
        put(intake, frame)
    groups = taken(intake)
    check_groups(groups, frames)
    assert [len(group.placements) for group in groups] == [16, 4, 5, 1, 1, 2]
    assert all(group.end - group.start <= PACKED_GROUP_BYTES for group in groups)


def test_a_new_stack_begins_behind_its_header() -> None:
    intake = intake_of(16 * MIB, limit=LEAST_LIMIT_BYTES)
    frames = [frame_of(number, (100, 100)) for number in range(400)]
    for frame in frames:
        put(intake, frame)
    groups = taken(intake)
    check_groups(groups, frames)
    assert sorted({group.stack for group in groups}) == [0, 1, 2]


def test_a_group_ends_where_the_ring_has_no_room_behind_it() -> None:
    intake, frames = intake_of(MIB), []
    for number in range(200):
        frame = frame_of(number, (64, 64))
        frames.append(frame)
        put(intake, frame)
        if number % 50 == 49:
            groups = taken(intake)
            assert len(groups) <= 2
            check_pixels(groups, frames[number - 49 :])
            intake.release(groups, number + 1)
    assert intake.ring.beside_peak_bytes == 0


def check_pixels(groups: list[Group], frames: list[Frame]) -> None:
    found = [bytes(group.pixels_of(placement)) for group in groups for placement in group.placements]
    assert found == [frame.image.tobytes() for frame in frames]


def test_what_the_ring_cannot_hold_is_kept_beside() -> None:
    intake, frames = intake_of(MIB), [frame_of(number, (600, 1000)) for number in range(2)]
    for frame in frames:
        put(intake, frame)
    groups = taken(intake)
    check_groups(groups, frames)
    assert all(group.span.beside for group in groups)
    assert intake.ring.beside_bytes > 2_400_000
    intake.release(groups, 2)
    assert intake.ring.beside_bytes == 0


@pytest.mark.parametrize("shape", [(16, 16), LARGE])
def test_an_abandoned_slot_leaves_no_trace(shape: tuple[int, int]) -> None:
    intake = intake_of()
    frames = [frame_of(number, shape) for number in range(4)]
    for frame in frames:
        intake.reserve(frame_of(frame.header.number, (20, 20)).header).abandon()
        slot = intake.reserve(frame.header)
        slot.pixels[:] = b"\xff" * len(slot.pixels)
        slot.abandon()
        assert intake.received == frame.header.number
        put(intake, frame)
    check_groups(taken(intake), frames)


def test_one_slot_at_a_time() -> None:
    intake = intake_of()
    put(intake, frame_of(0))
    slot = intake.reserve(frame_of(1).header)
    for action in (lambda: intake.reserve(frame_of(2).header), lambda: intake.skip(1, 1, "")):
        with pytest.raises(RuntimeError, match="neither committed nor abandoned"):
            action()
    with intake.condition:
        assert not intake.close_group()  # the writer must wait for the slot
    slot.commit()
    assert [len(group.placements) for group in taken(intake)] == [2]


def test_numbers_come_without_holes() -> None:
    intake = intake_of()
    put(intake, frame_of(0))
    for number in (0, 2):
        with pytest.raises(FrameRefused, match=f"frame {number} came where 1 was expected") as caught:
            intake.reserve(frame_of(number, axes={"other": number}).header)
        assert (caught.value.code, caught.value.number) == ("gap", number)
        with pytest.raises(FrameRefused):
            intake.skip(number, 1, "")
    intake.skip(1, 5, "dark")
    put(intake, frame_of(6))
    with intake.condition:
        intake.close_group()
        kinds = [(type(entry), entry.first_number, entry.next_number) for entry in intake._groups._closed]
    assert kinds == [(Group, 0, 1), (Gap, 1, 6), (Group, 6, 7)]
    assert intake.received == 7


def test_axes_come_once_unless_they_may_be_replaced() -> None:
    first, second = frame_of(0, axes={"a": 1, "b": 2}), frame_of(1, axes={"b": 2, "a": 1})
    intake = intake_of()
    put(intake, first)
    with pytest.raises(FrameRefused) as caught:
        intake.reserve(second.header)
    assert caught.value.code == "duplicate_axes"
    put(intake, frame_of(1))
    intake = intake_of(replace=True)
    put(intake, first)
    put(intake, second)
    check_groups(taken(intake), [first, second])


def test_a_frame_that_no_stack_holds_is_refused() -> None:
    intake = intake_of(limit=8_000_000)
    with pytest.raises(FrameRefused, match="does not fit a stack") as caught:
        intake.reserve(frame_of(0, (1000, 1000)).header)
    assert caught.value.code == "payload_size"
    put(intake, frame_of(0))


def test_closing_refuses_what_comes_later() -> None:
    intake = intake_of()
    intake.begin_close()
    for action in (lambda: intake.reserve(frame_of(0).header), lambda: intake.skip(0, 1, "")):
        with pytest.raises(FrameRefused) as caught:
            action()
        assert caught.value.code == "closing"


@given(st.data())
def test_the_window_never_moves_back_and_its_frames_find_memory(data: st.DataObject) -> None:
    intake = intake_of(4 * MIB)
    shape = data.draw(st.sampled_from([(64, 64), (300, 300), LARGE, (400, 411)]))
    limit = intake.limit()
    assert limit == Limit(8, 2 * MIB)  # few frames: each may bring a header of 1 MiB
    number, released, waiting = 0, 0, []
    for _ in range(data.draw(st.integers(1, 40))):
        for _ in range(data.draw(st.integers(0, 20))):
            frame = frame_of(number, shape, checksum=False)
            if intake.received_payload_bytes + frame.image.nbytes > limit.payload_bytes or number >= limit.number:
                break
            slot = intake.reserve(frame.header)
            slot.commit()
            number += 1
        waiting += taken(intake)
        count = data.draw(st.integers(0, len(waiting)))
        if count:
            released = waiting[count - 1].next_number
            intake.release(waiting[:count], released)
            del waiting[:count]
        after = intake.limit()
        assert limit.number <= after.number <= max(limit.number, released + MAX_FRAMES_IN_FLIGHT)
        assert after.payload_bytes >= limit.payload_bytes
        limit = after
    assert intake.ring.beside_peak_bytes == 0 or frame_of(0, shape).image.nbytes < LARGE_FRAME_BYTES
    assert intake.ring.beside_peak_bytes <= 4 * MIB
    if not waiting:
        assert limit.payload_bytes > intake.received_payload_bytes  # never stuck
        assert limit.number > intake.received


def put_what_the_window_allows(intake: Intake, *, shape: tuple[int, int], metadata: dict[str, str], most: int) -> int:
    """As a producer that reads the limit now and then goes up to it; how many frames it could send."""
    limit = intake.limit()
    sent = 0
    while sent < most and intake.received < limit.number:
        frame = frame_of(intake.received, shape, metadata=metadata, checksum=False)
        if intake.received_payload_bytes + frame.image.nbytes > limit.payload_bytes:
            break
        put(intake, frame)
        sent += 1
    return sent


def test_large_metadata_of_tiny_frames_stays_in_the_ring() -> None:
    intake = intake_of(16 * MIB)
    many = {"text": "x" * (MIB - 1000)}
    for _ in range(50):
        if not put_what_the_window_allows(intake, shape=(8, 8), metadata=many, most=1000):
            break
    assert intake.received >= 8
    assert intake.ring.beside_peak_bytes <= 4 * MIB
    groups = taken(intake)
    intake.release(groups, intake.received)
    assert put_what_the_window_allows(intake, shape=(8, 8), metadata={}, most=10) == 10


def test_metadata_that_grows_closes_the_window_and_is_refused_in_the_end() -> None:
    """The frames were granted when they were cheap; memory stays bounded all the same."""
    intake = intake_of(4 * MIB)
    put(intake, frame_of(0, (8, 8)))
    granted = intake.limit().number
    assert granted > 1000
    large = {"text": "x" * (MIB - 1000)}
    with pytest.raises(FrameRefused, match="more metadata than those before") as caught:
        for number in range(1, granted):
            put(intake, frame_of(number, (8, 8), metadata=large))
    assert caught.value.code == "limit_exceeded"
    assert intake.ring.beside_peak_bytes <= 2 * 4 * MIB + PACKED_GROUP_BYTES + 2 * MIB
    assert intake.limit().number == granted
    intake.limit()
    assert intake.window.stops == 1


def test_a_large_frame_gets_in_after_a_tiny_one_with_much_metadata() -> None:
    intake = intake_of(4 * MIB)
    put(intake, frame_of(0, (8, 8), metadata={"text": "x" * (MIB - 1000)}))
    intake.release(taken(intake), 1)
    assert put_what_the_window_allows(intake, shape=(900, 1000), metadata={}, most=1) == 1


def test_the_first_value_of_an_axis_decides_its_kind() -> None:
    intake = intake_of()
    put(intake, frame_of(0, axes={"time": 0, "channel": "DAPI"}))
    put(intake, frame_of(1, axes={"time": 1}))
    mixed: dict[str, dict[str, int | str]] = {"time": {"time": "1", "channel": "GFP"}, "channel": {"channel": 0}}
    for name, axes in mixed.items():
        with pytest.raises(FrameRefused, match=f"axis '{name}' was") as caught:
            intake.reserve(frame_of(2, axes=axes).header)
        assert (caught.value.code, caught.value.number) == ("axis_kind", 2)
    put(intake, frame_of(2, axes={"channel": "GFP", "z": -1}))
    assert intake.received == 3
