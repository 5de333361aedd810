"""`acqstream mirror --follow` of a dataset that another program is writing right now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import acqstream
from tests.live import programs
from tests.mirrors.mirror_cases import read_plain
from tests.waiting import HANG_S, until

BATCHES, STACKS, DEPTH = 3, 40, 5  # 200 frames: what the library keeps back of its index are some 110
SHAPE = (20, 30)
MADE = {"n5": "s0/attributes.json", "wkw": "acqstream-array.json"}

WRITER = """
import sys
import ndstorage
import numpy
batches, frames, depth = map(int, sys.argv[2:])
dataset = ndstorage.NDTiffDataset(sys.argv[1], name="acq", summary_metadata={}, writable=True)
dataset.initialize({})
for number in range(batches * frames):
    time, z = divmod(number, depth)
    image = numpy.full((20, 30), number + 1, "uint16")
    dataset.put_image({"time": time, "z": z}, image, {"Axes": {"time": time, "z": z}, "BitDepth": 16})
    if not (number + 1) % frames:
        print("batch", flush=True)
        sys.stdin.readline()
dataset.finish()
dataset.close()
print("finished", flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout_s(120)
@pytest.mark.parametrize("name", MADE)
def test_it_is_mirrored_while_ndstorage_writes_it(tmp_path: Path, name: str) -> None:
    """More of it is in the mirror after each batch; a wrong pixel is there never."""
    writer = programs.start(WRITER, str(tmp_path), *map(str, (BATCHES, STACKS * DEPTH, DEPTH)))
    mirror: subprocess.Popen[str] | None = None
    try:
        wait_for(writer, "batch")
        (path,) = [one for one in tmp_path.iterdir() if one.is_dir()]
        out = path.with_name("mirrored")
        options = ["--option", 'layout="array"', "--option", "blocks=[5, 32, 32]"] if name == "n5" else []
        command = [sys.executable, "-m", "acqstream", "mirror", str(path), str(out), "--to", name, "--follow", *options]
        mirror = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
        before = 0
        for batch in range(BATCHES):

            def more() -> int | None:
                assert mirror is not None
                assert mirror.poll() is None, "it ended by itself"
                now = planes_in(out, name) if (out / MADE[name]).exists() else 0
                return now if now > before else None  # noqa: B023 - called in this turn only

            before = until(more, f"some of batch {batch} is in the mirror", 40.0)
            assert before <= (batch + 1) * STACKS * DEPTH
            assert writer.stdin is not None
            writer.stdin.write("go on\n")
            writer.stdin.flush()
            wait_for(writer, "batch" if batch + 1 < BATCHES else "finished")
        told, _ = mirror.communicate(timeout=HANG_S)
        assert mirror.returncode == 0, told
        assert f"{BATCHES * STACKS * DEPTH} frames with the mirror: all equal" in told
        assert planes_in(out, name) == BATCHES * STACKS * DEPTH
    finally:
        programs.kill(writer)
        if mirror is not None:
            mirror.kill()
            mirror.communicate()


def wait_for(writer: subprocess.Popen[str], word: str) -> None:
    while programs.line_of(writer) != word:
        pass  # the library's own lines


def planes_in(out: Path, name: str) -> int:
    """How many planes are there. None is there in part, or is another frame's."""
    if name == "n5":
        planes = read_plain(out)
    else:
        with acqstream.open(out) as dataset:
            planes = dataset.levels[0].read()
    assert planes.shape[2:] == SHAPE
    there = np.argwhere(planes.any(axis=(2, 3)))
    for time, z in there:
        assert (planes[time, z] == time * DEPTH + z + 1).all()
    return len(there)
