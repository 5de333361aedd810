"""The command `test-windows`: runs the tests of tests/windows_list.txt under Wine, or on Windows itself."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from steps import EXIT_TIMED_OUT, ROOT, child_environment, say
from windows_bench import BenchUnavailable, ensure_bench, stop_wine, wine, wine_environment
from windows_list import OUT, SHORT, counts_of, describe, groups, rules_of_files

ALL = "--all"
RESULT = "ACQSTREAM_WINDOWS_RESULT"  # the file for tests/commands/test_windows_result.py
SHORT_TIMEOUT_S = 1200
ALL_TIMEOUT_S = 4 * 3600
# No xdist: its workers would take longer to start than most groups run.
PYTEST = ("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
QUICK = ("-m", "not slow")
LEFT_BEHIND_S = 10.0  # a process that a test left behind keeps the pipe open, and is ended then
NO_TESTS = 5  # pytest's exit code if every test was deselected


@dataclass(frozen=True, slots=True)
class Bench:
    """A Windows Python: how to start it, and how to end whatever it left behind."""

    command: list[str]
    environment: dict[str, str]
    stop: Callable[[], None]


def run_windows_tests(python: Path, arguments: list[str]) -> int:
    """Run the short list, all of it with --all, or the tests that the arguments name. `python` is the project's own.

    Exit code 0 if all passed, or if this machine cannot have the bench; then the last line says why and counts. The
    last line is also written into the file that the variable ACQSTREAM_WINDOWS_RESULT names, as {"outcome": "ok",
    "failed" or "skipped", "text": ...}.
    """
    rules = rules_of_files()
    is_all, rest = ALL in arguments, [argument for argument in arguments if argument != ALL]
    files = [file for file, rule in rules.items() if rule.part == SHORT or (is_all and rule.part != OUT)]
    chosen = {"": []} if any(map(_is_place, rest)) else groups(files)
    try:
        bench = _bench(python)
    except BenchUnavailable as error:
        _conclude("skipped", f"{len(files)} test files: {error}")
        return 0
    left_out = sum(rule.part == OUT for rule in rules.values())
    say(f"test-windows: {len(files)} of {len(rules)} test files; {left_out} are left out by tests/windows_list.txt")
    deadline = time.monotonic() + (ALL_TIMEOUT_S if is_all else SHORT_TIMEOUT_S)
    options = [*PYTEST, *(() if is_all or "" in chosen else QUICK), *rest]
    try:
        results = {name: _run(bench, [*options, *group], deadline) for name, group in chosen.items()}
    finally:
        bench.stop()
    return _report(results)


def _is_place(argument: str) -> bool:
    return (ROOT / argument.partition("::")[0]).exists()


def _bench(python: Path) -> Bench:
    if os.name == "nt":
        return Bench([str(python)], child_environment(), lambda: None)
    windows_python, program = ensure_bench(python), wine()
    assert program is not None, "the bench has been made with it"
    return Bench([program, str(windows_python)], wine_environment(), stop_wine)


def _run(bench: Bench, arguments: list[str], deadline: float) -> tuple[int, str]:
    """Exit code and last line of a run, whose output is printed as it comes.

    Through a pipe: a Windows Python under Wine cannot start on a file that is open for writing only.
    """
    last = ""
    with subprocess.Popen(
        [*bench.command, *arguments],
        cwd=ROOT,
        env=bench.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        is_late, is_read = threading.Event(), threading.Event()

        def end() -> None:
            is_late.set()
            process.kill()
            bench.stop()  # its children keep the pipe open

        def release() -> None:
            process.wait()
            if not is_read.wait(LEFT_BEHIND_S):
                bench.stop()

        timer = threading.Timer(max(deadline - time.monotonic(), 0.0), end)
        timer.start()
        releaser = threading.Thread(target=release, name="release-pipe")
        releaser.start()
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
        finally:
            timer.cancel()
            is_read.set()
            releaser.join()  # it must not end the next run
    if is_late.is_set():
        return EXIT_TIMED_OUT, "no time left"
    return process.returncode, last


def _report(results: dict[str, tuple[int, str]]) -> int:
    """A line for each group, then the sum; the exit code of the first group that failed."""
    total: Counter[str] = Counter()
    failed = [code for code, _ in results.values() if code not in (0, NO_TESTS)]
    for name, (code, summary) in results.items():
        counts = counts_of(summary)
        total.update(counts)
        ending = "" if code in (0, 1, NO_TESTS) else f", exit code {code}: {summary}"
        say(f"test-windows: {f'tests/{name}' if name else 'as asked'}: {describe(counts)}{ending}")
    _conclude("failed" if failed else "ok", describe(dict(total)))
    return failed[0] if failed else 0


def _conclude(outcome: str, text: str) -> None:
    say(f"test-windows: {outcome}: {text}")
    path = os.environ.get(RESULT)
    if path:
        Path(path).write_text(json.dumps({"outcome": outcome, "text": text}), encoding="utf-8")
