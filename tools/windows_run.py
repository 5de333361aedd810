"""The command `test-windows`: runs the tests of tests/windows_list.txt under Wine, or on Windows itself."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from steps import EXIT_TIMED_OUT, ROOT, child_environment, say
from windows_bench import BenchUnavailable, ensure_bench, ensure_lane, stop_wine, wine, wine_environment
from windows_list import OUT, SHORT, counts_of, describe, groups, is_summary, rules_of_files

ALL = "--all"
RESULT = "ACQSTREAM_WINDOWS_RESULT"  # the file for tests/commands/test_windows_result.py
SHORT_TIMEOUT_S = 1200
ALL_TIMEOUT_S = 4 * 3600
# No xdist: its workers would take longer to start than most groups run.
PYTEST = ("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
QUICK = ("-m", "not slow")
FAILED = ("FAILED tests", "ERROR tests")
LEFT_BEHIND_S = 10.0  # a process that a test left behind keeps the pipe open, and is ended then
NO_TESTS = 5  # pytest's exit code if every test was deselected
LANES = min(os.cpu_count() or 1, 4)  # of --all
FILES_OF_A_JOB = 6  # of --all: few enough that the lanes end together
LANE_NAME = "PYTEST_XDIST_WORKER"  # tests/live/daemon_process.py takes a lane's ports from it


@dataclass(frozen=True, slots=True)
class Bench:
    """A Windows Python: how to start it, and how to end whatever it left behind."""

    command: list[str]
    environment: dict[str, str]
    stop: Callable[[], None]


@dataclass(slots=True)
class Result:
    """How the runs of one group ended."""

    counts: Counter[str] = field(default_factory=Counter)
    endings: list[tuple[int, str]] = field(default_factory=list)  # exit code and last line of those that failed
    failed: list[str] = field(default_factory=list)  # pytest's lines about single tests

    def add(self, code: int, lines: list[str]) -> None:
        ended = [line.strip() for line in lines if line.strip()] or ["it printed nothing"]
        # A library may print something after the summary.
        summary = next((line for line in reversed(ended) if is_summary(line)), ended[-1])
        counts = counts_of(summary)
        self.counts.update(counts)
        self.failed += [line for line in ended if line.startswith(FAILED)]
        if code not in (0, NO_TESTS):
            self.endings.append((code, summary if code == 1 else ended[-1]))
        elif counts.keys() & {"failed", "error"}:  # a program that is ended from outside may have code 0
            self.endings.append((1, summary))


def run_windows_tests(python: Path, arguments: list[str]) -> int:
    """Run the short list, all of it with --all, or the tests that the arguments name. `python` is the project's own.

    All of it runs in lanes, a process for each few files, whose output is printed when it has ended.

    Exit code 0 if all passed, or if this machine cannot have the bench; then the last line says why and counts. The
    last line is also written into the file that the variable ACQSTREAM_WINDOWS_RESULT names, as {"outcome": "ok",
    "failed" or "skipped", "text": ...}.
    """
    rules = rules_of_files()
    is_all, rest = ALL in arguments, [argument for argument in arguments if argument != ALL]
    files = [file for file, rule in rules.items() if rule.part == SHORT or (is_all and rule.part != OUT)]
    chosen = {"": []} if any(map(_is_place, rest)) else groups(files)
    jobs = list(_pieces(chosen)) if is_all else list(chosen.items())
    try:
        benches = [_bench(python, lane) for lane in range(min(LANES, len(jobs)) if is_all else 1)]
    except BenchUnavailable as error:
        _conclude("skipped", f"{len(files)} test files: {error}")
        return 0
    left_out = sum(rule.part == OUT for rule in rules.values())
    say(f"test-windows: {len(files)} of {len(rules)} test files; {left_out} are left out by tests/windows_list.txt")
    deadline = time.monotonic() + (ALL_TIMEOUT_S if is_all else SHORT_TIMEOUT_S)
    options = [*PYTEST, *(() if is_all or "" in chosen else QUICK), *rest]
    results = {name: Result() for name in chosen}
    try:
        if len(benches) == 1:
            for name, group in jobs:
                results[name].add(*_run(benches[0], [*options, *group], deadline, _print))
        else:
            _run_in_lanes(benches, jobs, options, deadline, results)
    finally:
        for bench in benches:
            bench.stop()
    return _report(results)


def _pieces(chosen: dict[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    for name, group in chosen.items():
        for first in range(0, max(len(group), 1), FILES_OF_A_JOB):
            yield name, group[first : first + FILES_OF_A_JOB]


def _run_in_lanes(
    benches: list[Bench],
    jobs: list[tuple[str, list[str]]],
    options: list[str],
    deadline: float,
    results: dict[str, Result],
) -> None:
    """Each job in the lane that is free first."""
    free: queue.SimpleQueue[Bench] = queue.SimpleQueue()
    for bench in benches:
        free.put(bench)
    is_printing = threading.Lock()

    def run(job: tuple[str, list[str]]) -> None:
        name, group = job
        bench, began = free.get(), time.monotonic()
        try:
            code, lines = _run(bench, [*options, *group], deadline, lambda line: None)
        finally:
            free.put(bench)
        with is_printing:
            say(f"test-windows: {' '.join(group)}: exit code {code} after {time.monotonic() - began:.0f} s")
            _print("".join(lines))
            results[name].add(code, lines)

    with ThreadPoolExecutor(len(benches)) as pool:
        try:
            for done in [pool.submit(run, job) for job in jobs]:
                done.result()
        except BaseException:  # Ctrl-C: what has not begun never does
            pool.shutdown(wait=False, cancel_futures=True)
            for bench in benches:
                bench.stop()
            raise


def _print(text: str) -> None:
    print(text, end="", flush=True)


def _is_place(argument: str) -> bool:
    return (ROOT / argument.partition("::")[0]).exists()


def _bench(python: Path, lane: int) -> Bench:
    name = {LANE_NAME: f"gw{lane}"}
    if os.name == "nt":
        return Bench([str(python)], child_environment() | name, lambda: None)
    windows_python, program = ensure_bench(python), wine()
    assert program is not None, "the bench has been made with it"
    ensure_lane(lane)
    return Bench([program, str(windows_python)], wine_environment(lane) | name, lambda: stop_wine(lane))


def _run(bench: Bench, arguments: list[str], deadline: float, show: Callable[[str], None]) -> tuple[int, list[str]]:
    """Exit code and output of a run; `show` gets each line as it comes.

    Through a pipe: a Windows Python under Wine cannot start on a file that is open for writing only.
    """
    lines: list[str] = []
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
                show(line)
                lines.append(line)
        finally:
            timer.cancel()
            is_read.set()
            releaser.join()  # it must not end the next run
    if is_late.is_set():
        return EXIT_TIMED_OUT, [*lines, "no time left\n"]
    return process.returncode, lines


def _report(results: dict[str, Result]) -> int:
    """What failed, a line for each group, then the sum; the exit code of the first run that failed."""
    total: Counter[str] = Counter()
    for result in results.values():
        total.update(result.counts)
        for line in result.failed:
            say(f"test-windows: {line}")
    for name, result in results.items():
        endings = "".join(f", exit code {code}: {last}" for code, last in result.endings if code != 1)
        say(f"test-windows: {f'tests/{name}' if name else 'as asked'}: {describe(result.counts)}{endings}")
    failed = [code for result in results.values() for code, _ in result.endings]
    _conclude("failed" if failed else "ok", describe(total))
    return failed[0] if failed else 0


def _conclude(outcome: str, text: str) -> None:
    say(f"test-windows: {outcome}: {text}")
    path = os.environ.get(RESULT)
    if path:
        Path(path).write_text(json.dumps({"outcome": outcome, "text": text}), encoding="utf-8")
