"""The command `test`: the run on the Windows-like disk comes before the main one, and counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import run
import steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Windows-like disk needs Linux")


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Exit codes of the run on the Windows-like disk and of the main one; none is started."""
    codes = [0, 0]

    def run_quietly(command: list[str], timeout_s: int, variables: dict[str, str]) -> tuple[int, str]:
        assert {f"tests/{name}" for name in ("log", "storage", "views")} <= set(command)
        assert variables == {"ACQSTREAM_TEST_DISK": "windows"}
        return codes[0], "FAILED a test\n5 passed in 1.0s"

    def run_openly(command: list[str], timeout_s: int) -> int:
        steps.say("main pytest")
        return codes[1]

    monkeypatch.setattr(run, "ensure_environment", lambda: Path("python"))
    monkeypatch.setattr(run, "ensure_webknossos", lambda: Path("python"))
    monkeypatch.setattr(run, "run_checks", lambda python: None)
    monkeypatch.setattr(run, "run_quietly", run_quietly)
    monkeypatch.setattr(run, "run_openly", run_openly)
    return codes


@pytest.mark.parametrize(("windows_like", "main", "expected"), [(0, 0, 0), (1, 0, 1), (0, 2, 2), (1, 2, 2)])
def test_either_run_fails_the_command(
    codes: list[int], capfd: pytest.CaptureFixture[str], windows_like: int, main: int, expected: int
) -> None:
    codes[:] = windows_like, main
    assert run.run_tests([]) == expected
    output = capfd.readouterr().out
    assert "Windows-like disk: 5 passed in 1.0s" in output
    assert ("FAILED a test" in output) == bool(windows_like)
    assert output.endswith("main pytest\n")


def test_a_choice_of_tests_runs_once(codes: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    codes[0] = 1
    assert run.run_tests(["tests/log"]) == 0
    assert "Windows-like" not in capfd.readouterr().out


def test_a_disk_that_is_nearly_full_is_named_at_once(codes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MIN_FREE_BYTES", sys.maxsize)
    with pytest.raises(steps.StepFailed, match=r"need .* GB of free space in .*; it has .* GB") as failure:
        run.run_tests([])
    assert failure.value.exit_code == run.EXIT_DISK_FULL
