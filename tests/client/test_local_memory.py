"""The local buffer where runs end early."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from acqstream.client.producer import create
from acqstream.errors import ConfigError

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memory files here")


def memory_files() -> int:
    """Open descriptors of local buffers."""
    gc.collect()
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # that of the listing
    return sum("acqstream-producer" in link for link in links)


def test_a_run_that_cannot_begin_keeps_no_memory(daemon, monkeypatch):
    for _ in range(3):
        with pytest.raises(ConfigError, match="ChNames"):
            create("cells", endpoint=daemon.endpoint, buffer_mb=1, micromanager=True, summary={"ChNames": 3})
    assert memory_files() == 0
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("acqstream-run"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        create("cells", endpoint=daemon.endpoint, buffer_mb=1)
    assert memory_files() == 0
