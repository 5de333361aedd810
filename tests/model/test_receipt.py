"""What a receipt and a status say in one sentence: what is true, and nothing that sounds better."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from acqstream.errors import DatasetError
from acqstream.model import receipt as receipt_module
from acqstream.model.receipt import CTRL_C, MissingFrames, Receipt, Stall
from acqstream.model.view_spec import MirrorResult
from tests.waiting import HANG_S, until

WHOLE = Receipt(dataset_id="1", path="/data/cells", status="completed", sent=300, stored=300, payload_bytes=10**9)
SKIPS = (MissingFrames(7, 2, "camera lost it"),)
LOST = (MissingFrames(9, 3, "never arrived"),)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "complete"),
        ({"sent": None}, "complete"),
        ({"sent": 302, "skipped": 2, "missing": SKIPS}, "complete; 2 frames skipped: camera lost it"),
        ({"stored": 297, "missing": LOST}, "incomplete; 3 frames missing: never arrived"),
        ({"sent": 305, "skipped": 2, "missing": SKIPS + LOST}, "incomplete; 3 frames missing; 2 frames skipped"),
        ({"stored": 299}, "incomplete; 1 frame missing"),
        ({"status": "canceled", "reason": "stopped"}, "canceled: stopped"),
        ({"status": "error", "reason": CTRL_C, "sent": 301}, "canceled by Ctrl-C; 1 frame missing"),
        ({"status": "error", "reason": "ValueError"}, "error: ValueError"),
        (
            {"status": "failed", "reason": "EIO", "stored": 297, "missing": LOST},
            "failed: EIO; 3 frames missing: never arrived",
        ),
        (
            {"stored": 295, "missing": tuple(MissingFrames(2 * one, 1, f"reason {one}") for one in range(5))},
            "incomplete; 5 frames missing: reason 0, reason 1, reason 2 and more",
        ),
        ({"sent": 304, "skipped": 4, "missing": SKIPS + SKIPS}, "complete; 4 frames skipped: camera lost it"),
    ],
)
def test_sentences(changes: dict[str, object], sentence: str) -> None:
    receipt = replace(WHOLE, **changes)  # type: ignore[arg-type]
    assert receipt.sentence == sentence
    assert receipt.complete == sentence.startswith("complete")
    assert str(receipt).splitlines()[0] == sentence
    assert receipt.is_canceled == sentence.startswith("canceled")


def test_a_printed_receipt_has_ten_lines_at_most() -> None:
    mirrors = {f"m{number}": "complete" for number in range(20)}
    stall = Stall("fdatasync", "a.tif", "", 3.0)
    times: dict[str, Any] = {"started_at": "2026-11-25T14:02:03+00:00", "finished_at": "2026-11-25T14:02:43+00:00"}
    full = replace(WHOLE, mirrors=mirrors, root_sha256="4f1c", stalls=(stall, stall), without_checksum=7, **times)
    assert str(full).splitlines() == [
        "complete",
        "300 frames stored of 300 sent and durable, 1 GB in 40 s, 25 MB/s, 7 without a checksum of their producer",
        "in /data/cells",
        "m0: complete",
        "m1: complete",
        "and 18 more mirrors",
        "the disk stalled 2 times, 6.00 s in all",
        "SHA-256 of all frames 4f1c",
        "prove it: acqstream verify /data/cells",
        "open it: acqstream.open('/data/cells')",
    ]
    hostile = replace(full, status="error", reason="one\ntwo\r\nthree\x85four", path="/data/a\nb")
    assert len(str(hostile).splitlines()) == 10


@pytest.mark.parametrize("times", [("", ""), ("x", "y"), ("2026-11-25T14:02:03", "2026-11-25T14:02:03+00:00")])
def test_a_receipt_without_times_has_no_rate(times: tuple[str, str]) -> None:
    text = str(replace(WHOLE, started_at=times[0], finished_at=times[1]))
    assert text.splitlines()[1] == "300 frames stored of 300 sent and durable, 1 GB"


def test_the_last_word_of_mirrors_stands_for_the_first_one() -> None:
    mirrors = {"n5": "under way: 5 of 300 frames", "wkw": "left out: no space"}
    receipt = replace(WHOLE, mirrors=mirrors)
    assert "n5: under way: 5 of 300 frames, when this was written\nwkw: left out: no space\n" in str(receipt)
    done = replace(receipt, results=(MirrorResult(name="n5", state="complete", frames=300, published=300),))
    assert "n5: complete, 300 frames\nwkw: left out: no space\n" in str(done)
    assert done == receipt, "it is the same receipt"
    assert done.as_dict() == receipt.as_dict()
    assert "results" not in done.as_dict(), "no part of what is stored and sent"


def test_a_receipt_of_another_machine_is_shown_as_text() -> None:
    shown = replace(WHOLE, path="/nowhere/<b>&amp;", reason="<script>")._repr_html_()
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "no picture: " in shown


@pytest.mark.parametrize("how", ["stalls", "fails", "gone"])
@pytest.mark.parametrize("path", ["/data/cells", "http://scope:5280/data/cells/"])
def test_a_receipt_is_shown_whatever_its_dataset_does(path: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, release = [], threading.Event()

    def open_dataset(place: str) -> None:
        opened.append(place)
        if how == "stalls":
            release.wait(HANG_S)
        raise {"fails": RecursionError("deep"), "gone": DatasetError("nothing there")}.get(how, OSError("late"))

    monkeypatch.setattr(receipt_module, "ANSWER_S", 0.05)
    monkeypatch.setattr("acqstream.open", open_dataset, raising=False)
    mirrors = {"n5": "under way: 5 of 300 frames"}
    receipt = replace(WHOLE, path=path, mirrors=mirrors, root_sha256="4f1c", stalls=(Stall("pwritev", "a", "", 3.0),))
    lines = str(receipt).splitlines()
    assert len(lines) <= 10
    assert "n5: under way: 5 of 300 frames, when this was written" in lines
    assert "no picture: " in receipt._repr_html_()
    release.set()
    assert not (path.startswith("http") and opened), "no request leaves the machine to print"


def test_a_receipt_is_shown_where_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    receipt = replace(WHOLE, mirrors={"n5": "under way: 5 of 300 frames"})
    for _ in range(2):  # the first failure does not count as a question that waits
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            assert "n5: under way: 5 of 300 frames, when this was written" in str(receipt)
            assert "cannot be read now: can" in receipt._repr_html_()


def test_a_disk_that_stalls_keeps_one_thread_for_each_path(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, release = [], threading.Event()

    def open_dataset(place: str) -> None:
        opened.append(place)
        release.wait(HANG_S)
        raise OSError("late")

    monkeypatch.setattr(receipt_module, "ANSWER_S", 0.05)
    monkeypatch.setattr("acqstream.open", open_dataset, raising=False)
    receipt, other = (replace(WHOLE, path=path) for path in ("/data/stalled", "/data/other"))
    assert "has not answered within" in receipt._repr_html_()
    assert "has not answered yet" in receipt._repr_html_()
    assert "has not answered within" in other._repr_html_()
    assert opened == ["/data/stalled", "/data/other"]
    release.set()
    until(lambda: not receipt_module._WAITING, "the threads have ended")
    assert "no picture: late" in receipt._repr_html_()
