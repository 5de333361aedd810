"""Views follow each other: when a run has ended, and when its daemon is only away."""

from __future__ import annotations

import pytest

from acqstream.model.receipt import Receipt
from acqstream.model.status import AcquisitionStatus, DaemonStatus, EndedStatus
from acqstream.monitor.daemon_watch import ENDED_KEPT_S, MAX_ENDED, DaemonView, EndedRun
from tests.monitor.views_of_daemons import daemon_status, missing, receipt_of, run_status, view_of


def no_receipt(run: AcquisitionStatus) -> None:
    raise AssertionError(f"{run.name} has not ended")


def test_a_run_that_is_not_listed_has_ended() -> None:
    cells, others = run_status("cells"), run_status("others")
    view = view_of(cells, others).following(daemon_status(others), 10.0, receipt_of)
    assert view.running == (others,)
    assert view.ended == (EndedRun(last=cells, receipt=receipt_of(cells), at_s=10.0),)


def test_a_run_that_no_status_has_shown_ends_once_and_again_when_it_was_resumed() -> None:
    def end(at: str) -> EndedStatus:
        return EndedStatus(name="cells", dataset_id="id-of-cells", path="/data/cells", durable=3, finished_at=at)

    first = DaemonView().following(daemon_status(ended=(end("10:00"),)), 1.0, receipt_of)
    again = first.following(daemon_status(ended=(end("10:00"),)), 2.0, no_receipt).following(None, 3.0, no_receipt)
    assert [(one.last.name, one.last.durable, one.at_s) for one in again.ended] == [("cells", 3, 1.0)]
    resumed = again.following(daemon_status(ended=(end("10:00"), end("10:01"))), 4.0, receipt_of)
    assert [one.at_s for one in resumed.ended] == [1.0, 4.0]


def test_a_daemon_that_is_away_has_ended_no_run() -> None:
    cells = run_status()
    away = view_of(cells).following(None, 10.0, no_receipt, why="no answer")
    assert (away.status, away.why, away.running, away.ended) == (None, "no answer", (cells,), ())
    back = away.following(daemon_status(cells), 20.0, no_receipt)
    assert (back.running, back.ended, back.why) == ((cells,), (), "")
    assert [one.last for one in away.following(daemon_status(), 20.0, receipt_of).ended] == [cells]


def test_the_end_of_the_daemon_ends_all_runs() -> None:
    cells, others = run_status("cells"), run_status("others")
    receipts: dict[str, Receipt | None] = {"cells": receipt_of(cells, "interrupted"), "others": None}
    view = view_of(cells, others).following(None, 3.0, lambda run: receipts[run.name], has_daemon_ended=True)
    assert (view.status, view.running) == (None, ())
    assert [(one.last.name, one.receipt) for one in view.ended] == list(receipts.items())


def test_a_run_that_did_not_fit_into_the_answer_has_not_ended() -> None:
    cells, others = run_status("cells"), run_status("others")
    short = daemon_status(others, left_out={"acquisitions": 1})
    view = view_of(cells, others).following(short, 10.0, no_receipt)
    assert view.running == (others, cells)


def test_a_resumed_run_has_not_ended() -> None:
    cells = run_status()
    ended = view_of(cells).following(daemon_status(), 10.0, receipt_of)
    again = ended.following(daemon_status(cells), 11.0, no_receipt)
    assert (again.running, again.ended) == ((cells,), ())


def test_ended_runs_are_kept_for_a_while_and_are_bounded() -> None:
    view = view_of(run_status()).following(daemon_status(), 10.0, receipt_of)
    assert len(view.following(daemon_status(), 10.0 + ENDED_KEPT_S - 1, receipt_of).ended) == 1
    assert view.following(None, 10.0 + ENDED_KEPT_S, receipt_of).ended == ()
    many = tuple(run_status(f"run-{number}") for number in range(MAX_ENDED + 5))
    ended = DaemonView(running=many).following(DaemonStatus(), 1.0, receipt_of).ended
    assert [one.last.name for one in ended] == [f"run-{number}" for number in range(5, MAX_ENDED + 5)]


@pytest.mark.parametrize(
    ("receipt", "is_good"),
    [
        (receipt_of(run_status()), True),
        (receipt_of(run_status(), stored=100, missing=(missing(100, 20),)), False),
        (receipt_of(run_status(), "canceled", stored=3), True),
        (receipt_of(run_status(), "failed"), False),
        (receipt_of(run_status(), "interrupted"), False),
        (None, False),
    ],
)
def test_the_end_that_its_user_wanted(receipt: Receipt | None, is_good: bool) -> None:
    assert EndedRun(last=run_status(), receipt=receipt, at_s=0.0).is_good == is_good
