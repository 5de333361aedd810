"""The command `test-windows`: which tests it runs, what it reports, and when it skips."""

from __future__ import annotations

import ast
import json
import os
import sys
import time

import pytest

import windows_run
from steps import EXIT_TIMED_OUT
from windows_bench import BenchUnavailable
from windows_list import Rule
from windows_run import Bench

RULES = {
    "log/test_log.py": Rule("short", "log/*", ""),
    "live/test_stop.py": Rule("long", "live/*", ""),
    "rules/test_docs.py": Rule("out", "rules/*", "why"),
}
# In place of a Windows Python: it prints its arguments and a summary, and fails for the tests of `live`.
STAND_IN = """
import sys
print(sys.argv[1:])
print("3 passed, 1 skipped in 1.0s")
sys.exit("tests/live" in str(sys.argv))
"""


@pytest.fixture(autouse=True)
def no_result_of_this_run(monkeypatch):
    """The file of the run that these tests belong to stays as it is."""
    monkeypatch.delenv(windows_run.RESULT, raising=False)


@pytest.fixture
def stopped(monkeypatch) -> list[str]:
    """A bench of this Python; the list says how often it was stopped."""
    stops: list[str] = []
    bench = Bench([sys.executable, "-c", STAND_IN], {}, lambda: stops.append("stop"))
    monkeypatch.setattr(windows_run, "_bench", lambda python, lane: bench)
    monkeypatch.setattr(windows_run, "rules_of_files", lambda: RULES)
    return stops


def test_the_short_list_is_run_without_slow_tests(stopped, tmp_path, capfd):
    assert windows_run.run_windows_tests(tmp_path, ["-x"]) == 0
    printed = capfd.readouterr().out
    assert "1 of 3 test files; 1 are left out" in printed
    assert "'not slow', '-x', 'tests/log/test_log.py']" in printed
    assert "live" not in printed
    assert printed.endswith("test-windows: tests/log: 3 passed, 1 skipped\ntest-windows: ok: 3 passed, 1 skipped\n")
    assert stopped


def test_all_of_it_is_run_a_process_for_each_folder_and_one_failure_is_enough(stopped, tmp_path, capfd):
    assert windows_run.run_windows_tests(tmp_path, ["--all"]) == 1
    printed = capfd.readouterr().out
    assert "not slow" not in printed
    assert "rules" not in printed
    assert printed.endswith("test-windows: failed: 6 passed, 2 skipped\n")


def test_what_the_arguments_name_is_run_alone(stopped, tmp_path, capfd):
    assert windows_run.run_windows_tests(tmp_path, ["tests/commands"]) == 0
    assert "'no:cacheprovider', 'tests/commands']\n" in capfd.readouterr().out


def test_lanes_run_each_file_once(stopped, tmp_path, monkeypatch, capfd):
    """Jobs of few files; their output is not mixed, and a job's failure ends no other."""
    files = [f"{folder}/test_{number}.py" for folder in ("live", "log") for number in range(7)]
    monkeypatch.setattr(windows_run, "rules_of_files", lambda: {file: Rule("long", file, "") for file in files})
    monkeypatch.setattr(windows_run, "LANES", 3)
    lanes: list[int] = []
    bench = Bench([sys.executable, "-c", STAND_IN], {}, lambda: stopped.append("stop"))
    monkeypatch.setattr(windows_run, "_bench", lambda python, lane: lanes.append(lane) or bench)
    assert windows_run.run_windows_tests(tmp_path, ["--all"]) == 1
    printed = capfd.readouterr().out
    runs = [line for line in printed.splitlines() if line.startswith("[")]
    assert sorted(file for run in runs for file in ast.literal_eval(run) if file.startswith("tests/")) == [
        f"tests/{file}" for file in files
    ]
    assert (len(runs), lanes) == (4, [0, 1, 2])
    assert printed.count("]\n3 passed, 1 skipped in 1.0s\n") == 4
    assert "test-windows: tests/log: 6 passed, 2 skipped\n" in printed


@pytest.mark.parametrize(("arguments", "outcome"), [([], "ok"), (["--all"], "failed")])
def test_the_result_is_left_for_the_ordinary_suite(stopped, tmp_path, monkeypatch, arguments, outcome):
    monkeypatch.setenv(windows_run.RESULT, str(tmp_path / "result.json"))
    windows_run.run_windows_tests(tmp_path, arguments)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["outcome"] == outcome
    assert "passed" in result["text"]


def test_a_machine_without_wine_skips_and_counts(monkeypatch, tmp_path, capfd):
    def refuse(python, lane):
        raise BenchUnavailable("no Wine here")

    monkeypatch.setattr(windows_run, "_bench", refuse)
    monkeypatch.setattr(windows_run, "rules_of_files", lambda: RULES)
    monkeypatch.setenv(windows_run.RESULT, str(tmp_path / "result.json"))
    assert windows_run.run_windows_tests(tmp_path, []) == 0
    assert json.loads((tmp_path / "result.json").read_text()) == {
        "outcome": "skipped",
        "text": "1 test files: no Wine here",
    }
    assert capfd.readouterr().out == "test-windows: skipped: 1 test files: no Wine here\n"


def test_a_run_that_does_not_end_is_ended(stopped, tmp_path, monkeypatch):
    bench = Bench([sys.executable, "-c", "import time; time.sleep(1000)"], {}, lambda: stopped.append("stop"))
    assert windows_run._run(bench, [], time.monotonic() + 0.1, print) == (EXIT_TIMED_OUT, ["no time left\n"])
    assert stopped


def test_a_group_that_crashes_is_reported_with_its_last_line(capfd):
    log, cli = windows_run.Result(), windows_run.Result()
    log.add(3, ["FAILED tests/log/test_log.py::test_one - why\n", "1 failed: x hung, the run ends here\n", "\n"])
    cli.add(5, [])
    assert windows_run._report({"log": log, "cli": cli}) == 3
    printed = capfd.readouterr().out
    assert "tests/log: 1 failed, exit code 3: 1 failed: x hung" in printed
    assert printed.startswith("test-windows: FAILED tests/log/test_log.py::test_one - why\n")


def test_the_summary_counts_whatever_is_printed_after_it_and_whatever_the_exit_code(capfd):
    live = windows_run.Result()
    live.add(0, ["FAILED tests/a.py::b\n", "1 failed, 4 passed in 290.41s (0:04:50)\n", "I0000 7 env.h: 3 passed\n"])
    live.add(0, ["ERROR    acqstream: a line of a log\n", "6 passed in 1.0s\n", "W0000 a library says goodbye\n"])
    assert windows_run._report({"live": live}) == 1
    printed = capfd.readouterr().out
    assert "tests/live: 1 failed, 10 passed\n" in printed
    assert "a line of a log" not in printed


def test_a_process_that_is_left_behind_costs_no_other_run(tmp_path, monkeypatch):
    monkeypatch.setattr(windows_run, "LEFT_BEHIND_S", 0.01)
    program = f"""
import pathlib, subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(left.pid))
print("3 passed", flush=True)
"""
    bench = Bench([sys.executable, "-c", program], {}, lambda: os.kill(int((tmp_path / "pid").read_text()), 9))
    assert windows_run._run(bench, [], time.monotonic() + 100, print) == (0, ["3 passed\n"])
