"""Datasets of Pycro-Manager's own writers are followed while they grow: the Java back end's, and the Python one's."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.formats.ndtiff import completion
from acqstream.formats.ndtiff.index_entries import parse_entries
from tests.live import programs

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "ndtiff"
RESERVED_BYTES = 2**32  # of a stack file that is being written: sparse
WAIT_S = 50.0


class JavaWriter:
    """Writes a finished set of the Java writer again, frame by frame, as that writer did."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target
        self._data = (source / "NDTiff.index").read_bytes()
        batch = parse_entries(self._data)
        self._names = [name.decode() for name in batch.names]
        self._ends = [*batch.offsets[1:], batch.consumed]
        target.mkdir()
        self._begin_stack(self._names[0])
        (target / "NDTiff.index").touch()

    def frames(self) -> Iterator[int]:
        """Write one frame each; its number."""
        start = 0
        for number, end in enumerate(self._ends):
            if number and self._names[number] != self._names[number - 1]:
                self._end_stack(self._names[number - 1])
                time.sleep(0.05)  # a reader looks between the two files
                self._begin_stack(self._names[number])
            with (self._target / "NDTiff.index").open("ab") as index:
                index.write(self._data[start:end])
            start = end
            yield number

    def finish(self) -> None:
        self._end_stack(self._names[-1])
        for extra in self._source.glob("*.txt"):
            shutil.copy(extra, self._target)

    def _begin_stack(self, name: str) -> None:
        with (self._target / name).open("wb") as stack:
            stack.write((self._source / name).read_bytes())
            stack.truncate(RESERVED_BYTES)

    def _end_stack(self, name: str) -> None:
        with (self._target / name).open("r+b") as stack:
            stack.truncate((self._source / name).stat().st_size)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["java_uint16", "java_rollover"])
def test_a_set_of_the_java_writer(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the small files of the set that rolls over were nearly 4 GiB.
    monkeypatch.setattr(completion, "ROLLOVER_MARGIN_BYTES", RESERVED_BYTES if name == "java_rollover" else 0)
    monkeypatch.setattr(completion, "ROLLOVER_S", 3600.0)  # until all is written
    writer = JavaWriter(GOLDEN / name / "data", tmp_path / "data")
    seen_by_reader = threading.Semaphore(0)

    def write() -> None:
        for _ in writer.frames():
            assert seen_by_reader.acquire(timeout=WAIT_S)  # each is seen before there is another
        writer.finish()
        monkeypatch.setattr(completion, "ROLLOVER_S", 0.0)

    with (
        acqstream.open(tmp_path / "data") as dataset,
        acqstream.open(GOLDEN / name / "data") as whole,
    ):
        thread = threading.Thread(target=write)
        thread.start()
        keys = []
        for key in dataset.follow(timeout_s=WAIT_S, poll_s=0.001):
            assert np.array_equal(dataset.read_frame(key), whole.read_frame(key))
            assert dataset.read_metadata(key) == whole.read_metadata(key)
            keys.append(key)
            seen_by_reader.release()
        thread.join()
        assert keys == list(whole.keys())
        assert dataset.complete


PYTHON_WRITER = """
import sys
import numpy
from ndstorage import NDTiffDataset
folder, frames = sys.argv[1], int(sys.argv[2])
dataset = NDTiffDataset(folder, name="cells", writable=True, summary_metadata={"Prefix": "cells"})
for number in range(frames):
    dataset.put_image({"time": number, "channel": "DAPI"}, numpy.full((16, 20), number, "uint16"), {"number": number})
print(dataset.path, flush=True)
sys.stdin.readline()
for number in range(frames, frames + 5):
    dataset.put_image({"time": number, "channel": "DAPI"}, numpy.full((16, 20), number, "uint16"), {"number": number})
dataset.finish()
dataset.close()
"""


@pytest.mark.slow
def test_a_set_of_the_python_writer_whose_index_comes_in_blocks(tmp_path: Path) -> None:
    pytest.importorskip("ndstorage")
    writer = programs.start(PYTHON_WRITER, str(tmp_path), "300")
    try:
        path = programs.line_of(writer)
        times: list[object] = []
        with acqstream.open(path) as dataset:
            for key in dataset.follow(timeout_s=20, poll_s=0.005):
                assert (dataset.read_frame(key) == key["time"]).all()
                assert dataset.read_metadata(key)["number"] == key["time"]
                if not times:  # while the writer holds back the rest of its index
                    assert not dataset.complete
                    assert 0 < len(list(dataset.keys())) < 300
                    assert writer.stdin is not None
                    writer.stdin.write("\n")
                    writer.stdin.flush()
                times.append(key["time"])
            assert times == list(range(305))
            assert dataset.complete
        code, errors = programs.end(writer)
        assert code == 0, errors
    finally:
        programs.kill(writer)
