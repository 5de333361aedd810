"""What holds for every test: it ends in time, it leaves neither threads nor processes behind, it forces no disk."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep  # the watchdog's own: tests replace the functions of the module `time`
from typing import Any, TextIO

import hypothesis
import psutil
import pytest

from tests import unforced, windows_like
from tests.live.daemon_process import DaemonProcess
from tests.live.nursery import nursery
from tests.waiting import FreeSeconds

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120.0  # on a free machine
GRACE_S = 2.0  # for threads and processes that are on their way out
LOOK_S = 1.0  # how often the watchdog looks
MORE_S = 900.0  # of the clock, after the time on a free machine: a busy one gets so much, and no more
END_S = 240.0  # for what comes after the last test
FALLBACK_S = 100.0  # after the watchdog's last look, for when no Python thread runs any more
EXIT_HUNG = 3
MANY_FILES = 100  # of a run whose durations are kept
# Tests that start daemons or other processes, or go through thousands of faults: not among the quick ones.
LIVE_PLACES = (
    *("bench/", "docs_clients/", "faults/", "live/", "oracles/", "mirrors/", "views/"),
    *("integrity/repair/", "client/pymmcore/", "client/pycromanager/", "cli/", "daemon/test_view_process.py"),
    *("client/test_reentry.py", "client/test_local_memory.py", "client/test_lost_", "daemon/test_endpoints.py"),
    *(
        "log/test_full_disk",
        "log/test_intake_faults.py",
        "integrity/test_recovery.py",
        "rules/test_imports.py",
    ),
    *("web/test_foreign_runs.py", "web/test_growing.py", "web/test_hostile_clients.py", "web/test_served_mosaics.py"),
    *("log/test_skips.py", "integrity/test_hostile_files.py", "dataset/test_links.py", "dataset/test_remote_"),
)

# What takes minutes, a download or a system of its own: `tools/run.py test --deep`.
DEEP_PLACES = (
    *("docs_pages/test_page_commands.py", "docs_clients/", "commands/test_wheels.py", "recordings/"),
    *("live/test_booted_service.py", "live/test_newest_python.py", "live/test_mirror_disks.py", "live/test_napari.py"),
    *("oracles/test_oracle_bioformats.py", "oracles/test_oracle_imagej.py", "oracles/test_oracle_java"),
    *("web/test_napari.py", "web/test_visible_frames.py", "grid/test_kernel_sanitizers.py"),
    *("views/test_pyramid_crash_points.py", "views/test_pyramid_kills.py", "client/pymmcore/test_pymmcore_resume.py"),
    *("client/pycromanager/test_pycromanager_resume.py", "client/pycromanager/test_java_backend_follow.py"),
)

hypothesis.settings.register_profile("default", deadline=None, max_examples=30)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=30, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


class Watchdog:
    """Ends the run, with the stacks of all threads, when a test takes longer than it may.

    A hung test cannot be made to fail alone: its threads and locks would take the next ones with it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._changed = threading.Condition()
        self._test = ""
        self._timeout_s = 0.0
        self._passed: FreeSeconds | None = None  # since the test began; None between tests
        self._began = 0.0
        threading.Thread(target=self._watch, name="test-watchdog", daemon=True).start()

    def begin(self, test: str, timeout_s: float) -> None:
        with self._changed:
            self._test, self._timeout_s, self._passed = test, timeout_s, FreeSeconds()
            self._began = monotonic()
            self._arm_fallback()  # here too: it is a thread, and tests count those of this process
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._passed = None
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        """The tests of a second wake it once: it sleeps until the next look, whatever begins and ends meanwhile."""
        while True:
            with self._changed:
                while self._passed is None:
                    self._changed.wait()
                clock_s = monotonic() - self._began
                if self._passed.passed() > self._timeout_s or clock_s > self._timeout_s + MORE_S:
                    self._end_run()
                self._arm_fallback()
            sleep(LOOK_S)

    def _arm_fallback(self) -> None:
        faulthandler.dump_traceback_later(FALLBACK_S, exit=True, file=self._stream)

    def end_of_session(self) -> None:
        faulthandler.dump_traceback_later(END_S, exit=True, file=self._stream)

    def _end_run(self) -> None:
        print(f"\n\nHUNG: {self._test}; all threads:\n", file=self._stream, flush=True)
        faulthandler.dump_traceback(file=self._stream, all_threads=True)
        for child in psutil.Process().children(recursive=True):
            print(f"ending child process {describe(child)}", file=self._stream, flush=True)
            child.kill()
        print(f"\n1 failed: {self._test} hung, the run ends here", file=self._stream, flush=True)
        os._exit(EXIT_HUNG)


watchdog_key = pytest.StashKey[Watchdog]()
began_key = pytest.StashKey[float]()


