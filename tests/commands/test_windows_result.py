"""The tests on Windows, which `.ci/run` runs first, counted once in the summary of the ordinary suite."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from windows_run import RESULT


def check_result(path: str | None) -> None:
    """Pass, fail or skip as `test-windows` did."""
    if not path:
        pytest.skip(f"test-windows did not run before this suite: {RESULT} names no file")
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        pytest.fail("test-windows ended without a result; its output comes before that of this suite")
    if result["outcome"] == "skipped":
        pytest.skip(f"test-windows: {result['text']}")
    assert result["outcome"] == "ok", f"{result['text']}; its output comes before that of this suite"


def test_the_tests_on_windows_that_ran_before_this_suite_passed():
    check_result(os.environ.get(RESULT))


@pytest.mark.parametrize(
    ("outcome", "ending"), [("skipped", pytest.skip.Exception), ("failed", AssertionError), ("", pytest.fail.Exception)]
)
def test_every_other_ending_shows_in_the_summary(tmp_path, outcome, ending):
    path = tmp_path / "result.json"
    if outcome:
        path.write_text(json.dumps({"outcome": outcome, "text": "why"}))
    with pytest.raises(ending, match="why" if outcome else "without a result"):
        check_result(str(path))
