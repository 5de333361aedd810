"""Notes of a run at a daemon that answers late, wrongly or not at all: frames and the end do not wait for ever."""

from __future__ import annotations

import errno
import time

import numpy as np
import pytest

from acqstream.client import daemon_report
from acqstream.client.daemon_report import MAX_WAITING_NOTES, NOTE_ANSWER_S, NOTES_END_S, NoteQueue, PatchQueue
from acqstream.client.producer import create
from acqstream.client.run import Run
from acqstream.errors import AcquisitionFailed, AcquisitionRefused, ProtocolError
from acqstream.model.receipt import Receipt
from acqstream.model.run_note import RunNote
from acqstream.protocol.replies import Closed, Error, Noted
from acqstream.protocol.requests import AddNote
from tests.client.fake_daemon import FakeDaemon
from tests.waiting import until

GRAY = np.arange(6, dtype="<u2").reshape(2, 3)


def note(number: int) -> RunNote:
    return RunNote(f"note {number}", 5, number, id=f"note-{number}")


def sent(patches: PatchQueue) -> list[str]:
    return [kind for kind, _, _ in patches.take()]


def test_one_note_is_sent_at_a_time() -> None:
    patches = PatchQueue()
    for number in range(3):
        patches.add_note("dataset", note(number))
    assert sent(patches) == ["note"]
    assert sent(patches) == []
    assert patches.answer_note("note-1") is None  # not the one that was sent
    for number in range(3):
        assert patches.answer_note(f"note-{number}") == note(number)
        assert patches.answer_note(f"note-{number}") is None  # answered twice
        assert sent(patches) == (["note"] if number < 2 else [])
    assert len(patches.notes) == 0


def test_a_note_without_an_answer_is_sent_again_over_a_new_connection() -> None:
    patches = PatchQueue()
    patches.add_note("dataset", note(0))
    assert sent(patches) == ["note"]
    patches.rewind(7)
    assert sent(patches) == ["note"]
    patches.answer_note("note-0")
    patches.rewind(7)
    assert sent(patches) == []


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_new_connection_has_the_time_of_a_first_one(*, is_busy: bool) -> None:
    patches = PatchQueue()
    patches.add_note("dataset", note(0))
    assert sent(patches) == ["note"]
    lost_at = time.monotonic()
    assert patches.lose_overdue(lost_at, "no answer", is_last=True) == ""
    if is_busy:
        patches.retry_note_if_busy(Error("io_error", "8 requests wait", "dataset", errno=errno.EBUSY, note_id="note-0"))
    patches.rewind(7)
    found_at = lost_at + 10 * (NOTES_END_S + NOTE_ANSWER_S)
    assert patches.lose_overdue(found_at, "no answer", is_last=True) == ""
    assert sent(patches) == ["note"]
    assert patches.lose_overdue(found_at + NOTES_END_S + 1, "no answer", is_last=True).endswith("confirmed: no answer")


def test_only_so_many_notes_wait() -> None:
    patches = PatchQueue()
    for number in range(MAX_WAITING_NOTES):
        patches.add_note("dataset", note(number))
    with pytest.raises(AcquisitionRefused, match="notes wait for the daemon") as info:
        patches.add_note("dataset", note(999))
    assert info.value.code == "too_many_notes"


def start(daemon: FakeDaemon) -> Run:
    return create("cells", endpoint=daemon.endpoint, buffer_mb=1, patience_s=20.0)


def notes_of(daemon: FakeDaemon) -> list[RunNote]:
    return [one.note for one in daemon.requests if isinstance(one, AddNote)]


def test_a_daemon_that_never_answers_a_note_does_not_hold_the_end(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_report, "NOTE_ANSWER_S", 0.1)
    run = start(daemon)
    run.note("first")
    run.note("second")
    run.put(GRAY, time=0)
    with pytest.raises(AcquisitionRefused, match=r"'first' was not confirmed: .*; the note 'second'") as info:
        run.close()
    assert info.value.code == "note_refused"
    assert run.close() == run.receipt  # raised once
    assert sorted(daemon.frames) == [0]
    assert [one.text for one in notes_of(daemon)] == ["first", "second"]
    assert [one.code for one in run.warnings] == ["note_refused", "note_refused"]
    assert "'first' was not confirmed: the daemon has not answered" in run.warnings[0].text


def test_notes_that_wait_at_the_end_are_named(daemon: FakeDaemon) -> None:
    run = start(daemon)
    run.note("first")
    run.note("second")
    daemon.wait_for(lambda: len(notes_of(daemon)) == 1)
    receipt = Receipt(dataset_id=daemon.dataset_id, path="/data/cells", status="canceled", reason="stopped", stored=0)
    daemon.say(Error("stopped", "stopped by the operator", daemon.dataset_id, fatal=True), Closed(receipt))
    with pytest.raises(AcquisitionFailed, match="stopped by the operator"):
        run.close()
    assert [one.text.split(" was not")[0] for one in run.warnings] == ["the note 'first'", "the note 'second'"]
    assert all("the run ended before the daemon answered" in one.text for one in run.warnings)


