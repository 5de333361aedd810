"""The load in the status of a running daemon is that of its process and machine."""

from __future__ import annotations

import json
import sys

import psutil
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.model.status import LoadStatus
from tests.command import command
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import image_of
from tests.waiting import until

SHAPE = (256, 256)


def load_of(daemon: DaemonProcess) -> LoadStatus | None:
    """The load once there are rates."""
    load = fetch_status(daemon.endpoint).load
    return load if load.processor_percent is not None else None


def test_the_load_of_a_running_daemon(daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> None:
    load: LoadStatus = until(lambda: load_of(daemon), "the load is measured")
    process = psutil.Process(daemon.pid)
    assert load.processors == psutil.cpu_count()
    assert load.total_memory_bytes == psutil.virtual_memory().total
    assert process.memory_info().rss / 2 < load.daemon_memory_bytes < process.memory_info().rss * 2
    usual = "normal" if sys.platform == "win32" else str(int(process.nice()))
    assert load.priority.endswith(usual)
    with acqstream.create("cells", endpoint=daemon.endpoint) as run:

        def is_at_work() -> bool:
            number = run.next
            run.put(image_of(number, SHAPE), time=number)
            return (fetch_status(daemon.endpoint).load.daemon_processor_percent or 0) > 0

        until(is_at_work, "the daemon's work counts")
    command("status", "--endpoint", daemon.endpoint, "--json")
    assert json.loads(capsys.readouterr().out)["load"].keys() == {*LoadStatus.__dataclass_fields__}
