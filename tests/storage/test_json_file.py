"""Small files of a stranger, and JSON in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from acqstream.errors import CorruptDataset, FileMissing
from acqstream.storage.files.small_file import MAX_DEPTH, parse_json, read_document, read_json_object, read_small_file
from tests.log.hostile_files import ANY_FILE, JSON_FILE


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(b"[1, 2]")
    assert read_small_file(path, 6) == b"[1, 2]"
    with pytest.raises(CorruptDataset, match=r"one\.json: has 6 bytes, expected at most 5"):
        read_small_file(path, 5)


def test_a_missing_file_is_an_error_of_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file" / "none"):
        with pytest.raises(FileMissing) as caught:
            read_small_file(path)
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.filename == str(path)


@pytest.mark.parametrize("kind", JSON_FILE)
def test_whatever_lies_there_the_error_names_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "one.json"
    if kind not in ANY_FILE:
        path.write_text('{"format": "acqstream", "version": 1, "name": "cells"}')
    JSON_FILE[kind](path)
    with pytest.raises(CorruptDataset, match=r"one\.json: "):
        read_document(path, "acqstream", lambda fields: (fields.text("dataset_id"), fields.items("gaps")))


def test_what_others_wrote_may_have_numbers_that_are_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"a": NaN, "b": 1e999, "b": 2}')
    assert read_json_object(path)["b"] == 2
    with pytest.raises(CorruptDataset, match="NaN is not a JSON number"):
        read_json_object(path, is_ours=True)


def test_depth_is_bounded_and_commas_in_texts_are_no_depth() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(deepest, "x")
    assert parse_json('["' + "[" * 1000 + '"]', "x") == ["[" * 1000]
    with pytest.raises(CorruptDataset, match=f"nested deeper than {MAX_DEPTH} levels"):
        parse_json(f"[{deepest}]", "x")