def test_the_end_waits_for_the_answers(daemon: FakeDaemon) -> None:
    run = start(daemon)
    run.note("first", time_ns=7, ul=5)
    daemon.wait_for(lambda: len(notes_of(daemon)) == 1)
    (first,) = notes_of(daemon)
    assert (first.text, first.time_ns, first.frame, first.values) == ("first", 7, 0, {"ul": 5})
    run.note("second")
    daemon.say(Noted("another", daemon.dataset_id, "/data/cells"))
    daemon.say(Error("disk_full", "no space", daemon.dataset_id, note_id=first.id))
    daemon.wait_for(lambda: len(notes_of(daemon)) == 2)
    daemon.say(Noted(notes_of(daemon)[1].id, daemon.dataset_id, "/data/cells"))
    with pytest.raises(AcquisitionRefused, match=r"the note 'first \(ul=5\)' was not confirmed: no space"):
        run.close()
    assert [(one.code, one.text) for one in run.warnings] == [
        ("note_refused", "the note 'first (ul=5)' was not confirmed: no space")
    ]


def test_values_that_become_text_are_named(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_report, "NOTE_ANSWER_S", 0.1)
    run = start(daemon)
    run.note("odd", value=float("nan"), thing=object())
    with pytest.raises(ProtocolError, match="bytes"):
        run.note("much", value=b"x" * 5000)
    with pytest.raises(AcquisitionRefused, match="odd"):
        run.close()
    assert {"nan_in_metadata", "metadata_as_text"} <= {one.code for one in run.warnings}


def test_a_lost_note_ends_no_run_and_is_named_at_its_end(daemon: FakeDaemon) -> None:
    run = start(daemon)
    run.note("first")
    daemon.wait_for(lambda: len(notes_of(daemon)) == 1)
    daemon.say(Error("disk_full", "no space", daemon.dataset_id, note_id=notes_of(daemon)[0].id))
    until(lambda: run.warnings, "the answer arrives")
    run.note("second")
    run.put(GRAY, time=0)
    daemon.wait_for(lambda: len(notes_of(daemon)) == 2)
    daemon.say(Noted(notes_of(daemon)[1].id, daemon.dataset_id, "/data/cells"))
    with pytest.raises(AcquisitionRefused, match="'first' was not confirmed: no space; the run has ended as"):
        run.close()
    assert run.receipt is not None
    assert run.receipt.complete


def test_hooks_get_a_warning_alone(daemon: FakeDaemon) -> None:
    run = start(daemon)
    run.refused.is_raised = False
    run.note("first")
    daemon.wait_for(lambda: len(notes_of(daemon)) == 1)
    daemon.say(Error("disk_full", "no space", daemon.dataset_id, note_id=notes_of(daemon)[0].id))
    run.close()
    assert [one.code for one in run.warnings] == ["note_refused"]


def test_a_note_for_which_the_daemon_is_too_busy_is_sent_again(daemon: FakeDaemon) -> None:
    run = start(daemon)
    run.note("first")
    for count in (1, 2):
        daemon.wait_for(lambda count=count: len(notes_of(daemon)) == count)  # type: ignore[misc]
        text = "8 requests wait for the disk"
        daemon.say(Error("io_error", text, daemon.dataset_id, errno=errno.EBUSY, note_id=notes_of(daemon)[0].id))
    daemon.wait_for(lambda: len(notes_of(daemon)) == 3)
    assert len({one.id for one in notes_of(daemon)}) == 1
    daemon.say(Noted(notes_of(daemon)[0].id, daemon.dataset_id, "/data/cells"))
    run.close()
    assert run.warnings == ()


def test_a_daemon_that_stays_too_busy_is_an_error(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_report, "NOTE_ANSWER_S", 0.1)
    run = start(daemon)
    run.note("first")
    daemon.wait_for(lambda: len(notes_of(daemon)) == 1)
    busy = Error("io_error", "8 requests wait", daemon.dataset_id, errno=errno.EBUSY, note_id=notes_of(daemon)[0].id)
    daemon.say(busy)
    with pytest.raises(AcquisitionRefused, match="'first' was not confirmed: 8 requests wait"):
        run.close()


def test_all_notes_together_hold_the_end_for_a_bounded_time() -> None:
    notes = NoteQueue()
    for number in range(MAX_WAITING_NOTES):
        notes.add("dataset", note(number))
    now = 1000.0
    n_lost = 0
    while len(notes):  # each has an answer just before it is overdue, and then comes the end
        notes.sent_at = now
        now += NOTE_ANSWER_S - 0.5
        while note_id := notes.overdue(now, is_last=True):
            notes.answer(note_id)
            n_lost += 1
        if len(notes):
            notes.answer(f"note-{MAX_WAITING_NOTES - len(notes)}")
    assert now - 1000.0 <= NOTES_END_S + 2 * NOTE_ANSWER_S
    assert n_lost > MAX_WAITING_NOTES - 5
