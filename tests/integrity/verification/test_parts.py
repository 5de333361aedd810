"""A large dataset is verified in parts: the same is proved, and told of damage, as at once, in little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from acqstream.integrity.verification import dataset_check
from acqstream.integrity.verification.dataset_check import verify
from acqstream.log.journal_file import JournalContent, JournalWalk
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


@pytest.mark.parametrize("part_rows", [1, 7, 100, 1000])
def test_in_parts_the_same_is_proved_as_at_once(
    tmp_path: Path, part_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gapped_log(tmp_path / "cells")
    whole = verify(tmp_path / "cells")
    assert whole.skipped > 0
    assert whole.missing_count == 0
    assert len(stack_paths(tmp_path / "cells")) > 2
    taken: list[int] = []
    take = JournalWalk.take

    def count(walk: JournalWalk, frames: int) -> JournalContent:
        taken.append(frames)
        return take(walk, frames)

    monkeypatch.setattr(JournalWalk, "take", count)
    monkeypatch.setattr(dataset_check, "check_journal", None)  # of a check at once
    monkeypatch.setattr(dataset_check, "PART_ROWS", part_rows)
    assert verify(tmp_path / "cells") == whole
    assert sum(taken) == whole.frames
    assert len(taken) > 1


@pytest.mark.parametrize("name", ["NDTiff.index", "acqstream.journal", "stack", "pixels"])
def test_damage_is_told_in_parts_as_at_once(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gapped_log(tmp_path / "cells")
    places = {"stack": read_pages(stack_paths(tmp_path / "cells")[1])[200].directory + 4}
    places["pixels"] = read_pages(stack_paths(tmp_path / "cells")[2])[10].pixels
    path = {"stack": stack_paths(tmp_path / "cells")[1], "pixels": stack_paths(tmp_path / "cells")[2]}.get(name)
    path = path or tmp_path / "cells" / name
    flip(path, places.get(name, path.stat().st_size // 2), 3)
    whole = verify(tmp_path / "cells")
    assert whole.problem_count > 0
    monkeypatch.setattr(dataset_check, "PART_ROWS", 100)
    assert verify(tmp_path / "cells") == whole


PEAK = """
import re, sys
from pathlib import Path
from acqstream.integrity.verification import dataset_check
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
dataset_check.PART_ROWS = int(sys.argv[2])
before = peak()
assert dataset_check.verify(Path(sys.argv[1])).ok
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_frames_take_little_memory(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", (frame_of(number, (2, 3), "|u1") for number in range(100_000)))
    parts, whole = (
        int(subprocess.check_output([sys.executable, "-c", PEAK, str(tmp_path / "cells"), str(rows)]))
        for rows in (2**14, 2**20)
    )
    assert (whole - parts) * 1024 > 100 * 100_000  # bytes of each frame
