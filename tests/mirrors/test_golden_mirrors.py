"""Half-done mirrors of the previous version are readable, and resume to the same files as a new mirror."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.mirrors.comparison import compare
from acqstream.views.view_run import ViewState
from tests.checksum_files import other_files
from tests.mirrors.golden_mirrors import FRAMES, SAVED, SETTINGS
from tests.mirrors.mirror_cases import finish, run_of

DATA = Path(__file__).parents[1] / "golden" / "mirrors" / "data"
GZIP = b"\x1f\x8b\x08"
MAX_BLOCK_HEADER = 64
NOTES = {".n5": "cells.n5/attributes.json", ".wkw": "cells.wkw/acqstream-array.json"}


def copy_of(suffix: str, folder: Path) -> Path:
    """A copy of the dataset with the mirror of this name; its note says where the copy is."""
    shutil.copytree(DATA, folder, dirs_exist_ok=True)
    note = folder / f"cells.{suffix}.view" / "mirror.json"
    values = json.loads(note.read_text())
    note.write_text(json.dumps({**values, "container": str(folder / f"cells.{suffix}")}))
    return folder / "cells"


def files_of(container: Path) -> dict[str, bytes]:
    """Every file of a mirror, also the one beside an N5 container. Our note is left without what old plans lack."""
    paths = [*container.rglob("*"), *(container.parent.glob("cells.xml") if container.suffix == ".n5" else ())]
    files = {path.relative_to(container.parent).as_posix(): path.read_bytes() for path in paths if path.is_file()}
    name = NOTES[container.suffix]
    values = json.loads(files[name])
    note = values.get("acqstream", values)
    for key in ("shown_axes", "axis_values"):
        note.pop(key, None)
    files = {**other_files(files), name: json.dumps(values).encode()}
    return {name: without_gzip(content) for name, content in files.items()}


def without_gzip(content: bytes) -> bytes:
    """A block of N5 with its payload decoded: what gzip makes of it differs between processors."""
    at = content.find(GZIP, 0, MAX_BLOCK_HEADER)
    return content if at < 0 else content[:at] + gzip.decompress(content[at:])


@pytest.mark.parametrize("suffix", SETTINGS)
def test_a_half_done_mirror_resumes_to_the_files_of_a_new_one(tmp_path: Path, suffix: str) -> None:
    resumed, new = copy_of(suffix, tmp_path / "resumed"), tmp_path / "new" / "cells"
    shutil.copytree(DATA / "cells", new)
    run = finish(run_of(resumed, SETTINGS[suffix], name=suffix))
    assert (run.reason, run.progress().state) == ("", ViewState.COMPLETE)
    assert run.progress().from_stack == len(FRAMES) - SAVED, "it resumes at its checkpoint"
    finish(run_of(new, SETTINGS[suffix], name=suffix))
    one, other = files_of(resumed.with_name(f"cells.{suffix}")), files_of(new.with_name(f"cells.{suffix}"))
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []
    compared = compare(resumed, run.folder, len(FRAMES))
    assert (compared.frames, compared.text) == (len(FRAMES), "all equal")


@pytest.mark.parametrize("suffix", SETTINGS)
def test_a_half_done_mirror_is_readable(tmp_path: Path, suffix: str) -> None:
    copy_of(suffix, tmp_path)
    with acqstream.open(tmp_path / f"cells.{suffix}") as mirror:
        stack = mirror.levels[0].read((0, 0))
    assert np.array_equal(stack, [frame.image for frame in FRAMES[:36]]), "the first stack is complete"
