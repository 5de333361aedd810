from __future__ import annotations

import re
from pathlib import Path

import pytest

from acqstream.cli.output import ExitCode
from tests.command import command

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")


VERBS = (
    "demo serve simulate receive status stop shutdown service wait ls mv cp rm info view mirror verify repair keys "
    "bench doctor"
)


@pytest.mark.parametrize("verb", VERBS.split())
def test_the_page_names_every_option(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    command(verb, "--help")
    options = set(re.findall(r"^ +(?:-h, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)) - {"--help"}
    chapter = PAGE.partition(f"\n## {verb}\n")[2].partition("\n## ")[0]
    assert chapter
    missing = sorted(option for option in options if option not in chapter)
    assert not missing


def test_the_page_tells_every_exit_code() -> None:
    for code in ExitCode:
        assert f"| {code.value} |" in PAGE
