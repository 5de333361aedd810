"""No tail, and no entry repeated, moved or foreign, of index, journal or stack costs a frame the journal proves."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import acqstream
from acqstream.errors import AcqStreamError
from acqstream.formats.ndtiff.index_entries import parse_entries
from acqstream.integrity.recover import recover
from acqstream.integrity.repair import repair
from acqstream.log import journal
from acqstream.log.journal_file import read_journal
from tests.integrity.repair.damaged_sets import HastyDisk
from tests.log.crashed import crash
from tests.log.make_frames import Frame, frame_of, write_log

INDEX, JOURNAL, STACK = "NDTiff.index", journal.JOURNAL_NAME, "cells_NDTiffStack.tif"
FRAMES = [frame_of(n, (6, 7), axes={"time": 1000 + n}) for n in range(8)]


def of_another_run(n: int) -> Frame:
    """A frame with its page at the same place as frame `n`, of other pixels and axes."""
    frame, image = frame_of(n, (6, 7), axes={"time": 5000 + n}), frame_of(n + 50, (6, 7)).image
    return Frame(frame.header._replace(checksum=xxhash.xxh3_64_intdigest(image.tobytes())), image, frame.metadata)


OTHERS = [of_another_run(n) for n in range(8)]


def entries_of(folder: Path) -> list[bytes]:
    content = (folder / INDEX).read_bytes()
    offsets = [*parse_entries(content).offsets, len(content)]
    return [content[start:end] for start, end in itertools.pairwise(offsets)]


def records_of(folder: Path) -> list[bytes]:
    content = (folder / JOURNAL).read_bytes()[journal.HEADER_BYTES :]
    return [content[at : at + journal.RECORD_BYTES] for at in range(0, len(content), journal.RECORD_BYTES)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    write_log(root / "closed", FRAMES)
    return {
        "closed": root / "closed",
        "killed": crash(root / "killed", FRAMES),
        "other": crash(root / "other", OTHERS),
    }


JUNK = st.one_of(
    st.binary(max_size=200),
    st.integers(1, 5000).map(bytes),
    st.sampled_from([b"\xff\xff\xff\x7f" + bytes(60), b"\x0a\0\0\0{", (2**16).to_bytes(4, "little") * 9, b"{" * 70]),
)
PLACE = st.integers(0, 8)
CHANGES = st.one_of(
    st.tuples(st.just("tail"), JUNK, PLACE),
    st.tuples(st.just("cut entry at the end"), st.integers(1, 60), PLACE),
    st.tuples(st.sampled_from(["repeat", "move", "foreign", "instead"]), PLACE, PLACE),
)


def changed(items: list[bytes], others: list[bytes], change: tuple[str, Any, int]) -> bytes:
    """Entries or records after a change."""
    what, value, place = change
    items = list(items)
    if what == "tail":
        return b"".join(items) + bytes(value)
    if what.startswith("cut"):
        return b"".join([*items, others[place % 8][:value]])
    if what == "instead":
        items[place % 8] = others[value % 8]
    elif what == "foreign":
        items.insert(place, others[value % 8])
    else:
        items.insert(place, items.pop(value % 8) if what == "move" else items[value % 8])
    return b"".join(items)


def proved_by_journal(folder: Path) -> set[int]:
    """Numbers of frames whose record is sound and whose pixels match it."""
    if not (folder / JOURNAL).exists():
        return set()
    stack = (folder / STACK).read_bytes()
    return {
        int(record["number"])
        for record in read_journal(folder / JOURNAL, max_damaged=99).sound_frames
        if xxhash.xxh3_64_intdigest(stack[int(record["offset"]) :][: int(record["length"])]) == int(record["checksum"])
    }


def shown(folder: Path) -> set[int]:
    """Numbers of the frames that a reader shows, each as it was stored."""
    known = {frame.axes["time"]: frame for frame in FRAMES}
    with acqstream.open(folder) as dataset:
        keys = list(dataset.keys())
        for key in keys:
            frame = known[key["time"]]  # KeyError: of another run
            assert (dataset.read_frame(key) == frame.image).all()
            assert dataset.read_metadata(key) == frame.metadata
    return {frame.header.number for key in keys for frame in [known[key["time"]]]}


@pytest.mark.parametrize("kind", ["killed", "closed"])
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    index=st.none() | CHANGES,
    record=st.none() | CHANGES,
    tail=st.none() | JUNK,
    gone=st.sampled_from(["", "", "", INDEX]),
)
def test_nothing_gets_worse(
    runs: dict[str, Path], kind: str, index: Any, record: Any, tail: bytes | None, gone: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = shutil.copytree(runs[kind], Path(root, "cells"))
        if index:
            (folder / INDEX).write_bytes(changed(entries_of(folder), entries_of(runs["other"]), index))
        if record:
            head = (folder / JOURNAL).read_bytes()[: journal.HEADER_BYTES]
            (folder / JOURNAL).write_bytes(head + changed(records_of(folder), records_of(runs["other"]), record))
        if tail:
            with (folder / STACK).open("ab") as file:
                file.write(tail)
        if gone:
            (folder / gone).unlink()
        proved = proved_by_journal(folder)
        repaired = shutil.copytree(folder, Path(root, "repaired"))
        if not gone and index and index[0] not in ("foreign", "instead"):
            try:
                assert shown(folder) >= proved
            except AcqStreamError:
                assert index[0] != "tail"
        if kind == "killed":
            recover(folder, HastyDisk())
            assert shown(folder) >= proved
        repair(repaired, disk=HastyDisk())
        assert shown(repaired) >= proved
        assert record or repair(repaired, disk=HastyDisk()).is_whole
