"""Checks of decoded fields: what they refuse, and that the error names field, expectation and value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from acqstream.errors import CorruptDataset, FieldError, ProtocolError
from acqstream.model.fields import MAX_INTEGER, Fields, check_integer, check_optional_integer

DOCUMENT: dict[str, Any] = {
    "n": 5,
    "flag": True,
    "real": 1.5,
    "whole": 1.0,
    "text": "cells",
    "list": [1, 2],
    "null": None,
    "limit": {"n": 7},
    "gaps": [{"first": 1}, {"first": "2"}],
    "nan": float("nan"),
}


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1], -1, MAX_INTEGER + 1])
def test_what_is_not_an_integer(value: object) -> None:
    with pytest.raises(FieldError, match=rf"field 'n' must be an integer from 0 to {MAX_INTEGER}, not "):
        check_integer(value, "n")


def test_bounds_of_integers_are_included() -> None:
    assert [check_integer(value, "n", -2, 3) for value in (-2, 3)] == [-2, 3]
    assert check_optional_integer(None, "n") is None
    with pytest.raises(FieldError, match="from 1 to 3, not 4"):
        check_optional_integer(4, "n", 1, 3)


WRONG: dict[str, tuple[Callable[[Fields], object], str]] = {
    "integer": (lambda f: f.integer("flag"), "'flag' must be an integer from 0 to 9223372036854775807, not True"),
    "whole float": (lambda f: f.integer("whole"), "'whole' must be an integer .*, not 1.0"),
    "default is not for null": (lambda f: f.integer("null", 3), "'null' must be an integer .*, not null or missing"),
    "number": (lambda f: f.number("nan"), "'nan' must be a finite number, not nan"),
    "text": (lambda f: f.text("n"), "'n' must be a string, not 5"),
    "long text": (lambda f: f.text("text", max_length=4), "'text' must be a string of at most 4 characters"),
    "flag": (lambda f: f.flag("n"), "'n' must be true or false, not 5"),
    "choice": (lambda f: f.choice("text", ("a", "b")), "'text' must be one of a, b, not 'cells'"),
    "map": (lambda f: f.mapping("list"), r"'list' must be a map with string keys, not \[1, 2\]"),
    "child": (lambda f: f.child("n"), "'n' must be a map with string keys, not 5"),
    "in a child": (lambda f: f.child("limit").integer("bytes"), "'limit.bytes' must be an integer .*missing"),
    "in a list": (lambda f: [gap.integer("first") for gap in f.children("gaps")], r"'gaps\[1\].first' must be .*'2'"),
    "item": (lambda f: f.integers("list", minimum=2), r"'list\[0\]' must be an integer from 2 to .*, not 1"),
    "length": (lambda f: f.numbers("list", 3), r"'list' must be a list of 3, not \[1, 2\]"),
    "texts": (lambda f: f.texts("list"), r"'list\[0\]' must be a string, not 1"),
    "map of texts": (lambda f: f.text_map("limit"), "'limit.n' must be a string, not 7"),
    "own rule": (lambda f: f.wrong("text", "an odd name").with_traceback(None), ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_field_expectation_and_value(name: str) -> None:
    take, text = WRONG[name]
    if name == "own rule":
        assert str(take(Fields(DOCUMENT))) == "field 'text' must be an odd name, not 'cells'"
        return
    with pytest.raises(FieldError, match=text):
        take(Fields(DOCUMENT))


def test_what_is_taken() -> None:
    fields = Fields(DOCUMENT)
    assert (fields.integer("n"), fields.integer("missing", 3), fields.optional_integer("null")) == (5, 3, None)
    assert (fields.number("real"), fields.flag("flag"), fields.flag("missing", default=False)) == (1.5, True, False)
    assert (fields.text("text"), fields.choice("text", ("cells",)), fields.items("list")) == ("cells", "cells", [1, 2])
    assert (fields.mapping("missing"), fields.mapping("null"), fields.child("limit").integer("n")) == ({}, {}, 7)
    assert "n" in fields
    assert "missing" not in fields


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(FieldError) as caught:
        Fields({"n": "x" * 10_000}).integer("n")
    assert len(str(caught.value)) < 200


def test_the_reader_of_a_file_gets_its_own_error() -> None:
    fields = Fields(DOCUMENT, error=partial(CorruptDataset, path="/data/cells.json"))
    with pytest.raises(CorruptDataset, match=r"/data/cells\.json: field 'limit\.bytes' must be an integer"):
        fields.child("limit").integer("bytes")
    with pytest.raises(CorruptDataset, match=r"/data/cells\.json: field 'document' must be a map"):
        Fields([], error=partial(CorruptDataset, path="/data/cells.json"))


def test_a_field_error_is_an_error_of_the_protocol_and_a_value_error() -> None:
    with pytest.raises(ProtocolError) as caught:
        Fields(7)
    assert isinstance(caught.value, ValueError)
    assert caught.value.code == "bad_header"
