"""The list of test files for Windows: how its lines are read, and which of them prevails."""

from __future__ import annotations

import pytest

import windows_list
from windows_list import LONG, OUT, SHORT, Rule, read_rules


def parts(files: list[str], text: str) -> dict[str, str]:
    return {file: rule.part for file, rule in windows_list.sort_files(files, read_rules(text)).items()}


def test_lines_name_a_part_a_pattern_and_for_what_is_left_out_the_reason():
    text = "# a comment\n\nshort log/*\nlong  live/test_stop.py\nout   rules/* they read the source\n"
    assert read_rules(text) == [
        Rule(SHORT, "log/*", ""),
        Rule(LONG, "live/test_stop.py", ""),
        Rule(OUT, "rules/*", "they read the source"),
    ]


@pytest.mark.parametrize("line", ["slow log/*", "short", "out rules/*", "short log/* because", "log/test_log.py"])
def test_other_lines_are_refused(line):
    with pytest.raises(ValueError, match="expected 'short PATTERN'"):
        read_rules(line)


def test_a_line_for_one_file_prevails_over_a_pattern():
    text = "short log/*\nout log/test_libtiff.py no libtiff\n"
    assert parts(["log/test_libtiff.py", "log/test_log.py"], text) == {
        "log/test_libtiff.py": OUT,
        "log/test_log.py": SHORT,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("short log/*\n", "cli/test_cli.py has 0 lines"),
        ("short log/*\nlong *\n", "log/test_log.py has 2 lines"),
        ("short *\nlong views/*\n", "long views/\\* applies to no file"),
        ("short *\nlong log/test_log.py\nlong log/test_log.py\n", "log/test_log.py has 2 lines"),
    ],
)
def test_every_file_has_one_line_and_every_line_a_file(text, message):
    with pytest.raises(ValueError, match=message):
        parts(["cli/test_cli.py", "log/test_log.py"], text)


def test_a_group_is_a_folder_below_tests():
    files = ["formats/n5/test_block.py", "test_waiting.py", "formats/test_chunk_format.py"]
    assert windows_list.groups(files) == {
        "formats": ["tests/formats/n5/test_block.py", "tests/formats/test_chunk_format.py"],
        "": ["tests/test_waiting.py"],
    }


@pytest.mark.parametrize(
    ("summary", "counts"),
    [
        ("===== 2 failed, 157 passed, 3 skipped in 8.76s =====", {"failed": 2, "passed": 157, "skipped": 3}),
        ("1 passed, 2 errors in 3.04s", {"passed": 1, "error": 2}),
        ("1 error in 3.04s", {"error": 1}),
        ("Segmentation fault", {}),
    ],
)
def test_summaries_of_pytest_are_counted(summary, counts):
    assert windows_list.counts_of(summary) == counts
