"""The notifier: each notice goes to all senders, and the end of the daemon is reported before the senders end."""

from __future__ import annotations

import threading
from typing import Any, cast

from acqstream.monitor.daemon_watch import DaemonView
from acqstream.monitor.notifier import END_S, Notice, NoticeFinder, NoticeKind, NoticeSender, Notifier

RUNS, ENDED = DaemonView(why="it runs"), DaemonView(why="it has ended")


class Watch:
    """A daemon that ends at the second look."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended
        self.looks = 0
        self.is_closed = False

    def tick(self) -> DaemonView:
        self.looks += 1
        if self.looks == 2:
            self._ended.set()
        return RUNS

    def note_end_of_daemon(self, why: str) -> DaemonView:
        assert why == "the daemon has ended"
        return ENDED

    def close(self) -> None:
        self.is_closed = True


class Finder:
    """A notice for each view, with the reason of the view as its text."""

    def find(self, view: DaemonView) -> list[Notice]:
        return [Notice(kind=NoticeKind.FAILED, text=view.why, host="scope", time="")]


class Sender:
    """Keeps what it gets, in order; senders share the list."""

    def __init__(self, name: str, calls: list[tuple[str, Any]]) -> None:
        self._name, self._calls = name, calls

    def put(self, notice: Notice | None) -> None:
        self._calls.append((self._name, notice and notice.text))

    def close(self, timeout_s: float) -> None:
        self._calls.append((self._name, timeout_s))


def test_all_senders_get_each_notice_and_the_end_of_the_daemon_comes_last() -> None:
    ended, calls = threading.Event(), list[tuple[str, Any]]()
    watch = Watch(ended)
    senders = cast("list[NoticeSender]", [Sender("a", calls), Sender("b", calls)])
    Notifier(cast("Any", watch), cast("NoticeFinder", Finder()), senders).run(ended, 0.0)
    both = [("a", RUNS.why), ("b", RUNS.why)]
    assert calls[:6] == [*both, *both, ("a", ENDED.why), ("b", ENDED.why)]
    # All are told of the end before one is waited for, so they send at the same time.
    assert calls[6:] == [("a", None), ("b", None), ("a", END_S / 2), ("b", END_S / 2)]
    assert watch.is_closed
