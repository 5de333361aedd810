"""A large dataset is verified in parts: the same is proved, and told of damage, as at once, in little memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.integrity import verify as verify_module
from acqstream.integrity.record_check import JournalFacts
from acqstream.integrity.verify import verify
from acqstream.log.journal import JOURNAL_NAME, encode_frame, encode_hole, encode_journal_header
from acqstream.log.journal_file import JournalContent, JournalWalk, read_journal
from tests.integrity.verification.test_verification import flip
from tests.log.make_frames import LEAST_LIMIT_BYTES, frame_of, start_log, write_log
from tests.log.read_back import read_pages, stack_paths


def gapped_log(folder: Path) -> None:
    """Large frames and groups of small ones in several stack files, with gaps."""
    with start_log(folder, limit=LEAST_LIMIT_BYTES) as log:
        for number in range(0, 3000, 3):
            large = frame_of(number, (64, 96), axes={"time": number, "channel": str(number % 2)})
            small = frame_of(number + 2, (3, 4))
            log.append(large.header, large.image)
            log.skip(number + 1, 1, "dark")
            if number % 1000:
                log.append(small.header, small.image)
            else:
                log.skip(number + 2, 1, "lost")
        log.begin_close(sent=3000)


def small_log(folder: Path) -> None:
    """Groups of many frames, whose pixels come before all their metadata."""
    write_log(folder, (frame_of(number, (3, 4)) for number in range(12_000)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("part_rows", [1, 7, 100, 1000])
@pytest.mark.parametrize("write", [gapped_log, small_log])
def test_in_parts_the_same_is_proved_as_at_once(
    tmp_path: Path, write: Callable[[Path], None], part_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "cells")
    whole = verify(tmp_path / "cells")
    assert whole.missing_count == 0
    assert write is small_log or (whole.skipped > 0 and len(stack_paths(tmp_path / "cells")) > 2)
    taken: list[int] = []
    take = JournalWalk.take

    def count(walk: JournalWalk, frames: int) -> JournalContent:
        taken.append(frames)
        return take(walk, frames)

    monkeypatch.setattr(JournalWalk, "take", count)
    monkeypatch.setattr(verify_module, "check_journal", None)  # of a check at once
    monkeypatch.setattr(verify_module, "PART_ROWS", part_rows)
    assert verify(tmp_path / "cells") == whole
    assert sum(taken) == whole.frames
    assert len(taken) > 1


@pytest.mark.parametrize("name", ["NDTiff.index", "acqstream.journal", "stack", "pixels", "tail"])
def test_damage_is_told_in_parts_as_at_once(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gapped_log(tmp_path / "cells")
    places = {"stack": read_pages(stack_paths(tmp_path / "cells")[1])[200].directory + 4}
    places["pixels"] = read_pages(stack_paths(tmp_path / "cells")[2])[10].pixels
    path = {"stack": stack_paths(tmp_path / "cells")[1], "pixels": stack_paths(tmp_path / "cells")[2]}.get(name)
    path = path or tmp_path / "cells" / (JOURNAL_NAME if name == "tail" else name)
    if name == "tail":
        path.write_bytes(path.read_bytes() + bytes(40))  # less than a record
    else:
        flip(path, places.get(name, path.stat().st_size // 2), 3)
    whole = verify(tmp_path / "cells")
    assert whole.problem_count > 0
    monkeypatch.setattr(verify_module, "PART_ROWS", 100)
    assert verify(tmp_path / "cells") == whole


@given(cuts=st.lists(st.integers(0, 40), max_size=6), lost=st.sets(st.integers(0, 39)))
def test_facts_of_a_journal_are_the_same_in_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], lost: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("pieces")
    fields = {"stack": 0, "length": 8, "checksum": 1, "pixel_type": 0, "metadata_checksum": 2}
    records = b"".join(
        encode_hole(n)
        if n in lost
        else encode_frame(n, offset=100 * n, directory=100 * n + 50, time_ns=n % 2 or None, **fields)
        for n in range(40)
    )
    (folder / JOURNAL_NAME).write_bytes(encode_journal_header("7", clean=True) + records)
    content = read_journal(folder / JOURNAL_NAME)
    bounds = [0, *sorted(cuts), 40]
    pieces = [
        replace(content.cut(slice(*ends)), end=ends[1], root_sha256=content.root_sha256)
        for ends in itertools.pairwise(bounds)
    ]
    whole, parted = (JournalFacts.of(folder, found) for found in ([content], pieces))
    assert parted.numbers.tolist() == whole.numbers.tolist() == [n for n in range(40) if n not in lost]
    for name in (one.name for one in fields_of(whole) if one.name != "numbers"):
        assert getattr(parted, name) == getattr(whole, name), name
    assert whole.missing.count == len(lost)


PEAK = """
import re, sys
from pathlib import Path
from acqstream.integrity import verify as verify_module
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
verify_module.PART_ROWS = int(sys.argv[2])
before = peak()
assert verify_module.verify(Path(sys.argv[1])).ok
print(peak() - before)
"""


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_frames_take_little_memory(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", (frame_of(number, (2, 3), "|u1") for number in range(100_000)))
    parts, whole = (
        int(subprocess.check_output([sys.executable, "-c", PEAK, str(tmp_path / "cells"), str(rows)]))
        for rows in (2**14, 2**20)
    )
    assert (whole - parts) * 1024 > 100 * 100_000  # bytes of each frame
