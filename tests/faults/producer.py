"""The producer of the fault runs, a process of its own: sends the frames of a plan until it is told to close.

    python -m tests.faults.producer '{"board": ..., "plan": SEED, "endpoint": ..., "create": {...}}'

Tells how far it is on the board; writes, at its end, one line of JSON: the numbers it gave out, counted by itself, how
frames went, and the receipt, or the error.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import acqstream
from acqstream.client.run import Run
from tests.faults.frame_plan import PLANS, FramePlan
from tests.faults.progress_board import Phase, ProgressBoard

NAME = "cells"


def follow(run: Run, board: ProgressBoard) -> threading.Thread:
    """Note every word of the daemon on the board, as soon as it has come."""

    def watch() -> None:
        condition, session = run._state.condition, run._state
        ended = False
        while not ended:
            with condition:
                cursors, ended = session.cursors, session.ended
                board.set(
                    received=max(board.received, cursors.received),
                    published=max(board.published, cursors.published),
                    durable=max(board.durable, cursors.durable),
                    warned=sum(warning.code == "disk_full" for warning in session.report.warnings),
                )
                if not ended:
                    condition.wait(0.05)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def send(run: Run, plan: FramePlan, board: ProgressBoard, given: dict[str, Any]) -> None:
    meta: dict[str, Any] = {}  # one for all frames, changed after each
    while not board.stop:
        number = run.next
        given["called_s"] = time.monotonic()
        if gap := plan.gap_at(number):
            run.skip(gap, reason="planned")
            given["skipped"] += gap
        else:
            meta.update(plan.metadata(number))
            run.put(plan.image(number), plan.axes(number), meta=meta, time_ns=plan.time_ns(number))
            meta["stage"]["x_um"] = "later"
            given["put"] += 1
        board.set(next=run.next)
        time.sleep(plan.interval_s)


def produce(options: dict[str, Any], board: ProgressBoard) -> dict[str, Any]:
    """The whole run; what to print."""
    plan = PLANS[options["kind"]](options["plan"])
    given: dict[str, Any] = {"first": 0, "put": 0, "skipped": 0, "called_s": time.monotonic()}
    run: Run | None = None
    board.set(phase=Phase.OPENING)
    try:
        run = acqstream.create(NAME, endpoint=options["endpoint"], durability=plan.durability, **options["create"])
        watcher = follow(run, board)
        given["first"] = run.next
        board.set(phase=Phase.RUNNING, next=run.next)
        send(run, plan, board, given)
        board.set(phase=Phase.CLOSING)
        given["called_s"] = time.monotonic()
        run.close()
        watcher.join()
        waited_s = time.monotonic() - given.pop("called_s")
    except acqstream.AcqStreamError as error:
        waited_s = time.monotonic() - given.pop("called_s")
        if run is not None:
            with contextlib.suppress(acqstream.AcqStreamError):  # the same error again
                run.close("error", reason="the producer was refused")
        board.set(phase=Phase.FAILED)
        receipt = run.receipt.as_dict() if run is not None and run.receipt is not None else None
        told = {"error": type(error).__name__, "text": str(error), "receipt": receipt}
        return {**told, "transport": run.transport if run is not None else "", "waited_s": waited_s, **given}
    board.set(phase=Phase.CLOSED)
    assert run.receipt is not None
    told = {"error": "", "text": "", "receipt": run.receipt.as_dict()}
    return {**told, "transport": run.transport, "waited_s": waited_s, **given}


def main() -> None:
    options = json.loads(sys.argv[1])
    json.dump(produce(options, ProgressBoard(Path(options["board"]))), sys.stdout)


if __name__ == "__main__":
    main()
