"""`create(data=...)` in a kernel of Jupyter, whose interrupts and restarts reach neither the daemon nor the dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.client.directory_daemon import LOG_NAME
from acqstream.storage.files.directory_lock import DirectoryLock
from tests.live.embedded_daemons import DEADLINE_S, EmbeddedDaemons, embedded_daemons
from tests.live.notebook_kernel import NotebookKernel
from tests.live.stored import state_of
from tests.waiting import until

IMAGE = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
OPENING = """
import asyncio
import acqstream, numpy as np
image = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
run = acqstream.create("cells", data={data!r}, patience_s=60.0)
"""
HANGING = """
import time
with run:
    while True:
        run.put(image + run.next, time=run.next)
        if run.progress.published >= 3:
            print("stored", flush=True)
            while True:
                time.sleep(0.01)  # on Windows an interrupt does not end a longer one
"""
RESUMING = """
import acqstream, numpy as np
image = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
with acqstream.create("cells", data={data!r}, resume=True, patience_s=60.0) as run:
    print(run.next)
    run.put(image + run.next, time=run.next)
"""
pytestmark = pytest.mark.timeout_s(300)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[EmbeddedDaemons]:
    with embedded_daemons(tmp_path, idle_exit_s=300.0, grace_s=0.2) as own:
        yield own


@pytest.fixture
def kernel(daemons: EmbeddedDaemons, tmp_path: Path) -> Iterator[NotebookKernel]:
    with NotebookKernel(tmp_path, daemons.environment) as one:
        yield one


def cell(text: str, daemons: EmbeddedDaemons) -> str:
    return text.format(data=str(daemons.data))


def check_frames(daemons: EmbeddedDaemons, name: str = "cells") -> int:
    """Compare all frames of a dataset; their number."""
    with acqstream.open(daemons.data / name) as dataset:
        times = [int(key["time"]) for key in list(dataset.keys())]
        for time in times:
            assert np.array_equal(dataset.read_frame(time=time), IMAGE + time)
    assert times == list(range(len(times)))
    return len(times)


def resume(kernel: NotebookKernel, daemons: EmbeddedDaemons) -> None:
    """Append a frame to the run "cells" in a new cell."""
    stored = check_frames(daemons)
    assert kernel.run(cell(RESUMING, daemons)) == f"{stored}\n"
    assert check_frames(daemons) == stored + 1
    assert state_of(daemons.data / "cells")["state"] == "COMPLETE"


def test_cells_and_a_second_kernel_record_with_one_daemon(
    kernel: NotebookKernel, daemons: EmbeddedDaemons, tmp_path: Path
) -> None:
    """Cells run inside the kernel's event loop: synchronous calls, coroutines and threads of it may all record."""
    kernel.run(cell(OPENING, daemons))
    pid = daemons.pid
    kernel.run("run.put(image, time=0)")
    kernel.run("await asyncio.sleep(0)\nrun.put(image + 1, time=1)")
    kernel.run("await asyncio.gather(*(asyncio.to_thread(run.put, image + 2 + n, time=2 + n) for n in range(1)))")
    with NotebookKernel(tmp_path, daemons.environment) as second:
        second.run(cell(OPENING, daemons).replace('"cells"', '"others"'))
        second.run("run.put(image, time=0)\nrun.close()")
    kernel.run("run.put(image + 3, time=3)\nrun.close()")
    shown = kernel.run("with acqstream.open(run.path) as ds:\n    print(ds.read_frame(time=3).sum(), ds.complete)")
    assert shown == f"{int((IMAGE + 3).sum())} True\n"
    assert (check_frames(daemons), check_frames(daemons, "others")) == (4, 1)
    assert daemons.pid == pid
    assert daemons.log.count("listening on") == 1


def test_an_interrupted_cell_ends_its_run_and_not_the_daemon(kernel: NotebookKernel, daemons: EmbeddedDaemons) -> None:
    kernel.run(cell(OPENING, daemons))
    pid = daemons.pid
    recording = kernel.begin(HANGING)
    recording.wait_for("stored")
    kernel.interrupt()
    assert "KeyboardInterrupt" in recording.finish().error
    assert daemons.pid == pid
    state = state_of(daemons.data / "cells")
    assert state["state"] == "ERRORED"
    assert state["reason"] == "canceled by Ctrl-C"
    resume(kernel, daemons)
    assert daemons.pid == pid


def test_a_run_of_an_earlier_cell_survives_the_interrupt_of_another(
    kernel: NotebookKernel, daemons: EmbeddedDaemons
) -> None:
    kernel.run(cell(OPENING, daemons))
    waiting = kernel.begin(
        "import time\nrun.put(image, time=0)\nprint('stored', flush=True)\nwhile True: time.sleep(0.01)"
    )
    waiting.wait_for("stored")
    kernel.interrupt()
    assert waiting.finish().error
    kernel.run("run.put(image + 1, time=1)\nrun.close()\nassert run.receipt.complete")
    assert check_frames(daemons) == 2


