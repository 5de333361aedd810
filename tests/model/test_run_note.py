"""Notes on a run: what may be one, and lines of their file."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from acqstream.errors import FieldError
from acqstream.model.run_note import (
    MAX_TEXT_CHARACTERS,
    RunNote,
    note_source,
    note_text,
    note_values,
    parse_notes,
)

NOTE = RunNote("drug added", 1_790_000_000_000_000_000, 7, "run", {"drug": "DMSO", "ul": 5}, "id-1")
LATER = RunNote("Zellen 細胞\nzweite Zeile", 1_790_000_001_000_000_000, None, "terminal", {}, "id-2")


def test_lines_are_read_back_in_order() -> None:
    content = NOTE.line() + LATER.line()
    assert parse_notes(content) == ([NOTE, LATER], len(content))
    assert parse_notes(b"") == ([], 0)


@pytest.mark.parametrize("kept", [1, 20, len(LATER.line()) - 1])
def test_a_torn_last_line_is_left_out(kept: int) -> None:
    content = NOTE.line() + LATER.line()[:kept]
    assert parse_notes(content) == ([NOTE], len(NOTE.line()))


def test_zeros_of_a_power_cut_are_no_note() -> None:
    torn = b"\0" * (len(LATER.line()) - 1)
    for tail in (torn, torn + b"\n"):
        assert parse_notes(NOTE.line() + tail) == ([NOTE], len(NOTE.line()))


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"",
        b"[" * 5000,
        b"[" * 20_000,
        b"\xff",
        NOTE.line()[:-1].replace(b'"frame":7', b'"frame":-7'),
        NOTE.line()[:-1].replace(b'"frame":7', b'"frame":1e999'),
        NOTE.line()[:-1].replace(b"drug added", b"\\u001b[2J"),
        NOTE.line()[:-1].replace(b"drug added", b"\\ud800"),
        NOTE.line()[:-1].replace(b'"text"', b'"id":"id-9","text"'),
        NOTE.line()[:-1].replace(b'"text"', b'"more":"' + b"x" * 20_000 + b'","text"'),
    ],
)
def test_damage_before_the_last_line_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError, match="line 2 is not a note"):
        parse_notes(NOTE.line() + line + b"\n" + LATER.line())


@pytest.mark.parametrize(
    "text", ["", " \n", "x" * (MAX_TEXT_CHARACTERS + 1), "\x1b[2J", "a\0b", "\ud800", "a\u2028b", 7]
)
def test_a_text_that_is_none_is_refused(text: object) -> None:
    with pytest.raises(FieldError, match="text"):
        note_text(text)


def test_blanks_around_a_text_and_line_ends_of_windows_go() -> None:
    assert note_text(" a\r\nb\tc \n") == "a\nb\tc"


@pytest.mark.parametrize(
    "values", [{"x": float("nan")}, {"x": "y" * 5000}, {"a\x1bb": 1}, {"x": "\ud800"}, {"x": object()}]
)
def test_values_that_cannot_be_stored_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(FieldError, match="values"):
        note_values(values)


def test_values_nested_too_deeply_are_refused() -> None:
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(FieldError, match="nested"):
        note_values({"x": deep})


def test_a_source_is_one_printable_word_or_more() -> None:
    assert note_source("page") == "page"
    for wrong in ("", "\n", "x" * 41, None):
        with pytest.raises(FieldError, match="source"):
            note_source(wrong)


def test_a_note_is_shown_in_one_line() -> None:
    assert NOTE.content == "drug added (drug=DMSO, ul=5)"
    assert LATER.content == "Zellen 細胞 zweite Zeile"
    assert NOTE.time == datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
    assert NOTE.sentence().endswith(", before frame 7 (run): drug added (drug=DMSO, ul=5)")
    assert NOTE.sentence(UTC).startswith("2026-09-21 14:13:20+00:00, before frame 7 (run): ")
    assert ", after the run (terminal): Zellen" in LATER.sentence()
    assert RunNote("x", 0, values={"a": "b\x1bc"}).content == r'x (a="b\u001bc")'
