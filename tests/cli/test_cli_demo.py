"""`acqstream demo`, as typed in a folder of the user's own, and the three lines that it says to type next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from acqstream.bench import demonstration
from acqstream.errors import AcquisitionFailed
from tests.command import command
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout_s(240)]
TIMEOUT_S = 200
SCRIPTS = sysconfig.get_path("scripts")


def typed(line: str, folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    """A line in the shell of a user who is in `folder` and looks for programs in `path` first."""
    environment = {**os.environ, "PATH": os.pathsep.join(filter(None, [path, os.environ["PATH"]]))}
    return subprocess.run(
        line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.mark.parametrize(
    ("name", "line", "path", "program"),
    [
        ("plain", "acqstream demo", SCRIPTS, "acqstream "),
        ("größe 試 $x", f'"{sys.executable}" -m acqstream demo', "", ""),
    ],
)
def test_the_demonstration_and_the_lines_to_type_next(
    tmp_path: Path, name: str, line: str, path: str, program: str
) -> None:
    """In a second one, the first stays as it is."""
    here = tmp_path / name
    kept = here / "acqstream-demo" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept", encoding="utf-8")
    shown = typed(line, here, path)
    assert shown.returncode == 0, shown.stderr
    assert "300 frames stored of 300 sent" in shown.stdout
    lines = shown.stdout.split("Next, type:\n")[1].splitlines()
    assert len(lines) == 3
    for one, words in zip(lines, ("25", "all is well; 300 frames", "100 of 100 frames stored"), strict=True):
        assert one.strip().startswith(program)
        done = typed(one, here, path)
        assert (done.returncode, words in done.stdout) == (0, True), (one, done)
    assert [path.name for path in kept.parent.iterdir()] == ["mine.txt"]
    typed(line.replace("demo", "shutdown --data acqstream-demo-2"), here, path)


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert command("demo", "--dir", tmp_path / "file") == 78
    assert "--dir DIR" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C to a console, not to a process")
def test_an_interrupt_ends_run_and_daemon_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "acqstream-demo"
    index = folder / "cells" / "NDTiff.index"
    slow = "from acqstream.bench import demonstration; demonstration._FRAMES_PER_S = 5.0"  # an interrupt comes in time
    code = f"{slow}; from acqstream.cli.main import main; main(['demo', '--dir', {str(tmp_path)!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until(lambda: index.exists() and index.stat().st_size > 0, "frames are published")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, err
    assert err.strip() == f"acqstream: interrupted; {folder} has what was recorded until then"
    assert json.loads((folder / "cells" / "receipt.json").read_text(encoding="utf-8"))["status"] == "canceled"
    assert "a shutdown request came" in (folder / ".acqstream.log").read_text(encoding="utf-8")


def test_one_wrong_pixel_and_a_missing_frame_are_found() -> None:
    camera = demonstration.CAMERA
    images = np.stack([camera.frame(number, demonstration.SHAPE, demonstration.DTYPE) for number in (0, 1)])
    with pytest.raises(AcquisitionFailed, match="has 2 frames, 300 were sent"):
        demonstration.check(Path("cells"), images)
    images[1, 511, 511] ^= 1
    with pytest.raises(AcquisitionFailed, match="frame 1 differs"):
        demonstration.check(Path("cells"), images)
