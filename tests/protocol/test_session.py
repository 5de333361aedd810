"""The session table: every state, every event, and what becomes of a frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.model.frame_header import FrameHeader, pixel_type_of
from acqstream.model.receipt import Status
from acqstream.model.state import AcquisitionState as State
from acqstream.model.state import Limit
from acqstream.protocol.session import TRANSITIONS, Event, Session, Verdict

ENDING: tuple[Status, str] = ("completed", "that is why")
GRACE_S = 60.0
IN_USE = (State.OPENING, State.RUNNING, State.ORPHANED, State.CLOSING)
ENDS = (Event.CLOSE, Event.REFUSED, Event.STOP, Event.FAILED)

# What the documents say, written down once more and apart from the code.
EXPECTED = {
    State.OPENING: {
        Event.OPENED: State.RUNNING,
        Event.LOST: State.OPENING,
        Event.FOUND: State.OPENING,
        **dict.fromkeys(ENDS, State.CLOSING),
    },
    State.RUNNING: {
        Event.LOST: State.ORPHANED,
        Event.FOUND: State.RUNNING,
        **dict.fromkeys(ENDS, State.CLOSING),
    },
    State.ORPHANED: {
        Event.LOST: State.ORPHANED,
        Event.FOUND: State.RUNNING,
        Event.GRACE_OVER: State.CLOSING,
        **dict.fromkeys(ENDS, State.CLOSING),
    },
    State.CLOSING: {Event.LOST: State.CLOSING, Event.FOUND: State.CLOSING, Event.FAILED: State.CLOSING},
}


def session_in(state: State) -> Session:
    session = Session(grace_s=GRACE_S)
    for event in {
        State.OPENING: (),
        State.RUNNING: (Event.OPENED,),
        State.ORPHANED: (Event.OPENED, Event.LOST),
        State.CLOSING: (Event.OPENED, Event.CLOSE),
    }[state]:
        assert session.on(event, 0.0, ENDING if event is Event.CLOSE else None)
    assert session.state is state
    return session


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
@pytest.mark.parametrize("state", IN_USE, ids=str)
def test_every_state_with_every_event(state: State, event: Event) -> None:
    session = session_in(state)
    target = EXPECTED[state].get(event)
    assert session.on(event, 1.0) is (target is not None)
    assert session.state is (target or state)


def test_the_table_holds_nothing_else() -> None:
    assert set(TRANSITIONS) == {(state, event) for state, row in EXPECTED.items() for event in row}


def test_the_grace_time_runs_from_the_loss_and_ends_with_the_return() -> None:
    session = session_in(State.RUNNING)
    assert not session.is_grace_over(1e9)
    session.on(Event.LOST, 100.0)
    assert not session.is_grace_over(100.0 + GRACE_S - 0.001)
    assert session.is_grace_over(100.0 + GRACE_S)
    session.on(Event.LOST, 150.0)  # being told of it twice does not prolong it
    assert session.is_grace_over(100.0 + GRACE_S)
    session.on(Event.FOUND, 155.0)
    assert not session.is_grace_over(1e9)
    session.on(Event.LOST, 200.0)
    assert not session.is_grace_over(200.0 + GRACE_S - 0.001)
    assert session.is_grace_over(200.0 + GRACE_S)


def test_a_producer_lost_before_the_files_were_there_is_waited_for_no_longer_than_any_other() -> None:
    session = session_in(State.OPENING)
    session.on(Event.LOST, 10.0)
    assert not session.is_grace_over(1e9)  # nothing to finish yet
    session.on(Event.OPENED, 11.0)
    assert session.state is State.ORPHANED
    assert not session.is_grace_over(10.0 + GRACE_S - 0.001)
    assert session.is_grace_over(10.0 + GRACE_S)


def test_a_producer_that_came_back_before_the_files_were_there_is_not_lost() -> None:
    session = session_in(State.OPENING)
    session.on(Event.LOST, 10.0)
    session.on(Event.FOUND, 10.5)
    session.on(Event.OPENED, 11.0)
    assert session.state is State.RUNNING


def header(number: int, *, shape: tuple[int, int] = (10, 10)) -> FrameHeader:
    return FrameHeader(number, pixel_type_of("<u2", shape), *shape, {"time": number}, b"{}")


@pytest.mark.parametrize("state", [State.RUNNING, State.ORPHANED], ids=str)
def test_what_becomes_of_a_frame(state: State) -> None:
    session = session_in(state)
    session.limit = Limit(10, 1000)
    assert session.judge(5, 200, 5, 800) == (Verdict.STORE, None)  # the last 200 bytes
    assert session.judge(4, 200, 5, 800) == (Verdict.KNOWN, None)
    assert session.judge(0, 200, 5, 1000) == (Verdict.KNOWN, None)

    verdict, refusal = session.judge(6, 200, 5, 0)
    assert refusal is not None
    assert (verdict, refusal.code) == (Verdict.REFUSE, "gap")
    assert "frame 6" in refusal.text
    assert "5 was expected" in refusal.text


@pytest.mark.parametrize(("number", "received_bytes"), [(5, 801), (5, 1000), (10, 0), (11, 0)])
def test_a_frame_beyond_the_window_is_refused_with_both_numbers(number: int, received_bytes: int) -> None:
    session = session_in(State.RUNNING)
    session.limit = Limit(10, 1000)
    verdict, refusal = session.judge(number, 200, number, received_bytes)
    assert refusal is not None
    assert (verdict, refusal.code) == (Verdict.REFUSE, "limit_exceeded")
    assert f"frame {number} of 200 bytes" in refusal.text
    assert "below 10" in refusal.text
    assert "1000" in refusal.text


def test_a_frame_before_the_window_is_known_is_beyond_it() -> None:
    verdict, refusal = session_in(State.OPENING).judge(0, 200, 0, 0)
    assert refusal is not None
    assert (verdict, refusal.code) == (Verdict.REFUSE, "limit_exceeded")


@pytest.mark.parametrize("number", [4, 5, 6])
def test_a_frame_that_comes_while_the_acquisition_ends_is_late_whatever_its_number(number: int) -> None:
    session = session_in(State.CLOSING)
    session.limit = Limit(10, 1000)
    assert session.judge(number, 200, 5, 0) == (Verdict.LATE, None)


STEPS = st.lists(st.tuples(st.sampled_from(list(Event)), st.floats(0, 1e6)), max_size=30)


@given(steps=STEPS)
def test_whatever_happens_an_ending_is_final_and_has_one_reason(steps: list[tuple[Event, float]]) -> None:
    session = Session(grace_s=GRACE_S)
    opened = 0
    first_ending = None
    for position, (event, now_s) in enumerate(steps):
        before = session.state
        ending: tuple[Status, str] | None = None
        if event in (*ENDS, Event.GRACE_OVER):
            ending = ("error", f"step {position}")
        done = session.on(event, now_s, ending)
        assert done or session.state is before
        if done and ending is not None and first_ending is None:
            first_ending = ending
        opened += done and event is Event.OPENED
        assert session.ending == first_ending
        assert (session.state is State.CLOSING) == (first_ending is not None)
        assert before is not State.CLOSING or session.state is State.CLOSING
        assert (session.state is State.ORPHANED) <= (session.lost_at_s is not None)
        assert (session.state is State.RUNNING) <= (session.lost_at_s is None)
    assert opened <= 1
