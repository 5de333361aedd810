"""Memory of a producer, the log, and views in their own process, on each system that shares memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.client.daemon_requests import fetch_status
from acqstream.client.run import Run
from acqstream.errors import AcquisitionRefused
from acqstream.integrity.verify import verify
from acqstream.model.status import ViewStatus
from acqstream.storage.platform import memory_listener
from acqstream.views.checkpoint import read_checkpoint, view_folder
from tests.live.daemon_process import DaemonProcess
from tests.live.stored import check_frames, image_of
from tests.mirrors.mirror_cases import read_plain
from tests.views.pyramid_cases import check_levels, grid, shuffled, tiles_of
from tests.views.view_sums import sums_of
from tests.waiting import until

pytestmark = pytest.mark.skipif(not memory_listener.is_possible(), reason="this system shares no memory")

LARGE = (400, 401)  # 320,800 bytes: written from the producer's memory, and its last block is not full
SMALL = (120, 200)
BURST = 10
FRAMES, FIRST = 24, 12
MIRROR = {"format": "n5", "layout": "array", "compression": "raw", "blocks": [4, 64, 64]}
AXES = [{"name": "z", "size": FRAMES}]
OVERLAP = (4, 6)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("sharing") / "data") as daemon:
        yield daemon


def view_of(daemon: DaemonProcess, name: str) -> ViewStatus | None:
    """The unfinished view of the dataset with this name."""
    views = fetch_status(daemon.endpoint).views
    assert views is not None
    assert views.memory == "shared"
    return next((one for one in views.mirrors if Path(one.path).name == name), None)


def is_taken(daemon: DaemonProcess, name: str, count: int) -> bool:
    """True once the view has taken `count` frames, all of them from memory."""
    view = view_of(daemon, name)
    assert view is None or (not view.reason and not view.from_stack), view
    return view is not None and view.from_memory >= count


def wait_until_complete(daemon: DaemonProcess, name: str) -> None:
    """Until its view is complete; the dataset is proved."""
    until(lambda: view_of(daemon, name) is None, f"the view of {name} is complete")
    assert verify(daemon.data / name).ok


def test_a_mirror_and_a_pyramid_take_frames_from_memory_while_both_record(shared: DaemonProcess) -> None:
    """Frames of these sizes lie in the daemon's memory until others need their place."""
    tiles = tiles_of(shuffled(grid(4, 6, top=-2), 2), (40, 50))
    with (
        acqstream.create(
            "cells", endpoint=shared.endpoint, transport="shm", axes=AXES, mirrors=[MIRROR], buffer_mb=8
        ) as run,
        acqstream.create(
            "scan", endpoint=shared.endpoint, transport="shm", tiles={"overlap": OVERLAP}, buffer_mb=8
        ) as scan,
    ):
        for one in (run, scan):
            assert (one.transport, one.transport_why) == ("shm", "")
        for number, tile in enumerate(tiles):
            run.put(image_of(number, SMALL), z=number)
            scan.put(tile.image, tile.axes)
            if number == FIRST - 1:  # while both record
                until(lambda: is_taken(shared, "cells", FIRST), "the mirror has taken frames from memory")
                until(lambda: is_taken(shared, "scan", FIRST), "the pyramid has taken frames from memory")
                assert any((shared.data / "cells.n5" / "s0").iterdir())
    for name in ("cells", "scan"):
        wait_until_complete(shared, name)
    images = np.stack([image_of(number, SMALL) for number in range(FRAMES)])
    assert np.array_equal(read_plain(shared.data / "cells.n5"), images)
    with acqstream.open(shared.data / "cells") as dataset:
        for number, image in enumerate(images):
            assert np.array_equal(dataset.read_frame(z=number), image), number
    check_levels(shared.data / "scan", tiles, 3, OVERLAP)


@pytest.mark.timeout_s(180)
def test_a_view_takes_large_frames_from_the_memory_of_their_producer(shared: DaemonProcess) -> None:
    """Also after their publication, for as long as the producer leaves them there."""
    with acqstream.create("large", endpoint=shared.endpoint, transport="shm", mirrors=["null"], buffer_mb=16) as run:

        def taken() -> tuple[int, int]:
            view = view_of(shared, "large")
            return (0, 0) if view is None else (view.from_memory, view.from_stack)

        run.put(image_of(0, LARGE), time=0)  # it may come before the view knows of that memory
        first = until(lambda: sum(taken()) == 1 and taken(), "the view has taken the first frame")
        for number in range(1, FRAMES):
            run.put(image_of(number, LARGE), time=number)
            while run.progress.published <= number:
                time.sleep(0.001)
        until(lambda: sum(taken()) == FRAMES, "the view has taken all frames")
        assert taken() == (first[0] + FRAMES - 1, first[1])
    wait_until_complete(shared, "large")
    assert check_frames(run.path, lambda _: LARGE, oracle=False) == FRAMES
    check_sums(run, FRAMES)


def check_sums(run: Run, count: int) -> None:
    """What the view has seen of the frames."""
    saved = read_checkpoint(view_folder(Path(run.path), "null"))
    assert saved is not None
    assert saved.state == sums_of(image_of(number, LARGE) for number in range(count))


@pytest.mark.timeout_s(180)
@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_frame_that_is_overwritten_while_it_is_read_is_read_again(shared: DaemonProcess, is_reserved: bool) -> None:
    """The buffer holds six frames, and two hundred go through it as fast as they can."""
    count, name = 200, f"hasty{is_reserved:d}"
    with acqstream.create(name, endpoint=shared.endpoint, transport="shm", mirrors=["null"], buffer_mb=2) as run:
        for number in range(count):
            image = image_of(number, LARGE)
            if is_reserved:
                with run.reserve(LARGE, "uint16", time=number) as place:
                    place[...] = image
            else:
                run.put(image, time=number)
    wait_until_complete(shared, name)
    check_sums(run, count)


KILLED = """
import itertools
import sys
import acqstream
from acqstream.simulate import pattern
run = acqstream.create("killed", endpoint=sys.argv[1], transport="shm", buffer_mb=16)
for number in itertools.count():
    run.put(pattern.frame(number, (400, 401), "uint16"), time=number)
    if run.progress.received >= 5:
        print(number, flush=True)
"""


def resume(daemon: DaemonProcess) -> Run | None:
    """None while the daemon has not noticed that the producer is gone."""
    try:
        return acqstream.create("killed", endpoint=daemon.endpoint, transport="shm", resume=True, buffer_mb=16)
    except AcquisitionRefused as error:
        if "still connected" in str(error):
            return None
        raise


def test_the_frames_of_a_producer_that_is_killed_are_written_from_its_memory(shared: DaemonProcess) -> None:
    """The daemon has a handle of its own. Another producer continues, from memory of its own."""
    arguments = [sys.executable, "-c", KILLED, shared.endpoint]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        assert producer.stdout.readline(), "it ended early"
        producer.kill()
    run: Run = until(lambda: resume(shared), "the daemon has noticed")
    with run:
        assert run.transport == "shm"
        assert run.next >= 5
        end = run.next + BURST
        for number in range(run.next, end):
            run.put(image_of(number, LARGE), time=number)
    assert check_frames(run.path, lambda _: LARGE, oracle=False) == end
    assert verify(Path(run.path)).ok
