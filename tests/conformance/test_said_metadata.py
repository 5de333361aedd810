"""All that is said of a frame, on every way into the files and out of them: each cell is one odd frame on one way.

What is read is compared with what was given to the byte of its JSON, with the capture times in metadata and journal.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acqstream
from acqstream.client.pycromanager import forward
from acqstream.client.run import Run
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.formats.ndtiff.reader import NDTiffReader
from acqstream.integrity.recover import recover
from acqstream.integrity.repair import repair
from acqstream.integrity.verify import verify
from acqstream.log.journal import HEADER_BYTES, JOURNAL_NAME, RECORD_BYTES
from acqstream.log.journal_file import read_journal
from acqstream.model.metadata import dump_ascii
from tests.conformance.odd_metadata import ODD_METADATA, SUMMARIES, Odd
from tests.export.sample_exports import export
from tests.live.daemon_process import DaemonProcess
from tests.waiting import HANG_S, until

COUNT = len(ODD_METADATA)
IMAGE = np.zeros((16, 16), "u2")
DEPEND_ON_DEPTH = {"metadata that fail", "deep", "too deep"}  # the hook has them one level deeper
TIMES_NS = [1_790_000_000_000_000_001 + 999_999_937 * number for number in range(COUNT)]


def put_all(run: Run, first: int = 0, end: int = COUNT) -> None:
    for number in range(first, end):
        run.put(IMAGE, time=number, meta=ODD_METADATA[number].given(), time_ns=TIMES_NS[number])


def sent_by(**options: Any) -> Callable[[DaemonProcess], Path]:
    def way(daemon: DaemonProcess) -> Path:
        with acqstream.create("cells", endpoint=daemon.endpoint, on_exists="number", **options) as run:
            put_all(run)
        run.wait_for_mirrors(HANG_S)
        return Path(run.path)

    return way


def by_reserve(daemon: DaemonProcess) -> Path:
    with acqstream.create("reserved", endpoint=daemon.endpoint) as run:
        for number, odd in enumerate(ODD_METADATA):
            with run.reserve((16, 16), "u2", time=number, meta=odd.given(), time_ns=TIMES_NS[number]) as image:
                image[:] = 0
    return Path(run.path)


def by_pycromanager(daemon: DaemonProcess) -> Path:
    """As Pycro-Manager's hook gives them: beside keys of its own."""
    with acqstream.create("hook", endpoint=daemon.endpoint) as run:
        take = forward(run)
        for number, odd in enumerate(ODD_METADATA):
            take(IMAGE, {"Axes": {"time": number}, "odd": odd.given()}, None)
    return Path(run.path)


