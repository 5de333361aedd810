"""What a receipt and a status say in one sentence: what is true, and nothing that sounds better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acqstream.model.receipt import CTRL_C, MissingFrames, Receipt

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
    text = str(replace(WHOLE, mirrors=mirrors, root_sha256="4f1c"))
    lines = text.splitlines()
    assert len(lines) == 10
    assert lines[:4] == ["complete", "300 frames stored of 300 sent, 1 GB", "in /data/cells", "m0: complete"]
    assert lines[-1].endswith("4f1c")
