"""A disk that stalls while the daemon reads for one client: the frames of others flow."""

from __future__ import annotations

from pathlib import Path

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of
from tests.live.wire_client import WireClient, new_dataset_id
from tests.waiting import until

SHAPE = (128, 128)
COUNT = 50
# While the trigger exists, reads of the states and of the index stall; `reached` is made when one has begun to.
STALLING_READS = """
import time
from pathlib import Path
from acqstream.daemon import open_requests
from acqstream.log import log

trigger, reached = Path({trigger!r}), Path({reached!r})

def stalling(read):
    def wait_and_read(*arguments):
        while trigger.exists():
            (reached.parent / (reached.name + read.__name__)).touch()
            time.sleep(0.005)
        return read(*arguments)
    return wait_and_read

open_requests.read_state = stalling(open_requests.read_state)
log.read_key_page = stalling(log.read_key_page)
"""


def store_old(daemon: DaemonProcess) -> str:
    """Store a dataset of one frame; its id."""
    with acqstream.create("old", endpoint=daemon.endpoint) as old:
        old.put(image_of(0, SHAPE), time=0)
    assert old.receipt is not None
    return old.receipt.dataset_id


def ask_and_stall(asker: WireClient, trigger: Path, reached: Path) -> str:
    """Record a frame, ask for the stored ones, and return once that read stalls; the id of the dataset."""
    ds = new_dataset_id()
    asker.open("asked", ds)
    asker.frame(ds, 0, image_of(0, SHAPE).tobytes(), SHAPE, {"time": 0})
    trigger.touch()
    asker.send("stored", ds=ds)
    until(reached.with_name("reached-read_key_page").exists, "the read of the index stalls")
    return ds


def test_frames_flow_while_reads_for_another_client_stall(tmp_path: Path) -> None:
    trigger, reached = tmp_path / "stall", tmp_path / "reached-"
    prelude = STALLING_READS.format(trigger=str(trigger), reached=str(reached))
    with DaemonProcess(tmp_path / "data", prelude=prelude, grace_s=60) as daemon, WireClient(daemon.endpoint) as asker:
        old_id = store_old(daemon)
        ask_and_stall(asker, trigger, reached)
        asker.send("mirrors", ds=old_id, name="old")
        with acqstream.create("cells", endpoint=daemon.endpoint) as run:
            for number in range(COUNT):
                run.put(image_of(number, SHAPE), time=number)
            until(lambda: run.progress.published == COUNT, "all frames are published beside the stalled reads")
        assert run.receipt is not None
        assert run.receipt.complete
        assert trigger.exists()
        trigger.unlink()
        page = asker.wait_for("stored")
        assert page["keys"] == [{"time": 0}]
        told = asker.wait_for("mirrors")
        assert (told["ds"], told["state"], told["mirrors"]) == (old_id, "COMPLETE", [])
    assert check_frames(run.path, lambda _: SHAPE) == COUNT


def test_a_read_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    """The request is refused; the acquisition is not."""
    trigger, reached = tmp_path / "stall", tmp_path / "reached-"
    prelude = STALLING_READS.format(trigger=str(trigger), reached=str(reached))
    prelude += "\nfrom acqstream.daemon import resources\nresources.READ_S = 0.2\n"
    with DaemonProcess(tmp_path / "data", prelude=prelude, grace_s=60) as daemon, WireClient(daemon.endpoint) as asker:
        ds = new_dataset_id()
        asker.open("asked", ds)
        asker.frame(ds, 0, image_of(0, SHAPE).tobytes(), SHAPE, {"time": 0})
        trigger.touch()
        asker.send("stored", ds=ds)
        error = asker.wait_for("error")
        assert (error["code"], error["fatal"], error["ds"]) == ("io_error", False, ds)
        assert "did not answer within 0.2 s" in error["text"]
        trigger.unlink()
        asker.frame(ds, 1, image_of(1, SHAPE).tobytes(), SHAPE, {"time": 1})
        asker.send("stored", ds=ds)
        assert asker.wait_for("stored")["keys"] == [{"time": 0}, {"time": 1}]


def test_a_page_that_another_producer_asked_for_is_not_sent(tmp_path: Path) -> None:
    """The acquisition was resumed by a second producer before the read for the first one returned."""
    trigger, reached = tmp_path / "stall", tmp_path / "reached-"
    prelude = STALLING_READS.format(trigger=str(trigger), reached=str(reached))
    with (
        DaemonProcess(tmp_path / "data", prelude=prelude, grace_s=60) as daemon,
        WireClient(daemon.endpoint) as first,
        WireClient(daemon.endpoint) as second,
    ):
        old_id = store_old(daemon)
        ds = ask_and_stall(first, trigger, reached)
        assert second.open("asked", ds, resume=True, epoch=1)["t"] == "opened"
        trigger.unlink()
        second.send("mirrors", ds=old_id, name="old")  # read after the page, by the same thread
        assert second.wait_for("stored", "mirrors", "error")["t"] == "mirrors"


def test_a_producer_whose_acquisition_was_resumed_is_refused(tmp_path: Path) -> None:
    """A producer that was stopped for a while and comes back later than its successor."""
    with DaemonProcess(tmp_path / "data", grace_s=60) as daemon, WireClient(daemon.endpoint) as first:
        ds = new_dataset_id()
        first.open("cells", ds)
        with WireClient(daemon.endpoint) as successor, WireClient(daemon.endpoint) as late:
            assert successor.open("cells", ds, resume=True, epoch=5)["t"] == "opened"
            answer = late.open("cells", ds, resume=True, epoch=4)
            assert (answer["t"], answer["code"]) == ("error", "denied")
            assert "resumed by another producer" in answer["text"]
            successor.send("ping", ds=ds)
            assert successor.wait_for("status", "error")["t"] == "status"
