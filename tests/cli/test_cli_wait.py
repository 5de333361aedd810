"""`acqstream wait` on datasets that nobody writes: what it prints, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from acqstream.cli.output import ExitCode
from acqstream.model.receipt import Status
from acqstream.storage.files.directory_lock import DirectoryLock
from tests.command import command
from tests.log.make_frames import frames_of, start_log, write_log

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    write_log(tmp_path / "cells", frames_of(5))
    return tmp_path / "cells"


def wait(*arguments: str | Path) -> int:
    return command("wait", *arguments)


def change_state(cells: Path, **more: Any) -> None:
    path = cells / "acqstream.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **more}))


def record(cells: Path, name: str, **more: Any) -> None:
    content = {"format": "acqstream-mirror", "version": 1, "name": name, "state": "complete", "frames": 5, **more}
    (cells / f"acqstream.mirror.{name}.json").write_text(json.dumps({**content, "published": 5}))


def test_all_is_well(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(cells, "n5")
    assert wait(cells) == ExitCode.OK
    assert capsys.readouterr().out == f"{cells}: complete; 5 frames stored\nn5  complete, 5 frames\n"
    assert wait(cells / "NDTiff.index", "--json") == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["ok"], told["state"], told["stored"]) == ("ended", True, "COMPLETE", 5)
    assert [(one["name"], one["state"]) for one in told["mirrors"]] == [("n5", "complete")]


@pytest.mark.parametrize("state", ["failed", "left_out", "interrupted"])
def test_a_mirror_that_is_not_complete(cells: Path, state: str, capsys: pytest.CaptureFixture[str]) -> None:
    record(cells, "n5", state=state, frames=2, reason="no such luck")
    record(cells, "wkw")
    change_state(cells, state="INTERRUPTED" if state == "interrupted" else "COMPLETE")
    assert wait(cells, "--patience", "0") == ExitCode.INCOMPLETE
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"n5   {state.replace('_', ' ')}")
    assert lines[1].endswith("no such luck")
    assert lines[2] == "wkw  complete, 5 frames"


@pytest.mark.parametrize(("status", "text"), [("canceled", "canceled"), ("error", "error"), ("failed", "failed")])
def test_a_run_that_did_not_end_in_order(
    tmp_path: Path, status: Status, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = start_log(tmp_path / "cells")
    log.close(status, "had enough")
    assert wait(tmp_path / "cells") == ExitCode.INCOMPLETE
    assert capsys.readouterr().out == f"{tmp_path / 'cells'}: {text}: had enough; 0 frames stored\n"


def test_a_run_that_misses_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = start_log(tmp_path / "cells")
    for frame in frames_of(3):
        log.append(frame.header, frame.image)
    log.close(sent=5)
    assert wait(tmp_path / "cells") == ExitCode.INCOMPLETE
    assert "incomplete; 2 frames missing: never arrived; 3 frames stored" in capsys.readouterr().out


def test_what_nobody_goes_on_with(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_state(cells, state="RUNNING")
    assert wait(cells, "--patience", "0") == ExitCode.UNAVAILABLE
    assert "no process continues it; start the daemon" in capsys.readouterr().out
    with DirectoryLock(str(cells.parent)):  # as if a daemon recovered it
        assert wait(cells, "--patience", "0", "--timeout", "0.05") == ExitCode.TIMEOUT
    assert "not ended within 0.05 s" in capsys.readouterr().out
    change_state(cells, state="COMPLETE")
    record(cells, "n5", state="running", frames=3)
    assert wait(cells, "--patience", "0") == ExitCode.UNAVAILABLE
    assert "n5  unfinished, 3 of 5 frames: no process makes it" in capsys.readouterr().out


def test_a_run_that_is_written_without_a_daemon_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = start_log(tmp_path / "cells")
    log.wait_until_open(10)
    assert wait(tmp_path / "cells", "--patience", "0", "--timeout", "0.05", "--json") == ExitCode.TIMEOUT
    log.close()
    capsys.readouterr()
    assert wait(tmp_path / "cells") == ExitCode.OK


def test_a_run_that_was_interrupted(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_state(cells, state="INTERRUPTED", reason="the producer was lost")
    assert wait(cells, "--patience", "0") == ExitCode.INCOMPLETE
    assert capsys.readouterr().out == f"{cells}: interrupted: the producer was lost\n"


def test_datasets_of_other_programs_and_nothing_at_all_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Path(shutil.copytree(GOLDEN / "java_rgb" / "data", tmp_path / "data"))
    assert wait(data) == ExitCode.ERROR
    assert "was not written by acqstream" in capsys.readouterr().err
    assert wait(tmp_path / "absent") == ExitCode.ERROR
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_damaged_state_and_a_receipt_that_is_a_folder_are_errors(cells: Path) -> None:
    (cells / "receipt.json").unlink()
    (cells / "receipt.json").mkdir()
    assert wait(cells) == ExitCode.ERROR
    (cells / "acqstream.json").write_text("{}")
    assert wait(cells) == ExitCode.ERROR
