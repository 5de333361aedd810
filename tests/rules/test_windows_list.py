"""Every test file has its place in the list for Windows: new ones are run there, or say why not."""

from __future__ import annotations

import windows_list
from windows_list import SHORT


def test_every_test_file_has_one_line_in_the_list_for_windows():
    rules = windows_list.rules_of_files()  # ValueError names the files and the lines
    assert len(rules) == len(windows_list.all_test_files()) > 300
    assert any(rule.part == SHORT for rule in rules.values())
