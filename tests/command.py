"""`acqstream` with arguments, in this process."""

from __future__ import annotations

from typing import Any

import pytest

from acqstream.cli.main import main


def command(*arguments: object) -> int:
    """Its exit code."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    code: Any = end.value.code or 0
    return int(code)


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Its exit code, and what it prints to stdout and to stderr."""
    code = command(*arguments)
    return code, *capsys.readouterr()
