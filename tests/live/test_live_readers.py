"""tensorstore and zarr-python open growing mirrors 10,000 times each: what is announced has the pixels of its frames.

A plane is read as a whole, so a torn chunk, one that is missing, and zeros where data will come are all found. Frames
have no zeros.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
from numpy.typing import NDArray

import acqstream
from tests.live.daemon_process import DaemonProcess
from tests.oracles.webknossos_package import PYTHON, needs_environment
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.slow
SHAPE = (96, 160)
FRAMES = 400
POLLS = 25  # of each reader, for each frame
PROGRAM = Path(__file__).with_name("zarr_polls_program.py")

KINDS: Mapping[str, Mapping[str, Any]] = {
    "ome-zarr raw": {"format": "ome-zarr", "chunks": [1, 48, 64], "levels": 2, "compression": "none"},
    "precomputed shards": {"format": "precomputed", "chunks": [1, 48, 64], "levels": 2, "shards": True},
    "precomputed": {"format": "precomputed", "chunks": [1, 48, 64], "levels": 2},
}
FOLDERS = {"ome-zarr": "cells.ome.zarr", "precomputed": "cells.precomputed"}


def frame_of(number: int) -> NDArray[np.uint16]:
    """As `zarr_polls_program.poll` expects it."""
    return ((np.arange(SHAPE[0] * SHAPE[1]) + number * 977) % 65535 + 1).astype("uint16").reshape(SHAPE)


class Polls:
    """Opens a mirror by tensorstore as often as is asked."""

    def __init__(
        self, read: Callable[[Path, random.Random], tuple[int, int, NDArray[Any]] | None], folder: Path
    ) -> None:
        self.made = self.found = 0
        self.lengths: set[int] = set()
        self._read = read
        self._folder = folder
        self._choice = random.Random(4)

    def poll(self) -> None:
        found = self._read(self._folder, self._choice)
        self.made += 1
        if found is None:
            return
        length, at, plane = found
        self.found += 1
        self.lengths.add(length)
        zeros = int((plane == 0).sum())
        assert np.array_equal(plane, frame_of(at)), f"plane {at} of {length}, {zeros} zeros; poll {self.made}"


def read_zarr(folder: Path, choice: random.Random) -> tuple[int, int, NDArray[Any]] | None:
    if not (folder / "0" / "zarr.json").exists():
        return None
    array = _open({"driver": "zarr3"}, folder / "0")
    length = array.shape[0]
    if not length:
        return None
    at = choice.choice([length - 1, choice.randrange(length)])
    return length, at, array[at].read().result()


def read_precomputed(folder: Path, choice: random.Random) -> tuple[int, int, NDArray[Any]] | None:
    """Of the volume's planes those that our note names: `info` may state more."""
    if not (folder / "info").exists():
        return None
    length = json.loads((folder / "acqstream-volume.json").read_text())["levels"][0]["shape"][-3]
    if not length:
        return None
    at = choice.choice([length - 1, choice.randrange(length)])
    array = _open({"driver": "neuroglancer_precomputed"}, folder)
    return length, at, array[:, :, at, 0].read().result().T


READERS = {"ome-zarr": read_zarr, "precomputed": read_precomputed}


def _open(spec: dict[str, Any], folder: Path) -> Any:
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})
    spec = {**spec, "kvstore": {"driver": "file", "path": str(folder)}}
    return tensorstore.open(spec, read=True, context=context).result()


@contextmanager
def zarr_polls(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [str(PYTHON), "-I", "-W", "ignore", str(PROGRAM), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        yield process
        process.communicate(timeout=HANG_S)


def record(daemon: DaemonProcess, settings: Mapping[str, Any], each: Callable[[], None]) -> None:
    """Record all frames with this mirror; `each` is called after each of them, from the first one in the mirror on."""
    name = str(settings["format"])
    folder, choice = daemon.data / FOLDERS[name], random.Random(6)
    way: dict[str, Any] = {"endpoint": daemon.endpoint, "mirrors": [settings]}
    with acqstream.create("cells", **way) as run:
        for number in range(FRAMES):
            run.put(frame_of(number), time=number)
            if not number:
                until(lambda: READERS[name](folder, choice) is not None, "the mirror has a frame", 60)
            each()
    assert run.receipt is not None
    assert run.receipt.complete
    assert all(one.complete for one in run.wait_for_mirrors(HANG_S))


@pytest.mark.thinned(3)
@pytest.mark.promise("mirrors")
@pytest.mark.parametrize("kind", KINDS)
def test_tensorstore_sees_no_torn_chunk_and_no_zeros(tmp_path: Path, kind: str) -> None:
    settings = KINDS[kind]
    name = str(settings["format"])
    with DaemonProcess(tmp_path / "data") as daemon:
        polls = Polls(READERS[name], daemon.data / FOLDERS[name])

        def poll() -> None:
            for _ in range(POLLS):
                polls.poll()

        record(daemon, settings, poll)
        polls.poll()
    assert polls.made > 10_000
    assert polls.found > 8_000
    assert len(polls.lengths) > 4  # it was looked at while it grew
    assert max(polls.lengths) == FRAMES


@pytest.mark.deep
@needs_environment("zarr 3")
def test_zarr_python_sees_no_torn_chunk_and_no_zeros(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with (
        DaemonProcess(tmp_path / "data") as daemon,
        zarr_polls(daemon.data / FOLDERS["ome-zarr"] / "0") as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def poll() -> None:
            asked.write(f"{POLLS}\n")
            asked.flush()
            told.append(json.loads(answers.readline()))
            assert not told[-1]["wrong"], told[-1]

        record(daemon, KINDS["ome-zarr raw"], poll)
        poll()
    assert sum(one["polls"] for one in told) > 10_000
    assert sum(one["found"] for one in told) > 8_000
    assert len({one["length"] for one in told}) > 4
    assert told[-1]["length"] == FRAMES
