from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.model.daemon_note import MAX_ENDPOINTS, DaemonNote, parse_daemon_note

TEXTS = st.text()
NOTES = st.builds(
    lambda endpoints, boot, log: DaemonNote(endpoints=tuple(endpoints), boot=boot, log=log),
    st.lists(TEXTS, min_size=1, max_size=MAX_ENDPOINTS),
    TEXTS,
    TEXTS,
)


@given(NOTES)
def test_a_note_is_one_line_that_is_read_back(note: DaemonNote) -> None:
    assert len(note.text().splitlines()) == 1
    assert parse_daemon_note(note.text()) == note


def test_the_line_is_json_that_other_programs_read() -> None:
    text = DaemonNote(endpoints=("tcp://127.0.0.1:1", "ipc:///a"), boot="b", log="/c").text()
    assert json.loads(text) == {"endpoints": ["tcp://127.0.0.1:1", "ipc:///a"], "boot": "b", "log": "/c"}


def test_fields_that_are_missing_or_unknown_do_not_matter() -> None:
    assert parse_daemon_note('{"endpoints": ["a"], "other": 1}') == DaemonNote(endpoints=("a",))


OTHERS = ["", "pid 5", "[]", "5", "{}", '{"endpoints": []}', '{"endpoints": "abc"}', '{"endpoints": [1]}']
OTHERS += ['{"endpoints": ["a"], "log": 1}', '{"endpoints": ["a"', json.dumps({"endpoints": ["a"] * 17}), "[" * 100_000]


@pytest.mark.parametrize("text", OTHERS, ids=range(len(OTHERS)))
def test_anything_else_is_no_note(text: str) -> None:
    assert parse_daemon_note(text) is None
