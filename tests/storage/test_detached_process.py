"""A process that outlives the one that started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from acqstream.storage.platform import posix_process, windows_process
from acqstream.storage.platform.detached_process import DetachedProcess
from tests.waiting import until

REPORT = """
import json, os, sys
group = [os.getsid(0), os.getpgid(0)] if hasattr(os, "getsid") else []
facts = {"pid": os.getpid(), "group": group, "folder": os.getcwd(), "variable": os.environ.get("TRIED")}
facts["input"] = sys.stdin.read()
open("facts.tmp", "w").write(json.dumps(facts))
os.replace("facts.tmp", "facts.json")
"""
STAY = REPORT + "import time\nwhile not os.path.exists('end'): time.sleep(0.01)\n"
CALLER = """
import os, sys
from pathlib import Path
from acqstream.storage.platform.detached_process import DetachedProcess
process = DetachedProcess([sys.executable, "-c", sys.argv[1]], dict(os.environ), Path(sys.argv[2]))
print("started", flush=True)
sys.stdin.read()
"""


def facts_in(folder: Path) -> dict[str, object]:
    until((folder / "facts.json").exists, "the process reports")
    facts: dict[str, object] = json.loads((folder / "facts.json").read_text())
    return facts


def end(folder: Path, pid: object) -> None:
    (folder / "end").touch()
    until(lambda: not psutil.pid_exists(int(str(pid))), "the process ends")


def test_it_works_in_its_folder_with_the_environment_and_without_input(tmp_path: Path) -> None:
    environment = {**os.environ, "TRIED": "yes"}
    process = DetachedProcess([sys.executable, "-c", REPORT], environment, tmp_path)
    facts = facts_in(tmp_path)
    until(lambda: process.exit_code is not None, "the process ends")
    assert process.exit_code == 0
    assert (facts["variable"], facts["input"]) == ("yes", "")
    assert os.path.samefile(str(facts["folder"]), tmp_path)
    process.release()


@pytest.mark.skipif(not hasattr(os, "getsid"), reason="sessions of POSIX")
def test_it_has_a_session_of_its_own(tmp_path: Path) -> None:
    process = DetachedProcess([sys.executable, "-c", STAY], dict(os.environ), tmp_path)
    facts = facts_in(tmp_path)
    assert facts["group"] == [facts["pid"], facts["pid"]]
    assert process.exit_code is None
    process.release()
    process.release()
    assert psutil.pid_exists(int(str(facts["pid"])))
    assert psutil.Process(int(str(facts["pid"]))).ppid() != os.getpid()
    end(tmp_path, facts["pid"])


@pytest.mark.parametrize("how", ["kill", "close"])
def test_it_outlives_the_program_that_started_it(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", CALLER, STAY, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as caller:
        assert caller.stdin is not None
        assert caller.stdout is not None
        assert caller.stdout.readline().strip() == b"started"
        facts = facts_in(tmp_path)
        if how == "kill":
            caller.kill()
        caller.stdin.close()
        caller.wait()
        assert caller.stdout.read() == b""  # and it has no handle of the caller's: this would wait for its end
    assert psutil.pid_exists(int(str(facts["pid"])))
    end(tmp_path, facts["pid"])


def test_its_exit_code_and_its_output_are_known_until_the_release(tmp_path: Path) -> None:
    program = "import sys; print('to stdout', flush=True); print('to stderr', file=sys.stderr); sys.exit(75)"
    process = DetachedProcess([sys.executable, "-c", program], dict(os.environ), tmp_path)
    until(lambda: process.exit_code is not None, "the process ends")
    assert process.exit_code == 75
    assert process.output().split("\n")[:2] == ["to stdout", "to stderr"]
    process.release()


def test_a_program_that_is_missing_is_reported(tmp_path: Path) -> None:
    process = DetachedProcess([str(tmp_path / "missing")], dict(os.environ), tmp_path)
    until(lambda: process.exit_code is not None, "the starter ends")
    assert process.exit_code == 127
    assert "cannot start" in process.output()
    process.release()


def test_windows_starts_it_without_a_window_out_of_the_job_where_that_is_allowed() -> None:
    """Values of "Process Creation Flags": breakaway 0x01000000, no window 0x08000000, new group 0x200."""
    flags = [options["creationflags"] for options in windows_process.DETACHED_OPTIONS]
    assert flags == [0x0900_0200, 0x0800_0200]
    assert posix_process.interpreter("python", {"a": "b"}) == ("python", {"a": "b"})
