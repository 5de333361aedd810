"""The views of an acquisition, and times without disk use."""

from __future__ import annotations

from pathlib import Path

from acqstream.daemon.acquisition import AcquisitionViews, ActiveAcquisition, Peer
from acqstream.daemon.view_process import ViewProcess
from acqstream.log.log import Log
from acqstream.log.memory import MemoryBudget
from acqstream.model.view_spec import ViewSpec
from acqstream.protocol.encoding import Encoding
from acqstream.protocol.session import Session
from acqstream.storage.handover import map_memory
from acqstream.views.view_run import ViewProgress, ViewState
from tests.log.make_frames import MIB, frames_of, spec_of
from tests.storage.scripted_disk import ScriptedDisk

CLAIMED = 0


def test_without_names_there_is_nothing() -> None:
    process = ViewProcess()
    views = AcquisitionViews(process, (), MemoryBudget(16 * MIB).lend())
    views.begin("cells")
    views.end()
    assert views.table is None
    assert not views.status(5)
    assert not views.texts(5)
    assert process.status().mirrors == ()


def test_at_the_end_nothing_in_memory_is_valid() -> None:
    views = AcquisitionViews(ViewProcess(), (ViewSpec("null"),), MemoryBudget(16 * MIB).lend())
    assert views.table is not None
    assert views.table.descriptor is not None
    words = map_memory(views.table.descriptor).cast("q")
    views.table.claim(4096)
    assert words[CLAIMED] == 4096
    views.begin("cells")
    (job,) = views._jobs.values()
    assert job.is_live
    assert job.memory is not None
    views.end()
    assert words[CLAIMED] > 2**60
    assert job.is_live
    assert [one for one in (job.memory, job.table, job.lent) if one is not None] == []  # the system has it again


def test_what_the_receipt_says() -> None:
    process = ViewProcess()
    views = AcquisitionViews(process, (ViewSpec("null"),), MemoryBudget(16 * MIB).lend())
    views.begin("cells")
    job = next(iter(process._jobs.values()))
    assert views.texts(300) == {"null": "under way: 0 of 300 frames"}
    job.progress = ViewProgress(ViewState.WAITING, 120, 120)
    assert views.texts(300) == {"null": "under way: 120 of 300 frames"}
    assert views.status(300)["null"].behind == 180
    job.progress = ViewProgress(ViewState.WAITING, 300, 300)
    assert views.texts(300) == {"null": "complete"}
    job.fail("after 300 frames: no such luck")
    assert views.texts(300) == {"null": "failed after 300 frames: no such luck"}


def test_what_views_need_of_the_disk() -> None:
    process = ViewProcess()
    views = AcquisitionViews(process, (ViewSpec("null"), ViewSpec("null", name="other")), MemoryBudget(16 * MIB).lend())
    assert views.disk_need(10) == (0, 0)
    views.begin("cells")
    one, other = process._jobs.values()
    one.progress = ViewProgress(ViewState.RUNNING, 120, 120, bytes_per_frame=5.0)
    other.progress = ViewProgress(ViewState.HELD, 300, 300, bytes_per_frame=7.0)
    assert views.disk_need(300) == (12, 180 * 5)
    assert views.disk_need(290) == (12, 170 * 5)  # one has counted more than the log told
    assert "bytes_per_frame" not in str(views.status(300))
    one.fail("no such luck")
    assert views.disk_need(300) == (7, 0)


def test_more_than_a_batch_in_the_queue_is_a_backlog(tmp_path: Path) -> None:
    disk = ScriptedDisk()
    stall = disk.stall("pwritev", 2, part="Stack")  # the first one writes the header
    budget = MemoryBudget(64 * MIB)
    share = budget.lend()
    log = Log(tmp_path / "cells", spec_of(), memory=share.view, disk=disk)
    log.wait_until_open()
    views = AcquisitionViews(ViewProcess(), (), share)
    acquisition = ActiveAcquisition(Session(grace_s=1.0), log, share, views, Peer(b"", Encoding.JSON), "cells")
    try:
        assert not acquisition.has_backlog
        sent = 0
        for frame in frames_of(12, (600, 500)):
            log.append(frame.header, frame.image)
            sent += frame.image.nbytes
            assert acquisition.has_backlog == (sent > share.length // 4)
        assert acquisition.has_backlog
        stall.go.set()
        assert log.wait_for_published(12)
        assert not acquisition.has_backlog
    finally:
        stall.go.set()
        log.close()
