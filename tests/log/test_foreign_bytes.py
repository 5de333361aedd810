"""Another program changes a file of a run that is recorded: the run ends, says so, and writes nothing more there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import acqstream
from acqstream.errors import DatasetLocked
from acqstream.log.journal import JOURNAL_NAME
from tests.log.make_frames import frames_of, start_log
from tests.log.read_back import check_dataset, stack_paths
from tests.waiting import WAIT_S

INDEX = "NDTiff.index"
FRAMES = frames_of(40, (128, 256))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"foreign bytes")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


@pytest.mark.promise("one-writer")
@pytest.mark.parametrize("change", [append, cut])
@pytest.mark.parametrize(
    ("name", "more"), [(INDEX, 0), (INDEX, 20), (JOURNAL_NAME, 0), (JOURNAL_NAME, 20), ("stack", 20)]
)
def test_a_changed_length_ends_the_run(tmp_path: Path, name: str, change: Callable[[Path], None], more: int) -> None:
    folder = tmp_path / "cells"
    log = start_log(folder)
    for frame in FRAMES[:20]:
        log.append(frame.header, frame.image)
    assert log.wait_for_published(20)
    path = stack_paths(folder)[0] if name == "stack" else folder / name
    change(path)
    size, content = path.stat().st_size, path.read_bytes()
    with pytest.raises(DatasetLocked, match=f"{path.name} was changed by another program: {size} bytes, expected "):
        for frame in FRAMES[20 : 20 + more]:
            log.append(frame.header, frame.image)
        log.close()
    assert log.wait_until_finished(WAIT_S)
    assert log.receipt is not None
    assert (log.receipt.status, log.receipt.stored) == ("failed", 20)
    if name != "stack":
        assert path.read_bytes()[4096:] == content[4096:]  # without the header of the journal
    if change is append and name != INDEX:
        with acqstream.open(folder) as dataset:
            for number, frame in enumerate(FRAMES[:20]):
                assert (dataset.read_frame(time=number) == frame.image).all()


def test_a_stack_that_grew_behind_its_last_frame_is_cut_at_the_close(tmp_path: Path) -> None:
    with start_log(tmp_path / "cells") as log:
        for frame in FRAMES[:20]:
            log.append(frame.header, frame.image)
        assert log.wait_for_published(20)
        append(stack_paths(tmp_path / "cells")[0])
    check_dataset(tmp_path / "cells", FRAMES[:20])
