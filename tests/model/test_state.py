"""The states of an acquisition."""

from __future__ import annotations

from acqstream.model.state import AcquisitionState


def test_every_state_is_final_or_writing_or_interrupted() -> None:
    final = {state.value for state in AcquisitionState if state.final}
    writing = {state.value for state in AcquisitionState if state.writing}
    assert final == {"COMPLETE", "CANCELED", "ERRORED", "FAILED"}
    assert writing == {"OPENING", "RUNNING", "PAUSED", "ORPHANED", "CLOSING"}
    assert {state.value for state in AcquisitionState} - final - writing == {"INTERRUPTED"}
    assert all(state.value == state.name for state in AcquisitionState)
