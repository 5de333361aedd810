"""The command `test`: with --deep, three other runs come before the main one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import run
import steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Windows-like disk needs Linux")


@pytest.fixture
def kernels() -> list[str]:
    """The kernels that the environment has."""
    return ["compiled"]


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch, kernels: list[str]) -> list[int]:
    """Exit codes of the runs on the Windows-like disk, main, without kernels, in Firefox; none is started."""
    codes = [0, 0, 0, 0]

    def run_quietly(command: list[str], timeout_s: int, variables: dict[str, str] | None = None) -> tuple[int, str]:
        if variables is None:
            assert command[-1] == run.NAME_KERNELS
            return 0, f"{kernels[0]}\n"
        if variables == {"ACQSTREAM_KERNELS": "0"}:
            assert {"tests/grid", "tests/mirrors/test_slab.py", "tests/views/test_pyramid_view.py"} <= set(command)
            assert all((steps.ROOT / name).exists() for name in command if name.startswith("tests/"))
            return codes[2], "FAILED another test\n7 passed in 1.0s"
        if variables == {"ACQSTREAM_TEST_BROWSER": "firefox"}:
            assert set(map(str, Path("tests/web").glob("*_in_browser.py"))) <= set(command)
            return codes[3], "FAILED a page\n3 passed in 1.0s"
        assert {f"tests/{name}" for name in ("log", "storage", "views")} <= set(command)
        assert variables == {"ACQSTREAM_TEST_DISK": "windows"}
        return codes[0], "FAILED a test\n5 passed in 1.0s"

    def run_openly(command: list[str], timeout_s: int) -> int:
        steps.say(f"main pytest, {'without' if 'not deep' in command else 'with'} deep tests")
        return codes[1]

    monkeypatch.setattr(run, "ensure_environment", lambda: Path("python"))
    monkeypatch.setattr(run, "ensure_oracle", lambda _name: None)
    monkeypatch.setattr(run, "run_checks", lambda python: None)
    monkeypatch.setattr(run, "run_quietly", run_quietly)
    monkeypatch.setattr(run, "run_openly", run_openly)
    return codes


@pytest.mark.parametrize(("windows_like", "main", "expected"), [(0, 0, 0), (1, 0, 1), (0, 2, 2), (1, 2, 2)])
def test_either_run_fails_the_command(
    codes: list[int], capfd: pytest.CaptureFixture[str], windows_like: int, main: int, expected: int
) -> None:
    codes[:] = windows_like, main, 0, 0
    assert run.run_tests([run.DEEP]) == expected
    output = capfd.readouterr().out
    assert "Windows-like disk: 5 passed in 1.0s" in output
    assert ("FAILED a test" in output) == bool(windows_like)
    assert output.endswith("main pytest, with deep tests\n")


@pytest.mark.parametrize(("name", "without", "expected"), [("compiled", 0, 0), ("compiled", 1, 1), ("numpy", 1, 0)])
def test_tests_of_pixels_run_without_compiled_kernels_where_they_exist(
    codes: list[int], kernels: list[str], capfd: pytest.CaptureFixture[str], name: str, without: int, expected: int
) -> None:
    kernels[:], codes[2] = [name], without
    assert run.run_tests([run.DEEP]) == expected
    output = capfd.readouterr().out
    assert ("without compiled kernels: 7 passed in 1.0s" in output) == (name == "compiled")
    assert ("all tests run with numpy" in output) == (name == "numpy")
    assert ("FAILED another test" in output) == bool(expected)


@pytest.mark.parametrize("firefox", [0, 1])
def test_tests_of_the_page_run_in_the_other_browser(
    codes: list[int], capfd: pytest.CaptureFixture[str], firefox: int
) -> None:
    codes[3] = firefox
    assert run.run_tests([run.DEEP]) == firefox
    output = capfd.readouterr().out
    assert "Firefox: 3 passed in 1.0s" in output
    assert ("FAILED a page" in output) == bool(firefox)


def test_a_choice_of_tests_runs_once(codes: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    codes[:] = 1, 0, 1, 1
    assert run.run_tests(["tests/log"]) == 0
    assert capfd.readouterr().out == "pytest:\nmain pytest, with deep tests\n"


def test_without_arguments_deep_tests_are_left_out(codes: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    codes[:] = 1, 0, 1, 1
    assert run.run_tests([]) == 0
    assert capfd.readouterr().out == "pytest:\nmain pytest, without deep tests\n"


def test_a_disk_that_is_nearly_full_is_named_at_once(codes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MIN_FREE_BYTES", sys.maxsize)
    with pytest.raises(steps.StepFailed, match=r"need .* GB of free space in .*; it has .* GB") as failure:
        run.run_tests([])
    assert failure.value.exit_code == run.EXIT_DISK_FULL
