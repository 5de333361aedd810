"""The daemon starts, recovers and serves although folders in its data directory are a stranger's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import acqstream
from acqstream.formats.ndtiff.index import INDEX_NAME
from acqstream.log.journal import JOURNAL_NAME
from acqstream.log.state_file import STATE_NAME, read_state
from acqstream.model.state import AcquisitionState
from acqstream.views.checkpoint import CHECKPOINT_NAME, view_folder
from tests.live.daemon_process import DaemonProcess
from tests.log.crashed import crash
from tests.log.hostile_files import ANY_FILE, JSON_FILE, edited
from tests.log.make_frames import frames_of

FRAMES = frames_of(5, (6, 7))
# Windows has no such limit for a process alone.
LITTLE_MEMORY = (
    "" if sys.platform == "win32" else "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))"
)


@pytest.mark.timeout_s(120)
def test_every_kind_of_hostile_folder_beside_a_good_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    good = crash(tmp_path / "good", FRAMES)
    cases = [
        *[(STATE_NAME, kind) for kind in JSON_FILE],
        *[(name, kind) for name in (JOURNAL_NAME, INDEX_NAME) for kind in ANY_FILE],
    ]
    for number, (name, kind) in enumerate(cases):
        folder = Path(shutil.copytree(good, data / f"a{number}"))
        JSON_FILE[kind](folder / name)
    for kind in ("pipe", "sparse", "folder", "deep", "many items"):
        folder = Path(shutil.copytree(good, data / f"mirrored-{kind.replace(' ', '-')}"))
        edited("request", '{"mirrors": ["null"]}')(folder / STATE_NAME)
        view = view_folder(folder, "null")
        view.mkdir()
        JSON_FILE[kind](view / CHECKPOINT_NAME)
    shutil.copytree(good, data / "zebra")
    with DaemonProcess(data, prelude=LITTLE_MEMORY) as daemon:
        with acqstream.create("served", endpoint=daemon.endpoint) as run:
            run.put(FRAMES[0].image, time=0)
        assert run.receipt is not None
        assert run.receipt.stored == 1
    output = daemon.output()
    assert read_state(str(data / "zebra")).state is AcquisitionState.INTERRUPTED
    named = {number for number in range(len(cases)) if f"/a{number}" in output}
    silent = {(name, kind) for number, (name, kind) in enumerate(cases) if number not in named}
    assert silent <= {(STATE_NAME, "folder")}  # no dataset of ours, by the look of it
    assert "a fault of this program" not in output
