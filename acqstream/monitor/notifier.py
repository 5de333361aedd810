"""The process that sends notices: a child of the daemon, which it asks for its status like any other client.

The daemon writes one line of JSON to its standard input: `endpoint`, `targets`, `no_frames_s`. The end of that input is
the end of the daemon, however it came about: the notifier then reads the receipts of what was running, sends what is
left within END_S, and ends.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import BinaryIO

from acqstream.model.notice_target import parse_target
from acqstream.monitor.daemon_watch import DaemonWatch
from acqstream.monitor.notice_sender import NoticeSender
from acqstream.monitor.notices import Notice, NoticeFinder
from acqstream.storage.patient_output import never_wait_for_output
from acqstream.storage.platform import child_process

logger = logging.getLogger("acqstream.monitor")

LOOK_INTERVAL_S = 1.0
END_S = 5.0  # a service manager waits for this process before it starts the daemon again
MAX_SETTINGS_BYTES = 2**20


class Notifier:
    """Looks at the daemon at intervals, and gives what it finds to each sender."""

    def __init__(self, watch: DaemonWatch, finder: NoticeFinder, senders: Sequence[NoticeSender]) -> None:
        self._watch = watch
        self._finder = finder
        self._senders = senders

    def look(self) -> list[Notice]:
        """Look once, and queue what is worth a notice."""
        return self._give(self._finder.find(self._watch.look()))

    def run(self, ended: threading.Event, interval_s: float = LOOK_INTERVAL_S) -> None:
        """Look until `ended` is set; then report how the runs have ended, and send what is left."""
        while not ended.wait(interval_s):
            self.look()
        self._give(self._finder.find(self._watch.note_end_of_daemon("the daemon has ended")))
        for sender in self._senders:
            sender.put(None)
        for sender in self._senders:
            sender.close(END_S / len(self._senders))
        self._watch.close()

    def _give(self, notices: list[Notice]) -> list[Notice]:
        for notice in notices:
            logger.info("notice: %s", notice.text)
            for sender in self._senders:
                sender.put(notice)
        return notices


def run_notifier(source: BinaryIO) -> None:
    """Run the process with the settings that `source` begins with, until `source` ends."""
    settings = json.loads(source.readline(MAX_SETTINGS_BYTES))
    senders = [NoticeSender(parse_target(text)) for text in settings["targets"]]
    finder = NoticeFinder(socket.gethostname(), float(settings["no_frames_s"]))
    ended = threading.Event()

    def wait_for_end() -> None:
        while source.read(4096):
            pass
        ended.set()

    threading.Thread(target=wait_for_end, name="end-of-daemon", daemon=True).start()
    Notifier(DaemonWatch(settings["endpoint"]), finder, senders).run(ended)


def main() -> None:
    """Run the process. Signals of a service manager reach all processes of a service: the daemon decides the end."""
    for number in child_process.ignored_signals():
        signal.signal(number, signal.SIG_IGN)
    never_wait_for_output()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    child_process.yield_to_parent()
    run_notifier(sys.stdin.buffer)


if __name__ == "__main__":
    main()
