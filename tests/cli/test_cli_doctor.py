from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acqstream.doctor import checks
from acqstream.doctor.checks import CheckResult
from acqstream.doctor.verdict import CheckVerdict, ok, problem, unknown, warning
from tests.command import command


def doctor(
    monkeypatch: pytest.MonkeyPatch, data: Path, verdicts: list[CheckVerdict], *options: str
) -> tuple[int, list[Any]]:
    asked: list[Any] = []

    def run(examination: Any) -> list[CheckResult]:
        asked.append(examination)
        return [CheckResult(f"check {number}", verdict, {"n": number}) for number, verdict in enumerate(verdicts)]

    monkeypatch.setattr(checks, "run_checks", run)
    return command("doctor", "--data", data, *options), asked


def test_verdicts_are_printed_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [ok("Fine."), warning("Hm.", "Do this."), problem("Bad.", "Do that."), unknown("Unclear.")]
    code, (asked,) = doctor(monkeypatch, tmp_path, found, "--frame", "20,30", "--dtype", "uint8", "--fps", "2")
    assert code == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok      check 0: Fine.",
        "WARNING check 1: Hm.",
        "        Do this.",
        "PROBLEM check 2: Bad.",
        "        Do that.",
        "?       check 3: Unclear.",
        "1 problem, 1 warning",
    ]
    assert asked.camera.bytes_per_s == 1200
    assert asked.data == tmp_path


@pytest.mark.parametrize("verdicts", [[], [ok("Fine.")], [warning("Hm.", "Do this."), unknown("Unclear.")]])
def test_without_a_problem_the_code_is_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdicts: list[CheckVerdict]
) -> None:
    code, (asked,) = doctor(monkeypatch, tmp_path, verdicts)
    assert (code, asked.camera) == (0, None)


def test_the_document_keeps_its_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = doctor(monkeypatch, tmp_path, [problem("Bad.", "Do that."), ok("Fine.")], "--json")
    assert code == 1
    assert json.loads(capsys.readouterr().out) == {
        "version": 1,
        "worst": "problem",
        "checks": [
            {"check": "check 0", "level": "problem", "what": "Bad.", "remedy": "Do that.", "facts": {"n": 0}},
            {"check": "check 1", "level": "ok", "what": "Fine.", "remedy": "", "facts": {"n": 1}},
        ],
    }


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--frame 20,30", "needs both"),
        ("--fps 3", "needs both"),
        ("--frame 20 --fps 3", "must be Y,X"),
        ("--frame 0,20 --fps 3", "must be Y,X"),
        ("--frame a,b --fps 3", "must be Y,X"),
        ("--data missing", "is not a directory"),
    ],
)
def test_wrong_usage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: str,
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, asked = doctor(monkeypatch, tmp_path, [], *options.split())
    assert (code, asked) == (2, [])
    assert complaint in " ".join(capsys.readouterr().err.split())