def test_a_restart_ends_the_run_which_the_next_kernel_resumes(kernel: NotebookKernel, daemons: EmbeddedDaemons) -> None:
    kernel.run(cell(OPENING, daemons))
    pid = daemons.pid
    kernel.run("for n in range(3): run.put(image + n, time=n)")
    kernel.restart()
    until(lambda: state_of(daemons.data / "cells")["state"] == "ERRORED", "the run has ended", DEADLINE_S)
    assert state_of(daemons.data / "cells")["reason"] == "interpreter exit"
    assert check_frames(daemons) == 3
    resume(kernel, daemons)
    assert daemons.pid == pid


def test_a_killed_kernel_leaves_its_run_to_the_grace_time(kernel: NotebookKernel, daemons: EmbeddedDaemons) -> None:
    kernel.run(cell(OPENING, daemons))
    pid = daemons.pid
    kernel.begin(HANGING.replace("with run", "if run")).wait_for("stored")
    kernel.restart(now=True)
    until(lambda: state_of(daemons.data / "cells")["state"] == "INTERRUPTED", "the grace time is over", DEADLINE_S)
    assert check_frames(daemons) >= 3
    resume(kernel, daemons)
    assert daemons.pid == pid


def test_the_cell_shows_why_no_daemon_starts(kernel: NotebookKernel, daemons: EmbeddedDaemons) -> None:
    daemons.config.write_text("memory_mb = 1\n", encoding="utf-8")
    shown = kernel.begin(cell(OPENING, daemons)).finish().error
    assert f"DaemonUnavailable: cannot start a daemon for {daemons.data}: it ended with exit code 78" in shown
    assert f"log {daemons.data / LOG_NAME}:" in shown
    log = daemons.log.splitlines()
    assert "memory_mb: Input should be greater than or equal to 16" in log[-1]
    assert f"  {log[-1]}" in shown


def test_an_interrupt_while_the_daemon_is_waited_for(kernel: NotebookKernel, daemons: EmbeddedDaemons) -> None:
    """The notebook is free at once, and the next attempt gets the daemon."""
    opening = cell(OPENING, daemons)
    kernel.run("import acqstream, numpy\nacqstream.create")  # numpy cannot be loaded again after half an import
    with DirectoryLock(str(daemons.data)):  # as a daemon that recovers datasets: it does not report where it listens
        waiting = kernel.begin(f"print('waiting', flush=True)\n{opening}")
        waiting.wait_for("waiting")
        kernel.interrupt()
        assert "KeyboardInterrupt" in waiting.finish().error
    kernel.run(f"{opening}\nrun.put(image, time=0)\nrun.close()")
    assert check_frames(daemons) == 1


def test_a_run_its_receipt_and_its_dataset_are_shown_with_a_picture(
    kernel: NotebookKernel, daemons: EmbeddedDaemons
) -> None:
    def shown(text: str) -> str:
        one = kernel.begin(text).finish()
        assert not one.error, one.error
        assert one.shown.count("<img") <= 1
        assert "<script" not in one.shown
        assert "http" not in one.shown, "no request leaves"
        assert len(one.shown) < 45_000
        return one.shown

    kernel.run(cell(OPENING, daemons).replace("patience_s", 'mirrors=["n5"], expect=3, patience_s'))
    assert "no picture: " in shown("run"), "no frame yet"
    kernel.run("import time\nrun.put(image, time=0)")
    kernel.run("while run.progress.durable < 1 or 'of 3 frames safe' not in str(run): time.sleep(0.01)")
    growing = shown("run")
    assert "of 3 frames safe" in growing
    assert 'src="data:image/png;base64,' in growing
    assert "growing" in shown("ds = acqstream.open(run.path)\nds")
    kernel.run("run.put(image + 1, time=1)\nrun.close()")
    kernel.run("while 'n5: complete, 2 frames' not in str(run.receipt): time.sleep(0.01)")  # it was under way
    kernel.run("run.wait_for_mirrors()")
    assert kernel.run("print(run.receipt)").splitlines()[0] == "complete"
    assert "n5: complete, 2 frames" in kernel.run("print(run.receipt)")
    for text in ("run", "run.receipt", "ds.refresh()\nds", "ds.receipt"):
        ended = shown(text)
        assert "n5: complete, 2 frames" in ended, text
        assert 'src="data:image/png;base64,' in ended, text
    for stack in (daemons.data / "cells").glob("*.tif"):
        stack.write_bytes(stack.read_bytes()[:100])
    for text in ("run", "run.receipt", "ds"):
        damaged = shown(text)
        assert "no picture: " in damaged, text
        assert "complete" in damaged, text
