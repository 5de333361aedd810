"""A producer of the fault runs as its parent holds it."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.model.fields import Fields
from acqstream.model.receipt import Receipt
from tests.faults.frame_plan import FramePlan, plan_name
from tests.faults.producer import NAME
from tests.faults.progress_board import Phase, ProgressBoard
from tests.live.daemon_process import DaemonProcess
from tests.live.programs import environment, kill
from tests.waiting import until

END_S = 60.0
TRANSPORTS = ("tcp", "ipc", "shm")

_boards = itertools.count()


@dataclass(frozen=True)
class Report:
    """What a producer said at its end.

    first is the number it began at; put and skipped are its own counts; waited_s is how long its last call took;
    transport is that of its last connection.
    """

    first: int
    put: int
    skipped: int
    receipt: Receipt | None
    error: str
    text: str
    waited_s: float
    transport: str

    @property
    def sent(self) -> int:
        """Frame numbers given out, those of earlier producers included."""
        return self.first + self.put + self.skipped


class ProducerProcess:
    """`tests/faults/producer.py` in a process of its own. Use as a context manager: it is gone at the end."""

    def __init__(self, folder: Path, plan: FramePlan, daemon: DaemonProcess, transport: str, **create: Any) -> None:
        self.plan = plan
        self.transport = transport
        self.board = ProgressBoard(folder / f"board-{next(_boards)}", create=True)
        endpoint = daemon.ipc if transport == "ipc" else daemon.endpoint
        create = {"patience_s": 30, "buffer_mb": 16, "transport": transport, **create}
        options: dict[str, Any] = {"board": str(self.board.path), "endpoint": endpoint, "create": create}
        options |= {"plan": plan.seed, "kind": plan_name(plan)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.producer", json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, phase: Phase) -> None:
        """Wait until it has come so far, or has failed."""
        until(lambda: self.board.phase >= phase or not self.is_running, f"the producer is {phase.name}", END_S)

    def wait_for_published(self, count: int) -> None:
        """Wait until so many frames were acknowledged, or it has ended."""
        until(lambda: self.board.published >= count or not self.is_running, f"{count} published", END_S)
        assert self.is_running, f"the producer ended by itself: {self._process.communicate()}"

    def wait_for_word(self, word: Literal["published", "durable"]) -> None:
        """Until the very moment when the daemon says so of more frames: it is to be true by then.

        Where it says "durable" at the end only, it is not waited for.
        """
        if self.plan.durability == "close":
            word = "published"
        before = getattr(self.board, word)
        until(lambda: getattr(self.board, word) != before or not self.is_running, f"more {word}", END_S, every_s=0.0)

    def close(self) -> None:
        """Ask it to close its run; do not wait."""
        self.board.set(stop=1)

    def report(self) -> Report:
        """Wait for its end."""
        output, errors = self._process.communicate(timeout=END_S)
        assert self._process.returncode == 0, f"the producer ended with {self._process.returncode}: {errors}"
        told = json.loads(output)
        receipt = Receipt.of(Fields(told.pop("receipt"))) if told["receipt"] is not None else told.pop("receipt")
        report = Report(receipt=receipt, **told)
        assert report.transport in (self.transport, ""), f"frames went by {report.transport}, not {self.transport}"
        return report

    def kill(self) -> None:
        """SIGKILL, if it still runs, and wait until it is gone."""
        kill(self._process)

    def __enter__(self) -> ProducerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def wait_for_commit(data: Path, latest_s: float, chance: random.Random) -> None:
    """Until entries are appended to the index, and a moment of at most latest_s more."""
    index = dataset_of(data) / INDEX_NAME
    size = _size(index)
    until(lambda: _size(index) != size, "a commit", END_S, every_s=0.0)
    time.sleep(chance.uniform(0.0, latest_s))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def dataset_of(data: Path) -> Path:
    """The folder of the one dataset that the fault runs write."""
    return data / NAME
