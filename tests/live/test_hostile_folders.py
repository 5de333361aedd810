"""The daemon starts, recovers and serves although folders in its data directory are a stranger's."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.errors import AcqStreamError
from acqstream.formats.checksum_list import FOLDER
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.integrity.recover import recover
from acqstream.integrity.repair import repair
from acqstream.log.journal import JOURNAL_NAME
from acqstream.log.state_file import STATE_NAME, read_state
from acqstream.model.state import AcquisitionState
from acqstream.views.checkpoint import CHECKPOINT_NAME, view_folder
from tests.live.daemon_process import DaemonProcess
from tests.log.crashed import crash
from tests.log.hostile_files import ANY_FILE, JSON_FILE, edited
from tests.log.make_frames import frames_of
from tests.waiting import until

FORMATS = ["n5", "ome-zarr", "wkw", "precomputed", "hsds"]

FRAMES = frames_of(5, (6, 7))
# Windows has no such limit for a process alone.
LITTLE_MEMORY = (
    "" if sys.platform == "win32" else "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))"
)


@pytest.mark.promise("links")
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


def state_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("part", ["container", "inside", "view folder"])
def test_a_link_in_the_place_of_a_mirror_leads_nowhere(tmp_path: Path, kind: str, part: str) -> None:
    """A dataset from a stranger, with the note of a mirror: a user rebuilds it, or a daemon resumes it at its start."""
    data, documents = tmp_path / "data", tmp_path / "documents"
    (documents / "sub").mkdir(parents=True)
    (documents / "sub" / "thesis").write_bytes(b"mine")
    before = state_of(documents)
    with DaemonProcess(data) as daemon:
        with acqstream.create("gift", endpoint=daemon.endpoint, mirrors=[kind]) as run:
            for z in range(3):
                run.put(np.full((64, 64), z, "u2"), z=z)
        run.wait_for_mirrors(timeout_s=60)
    (folder,) = data.glob("gift.*.view")
    container = folder.with_suffix("")
    note = json.loads((folder / "mirror.json").read_text())
    if part == "inside":
        inner = next(path for path in sorted(container.rglob("*")) if path.is_dir() and path.name != FOLDER)
        shutil.rmtree(inner)
        inner.symlink_to(documents)
    else:
        linked = container if part == "container" else folder
        shutil.copytree(linked, tmp_path / "kept")
        shutil.rmtree(linked)
        linked.symlink_to(documents)
        if part == "container":
            (folder / "mirror.json").write_text(json.dumps({**note, "container": str(documents)}))
    command = [sys.executable, "-m", "acqstream", "mirror", str(data / "gift"), "--to", kind, "--rebuild"]
    subprocess.run(command, check=False, capture_output=True)
    assert state_of(documents) == before
    # Once more, by the start of a daemon: the checkpoint says that the mirror is not complete.
    if part == "container":
        assert container.is_symlink()
        saved = json.loads((folder / "view.json").read_text())
        (folder / "view.json").write_text(json.dumps({**saved, "cursor": 0, "state": "running"}))
        with DaemonProcess(data) as daemon:
            until(lambda: "is a link" in daemon.output(), "the end of the view")
        assert state_of(documents) == before


@pytest.mark.promise("links")
@pytest.mark.parametrize("name", ["NDTiff.index", "acqstream.journal", "acqstream.json", "cells_NDTiffStack.tif"])
@pytest.mark.parametrize("content", [b"three years of work\n" * 3000, b""], ids=["words", "copy"])
def test_recovery_and_repair_write_through_no_link(tmp_path: Path, name: str, content: bytes) -> None:
    folder = crash(tmp_path / "cells", FRAMES)
    victim = tmp_path / "victim"
    victim.write_bytes(content or (folder / name).read_bytes() + b"tail")
    before = victim.read_bytes()
    (folder / name).unlink()
    (folder / name).symlink_to(victim)
    for work in (recover, repair):
        with contextlib.suppress(AcqStreamError):
            work(folder)
        assert victim.read_bytes() == before
