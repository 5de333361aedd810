"""The state of a log: the first error and the first requested end count."""

from __future__ import annotations

from acqstream.errors import AcquisitionFailed
from acqstream.log.log_thread import CloseRequest, LogState


def test_the_first_error_counts() -> None:
    state = LogState(lambda: None)
    first, second = AcquisitionFailed("first"), AcquisitionFailed("second")
    state.fail(first, published=0, is_abandoned=False)
    state.fail(second, published=0, is_abandoned=False)
    assert state.error is first


def test_the_first_requested_end_counts() -> None:
    state = LogState(lambda: None)
    assert state.request_close(CloseRequest("canceled", "by the operator", None))
    assert not state.request_close(CloseRequest("completed", "", 3))
    assert state.request == CloseRequest("canceled", "by the operator", None)


def test_an_end_after_an_error_is_not_requested_again() -> None:
    state = LogState(lambda: None)
    state.fail(AcquisitionFailed("first"), published=0, is_abandoned=False)
    assert not state.request_close(CloseRequest())