def resumed(daemon: DaemonProcess) -> Path:
    with acqstream.create("resumed", endpoint=daemon.endpoint) as run:
        put_all(run, 0, COUNT // 2)
        run.close("error", "to be resumed")
    with acqstream.create("resumed", endpoint=daemon.endpoint, resume=True) as run:
        put_all(run, COUNT // 2)
    return Path(run.path)


def killed(daemon: DaemonProcess) -> Path:
    """The daemon is killed, recovers the run, and its producer goes on."""
    with acqstream.create("killed", endpoint=daemon.endpoint, patience_s=HANG_S) as run:
        put_all(run, 0, COUNT // 2)
        until(lambda: run.progress.published > 0, "some are published")
        daemon.kill()
        put_all(run, COUNT // 2)
        daemon.start()
    return Path(run.path)


def without(*lost: str) -> Callable[[DaemonProcess], Path]:
    """The files as a killed daemon leaves them, without the end of index or journal, or without the whole index."""

    def way(daemon: DaemonProcess) -> Path:
        run = acqstream.create("crashed", endpoint=daemon.endpoint, on_exists="number", patience_s=HANG_S)
        put_all(run)
        until(lambda: run.progress.durable == COUNT, "all is durable")
        copy = shutil.copytree(run.path, Path(f"{run.path} copy"))
        run.close()
        index, journal = (copy / name for name in (INDEX_NAME, JOURNAL_NAME))
        if "index end" in lost:
            index.write_bytes(index.read_bytes()[: -index.stat().st_size // 3])
        if "journal end" in lost:
            journal.write_bytes(journal.read_bytes()[: HEADER_BYTES + COUNT // 2 * RECORD_BYTES])
        if "index" in lost:
            index.unlink()
            repair(copy, force=True)
        else:
            report = recover(copy)
            assert report is not None
            assert report.published == COUNT
        return copy

    return way


def mirrored_again(daemon: DaemonProcess) -> Path:
    return sent_by(mirrors=["n5", "ome-zarr"])(daemon)


WAYS: dict[str, Callable[[DaemonProcess], Path]] = {
    "tcp": sent_by(transport="tcp"),
    "ipc": sent_by(transport="ipc"),
    "shared memory": sent_by(transport="shm"),
    "reserve": by_reserve,
    "mirrors": mirrored_again,
    "pycromanager": by_pycromanager,
    "resumed": resumed,
    "killed": killed,
    "index end lost": without("index end"),
    "journal end lost": without("journal end"),
    "index rebuilt": without("index"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The dataset of a way, made once."""
    with DaemonProcess(tmp_path_factory.mktemp("said") / "data") as daemon:
        made = cache(lambda way: WAYS[way](daemon))
        made("killed")  # here, as it starts a process that outlives its test
        yield made


CELLS = [
    pytest.param(way, number, id=f"{way}, {odd.name}")
    for way in WAYS
    for number, odd in enumerate(ODD_METADATA)
    if way != "pycromanager" or odd.name not in DEPEND_ON_DEPTH
]


@pytest.mark.thinned(4)
@pytest.mark.promise("metadata")
@pytest.mark.parametrize(("way", "number"), CELLS)
def test_a_frame(written: Callable[[str], Path], way: str, number: int) -> None:
    folder, expected = written(way), ODD_METADATA[number].expected
    reader = NDTiffReader(folder, folder)
    stored = reader.metadata_bytes(reader.row({"time": number}))
    values = reader.read_metadata(reader.row({"time": number}))
    reader.close()
    if way == "pycromanager":
        assert dump_ascii(values["odd"]) == dump_ascii(expected)
        assert dump_ascii({"odd": expected})[1:-1] in stored
        return
    own = {key: value for key, value in expected.items() if key not in ("Axes", "time_ns")}
    assert stored == dump_ascii({**own, "time_ns": TIMES_NS[number], "Axes": {"time": number}})


@pytest.mark.promise("metadata")
@pytest.mark.parametrize("way", WAYS)
def test_times_counts_and_proof(written: Callable[[str], Path], way: str) -> None:
    folder = written(way)
    records = read_journal(folder / JOURNAL_NAME).sound_frames
    with acqstream.open(folder) as dataset:
        assert [key["time"] for key in dataset.keys()] == list(range(COUNT))  # noqa: SIM118 - no mapping
        times = dataset.frame_times().astype(int).tolist()
    assert times == records["time_ns"].tolist()
    assert records["timed"].all()
    if way == "pycromanager":
        assert times == sorted(times)
    else:
        assert times == TIMES_NS
    assert records["metadata_sent"].sum() == (COUNT // 2 if way == "journal end lost" else COUNT)
    result = verify(folder)
    assert result.problem_count == 0
    own = COUNT - int(records["metadata_sent"].sum())
    proof = next(text for text in result.proved if text.startswith("metadata:"))
    assert f"those of {COUNT} frames, {COUNT} with a capture time" in proof
    assert proof.endswith(f"{COUNT - own} of these checksums were taken in the producer, {own} only in the daemon")


def test_what_was_changed_is_warned_of(written: Callable[[str], Path], tmp_path: Path) -> None:
    """One warning of each kind for a run, however many frames."""
    with DaemonProcess(tmp_path / "data") as daemon, acqstream.create("cells", endpoint=daemon.endpoint) as run:
        put_all(run)
        codes = [warning.code for warning in run.warnings]
    assert codes.count("nan_in_metadata") == codes.count("metadata_as_text") == 1


@pytest.mark.thinned(3)
@pytest.mark.parametrize("odd", [*ODD_METADATA, *SUMMARIES], ids=lambda odd: odd.name)
def test_a_summary(written: Callable[[str], Path], odd: Odd) -> None:
    folder = written("tcp")  # for its daemon
    data = folder.parent
    with acqstream.create("summary", data=data, on_exists="number", summary=odd.given()) as run:
        run.put(IMAGE, time=0)
    with acqstream.open(run.path) as dataset:
        stored = dict(dataset.summary_metadata)
    added = {key: stored.pop(key) for key in ("AxisOrder", "TiledImageStorage") if key not in odd.expected}
    assert added.keys() <= {"AxisOrder", "TiledImageStorage"}
    assert dump_ascii(stored) == dump_ascii(odd.expected)


def test_an_export_has_the_times(written: Callable[[str], Path], tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    h5py = pytest.importorskip("h5py")
    target = tmp_path / "cells.h5"
    export(written("tcp"), "hdf5", target)
    with h5py.File(target) as file:
        assert file["metadata/time_ns"][:].tolist() == TIMES_NS
    with xarray.open_dataset(target, group="metadata", engine="h5netcdf") as dataset:
        assert dataset["time_ns"].values.astype("M8[ns]").astype(int).tolist() == TIMES_NS


def test_a_changed_byte_of_metadata_is_found(written: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(written("tcp"), tmp_path / "copy")
    (stack,) = folder.glob("*.tif")
    content = stack.read_bytes()
    text = dump_ascii({"time_ns": TIMES_NS[COUNT // 2]})[1:-1]
    assert content.count(text) == 1
    stack.write_bytes(content.replace(text, text[:-1] + (b"1" if text[-1:] != b"1" else b"2")))
    report = verify(folder)
    assert report.problem_count == 1
    assert "metadata hash to" in report.problems[0].text
    with acqstream.open(folder) as dataset:
        assert len(dataset.frame_times()) == COUNT


def test_the_table_has_forty_frames() -> None:
    assert COUNT >= 40
    assert len({odd.name for odd in ODD_METADATA}) == COUNT
    for odd in ODD_METADATA:
        json.loads(dump_ascii(odd.expected))