def pytest_configure(config: pytest.Config) -> None:
    # One seed for all processes of a run, in the names of the tests that use it.
    os.environ.setdefault("ACQSTREAM_TEST_SEED", str(random.randrange(10**6)))
    config.stash[began_key] = time.monotonic()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background: programs would not heed Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    unforced.force_nothing()
    windows_like.begin()
    # A copy of the real stderr: while a test runs, pytest has put a file in its place.
    stream = os.fdopen(os.dup(sys.__stderr__.fileno()), "w") if sys.__stderr__ else sys.stderr
    config.stash[watchdog_key] = Watchdog(stream)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start daemons are marked as live, and some as deep; slow tests come last.

    Files whose tests may take long come before others, so that no process has to finish one of them alone in the end.
    """
    for item in items:
        place = item.path.relative_to(ROOT / "tests").as_posix()
        if is_live(item, place):
            item.add_marker("live")
        if place.startswith(DEEP_PLACES):
            item.add_marker("deep")
    thin_out(items)
    longest_s: dict[tuple[bool, Path], float] = {}
    for item in items:
        kind = is_slow(item), item.path
        longest_s[kind] = max(longest_s.get(kind, 0.0), timeout_s(item))
    items.sort(key=lambda item: (is_slow(item), -longest_s[is_slow(item), item.path]))


def thin_out(items: list[pytest.Item]) -> None:
    """Mark as deep all cases of a `thinned(n)` test but one of n. Which ones follows from their names alone."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("thinned") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for members in cases.values():
        (n,) = members[0].get_closest_marker("thinned").args  # type: ignore[union-attr]
        members.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in members[-(-len(members) // n) :]:
            item.add_marker("deep")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from tests.file_scheduling import FileScheduling

    return FileScheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Seconds of each test file, the longest first, in build/durations.txt: where the time of a full run goes."""
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                seconds[file] = seconds.get(file, 0.0) + report.duration
    if len(seconds) > MANY_FILES:
        longest = sorted(seconds.items(), key=lambda item: -item[1])
        folder = ROOT / "build"
        folder.mkdir(exist_ok=True)
        (folder / "durations.txt").write_text("".join(f"{s:8.1f} {file}\n" for file, s in longest), encoding="utf-8")


def timeout_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout_s")
    return float(marker.args[0]) if marker else TIMEOUT_S


def is_slow(item: pytest.Item) -> bool:
    """True for a test that may be left out for lack of time; `slow(is_always_run=True)` comes early instead."""
    marker = item.get_closest_marker("slow")
    return marker is not None and not marker.kwargs.get("is_always_run", False)


def is_live(item: pytest.Item, place: str) -> bool:
    """True for a test that starts processes: by its place, or because its module knows how to."""
    module = getattr(item, "module", None)
    return place.startswith(LIVE_PLACES) or any(known is DaemonProcess for known in vars(module).values())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """No slow test begins later than ACQSTREAM_SLOW_TESTS_S after the first test; the summary counts those left out."""
    limit_s = os.environ.get("ACQSTREAM_SLOW_TESTS_S")
    if limit_s and is_slow(item) and time.monotonic() - item.config.stash[began_key] > float(limit_s):
        pytest.skip(f"no time left for slow tests: {limit_s} s are over")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    watchdog = item.config.stash[watchdog_key]
    watchdog.begin(item.nodeid, timeout_s(item))
    try:
        return (yield)
    finally:
        watchdog.end()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Also what comes after the tests ends in time: removing folders, waiting for the other processes."""
    session.config.stash[watchdog_key].end_of_session()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[watchdog_key].end()  # a process of xdist stays until the others have ended


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests and their programs put into the temporary folder lies among pytest's own, which deletes all but the
    last of them: also what nobody could clean up because it was killed."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TMPDIR", "TEMP", "TMP"):
            patch.setenv(name, folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    """Threads and processes that the test started, or its own fixtures, have ended when they have.

    What fixtures of a wider scope started before it may live on.
    """
    threads, children = set(running_threads()), {child.pid for child in child_processes()}
    yield
    left = settle(
        lambda: (
            [f"thread {thread.name}" for thread in running_threads() if thread not in threads]
            + [f"process {describe(child)}" for child in child_processes() if child.pid not in children]
        )
    )
    assert not left, f"left behind by the test: {', '.join(left)}"


def running_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if not thread.daemon]


def child_processes() -> list[psutil.Process]:
    """Children of this process, without those that it, multiprocessing and Wine (its desktop) keep until its end."""
    children = psutil.Process().children() if may_have_children() else []
    kept = ("resource_tracker", "explorer.exe /desktop")
    return [child for child in children if child.pid != nursery.pid and not any(map(describe(child).count, kept))]


def may_have_children() -> bool:
    """Cheap where the system tells: psutil looks at every process of the machine, twice for each test."""
    try:
        lists = [Path(f"/proc/self/task/{thread}/children").read_text() for thread in os.listdir("/proc/self/task")]
    except OSError:
        return True
    return any(lists)


def describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({process.status()}) {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"{process.pid}"


def settle(leftovers: Callable[[], list[str]]) -> list[str]:
    """What is still left when nothing is or the grace time is over."""
    deadline = time.monotonic() + GRACE_S
    while True:
        left = leftovers()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view takes one frame or a few in a step, and has a checkpoint after each."""
    from acqstream.views import view_run

    monkeypatch.setattr(view_run, "STEP_BYTES", 1)
    monkeypatch.setattr(view_run, "CHECKPOINT_INTERVAL_S", 0.0)
