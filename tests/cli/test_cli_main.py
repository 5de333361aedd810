from __future__ import annotations

import subprocess
import sys

import pytest

from acqstream.cli.main import main
from acqstream.cli.output import ExitCode, error_line, exit_code_of
from acqstream.errors import (
    AcqStreamError,
    AcquisitionFailed,
    AcquisitionRefused,
    ConfigError,
    DaemonUnavailable,
    DatasetLocked,
    StorageError,
)
from tests.command import answer_of

VERBS = ("serve", "simulate", "receive", "status", "stop", "info", "keys", "bench")


def test_help_names_verbs_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer_of(capsys, "--help")
    assert code == 0
    for text in (*VERBS, "Exit codes", "69", "78"):
        assert text in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, out, _ = answer_of(capsys, verb, "--help")
    assert code == 0
    assert f"Usage: acqstream {verb}" in out
    assert "Exit codes" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer_of(capsys, "--version")
    assert code == 0
    assert out.strip()


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("status", "--fast"),
        ("status", "--timeout", "soon"),
        ("info",),
        ("info", "one", "two"),
        ("mirror", "--memory-mb", "3", "run", "n5"),
        ("wait", "--timeout", "-1"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    code, out, err = answer_of(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert out == ""
    assert "Error" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DaemonUnavailable("no daemon answers at tcp://127.0.0.1:1"), 69),
        (ConfigError("data: missing"), 78),
        (AcquisitionRefused("name taken"), 1),
        (AcquisitionFailed("the disk is gone", code="io_error"), 1),
        (AcquisitionFailed("2 frames are missing", code="incomplete"), 3),
        (StorageError(OSError(5, "Input/output error"), "/data", "write"), 75),
        (DatasetLocked("/data is held by process 7"), 75),
        (PermissionError(13, "Permission denied", "/data"), 1),
    ],
)
def test_exit_codes(error: AcqStreamError | OSError, code: int) -> None:
    assert exit_code_of(error) == code


def test_error_is_one_line_with_the_next_step() -> None:
    line = error_line(DaemonUnavailable("no daemon\nanswers"))
    assert line == "acqstream: no daemon answers; start one with: acqstream serve --data DIR"
    assert error_line(DaemonUnavailable(line)).count("acqstream serve") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], ("numpy", "pydantic", "psutil", "zmq", "rich.table")),
        (
            ["status", "--endpoint", "tcp://127.0.0.1:9"],
            ("psutil", "tifffile", "pydantic", "asyncio"),
        ),
    ],
)
def test_light_verbs_load_little(arguments: list[str], heavy: tuple[str, ...]) -> None:
    heavy += ("acqstream.daemon", "acqstream.log", "acqstream.formats", "acqstream.bench", "acqstream.simulate")
    program = (
        "import sys\nfrom acqstream.cli.main import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        f"loaded = sorted(set({heavy!r}) & set(sys.modules))\n"
        "sys.exit(','.join(loaded) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_process_s_own_arguments_are_left_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows it expands `*` and `~` only in those that it has taken itself."""
    taken: list[object] = []
    monkeypatch.setattr("sys.argv", ["acqstream", "info", "~/cells*"])
    monkeypatch.setattr(
        "acqstream.cli.main.command_line", lambda verbs: lambda arguments, **_: taken.append((list(verbs), arguments))
    )
    main()
    assert taken == [(["info"], None)]
