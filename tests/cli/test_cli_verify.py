from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command import answer_of
from tests.log.make_frames import frames_of, start_log
from tests.log.read_back import read_pages

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with start_log(tmp_path / "cells") as log:
        for frame in frames_of(5):
            log.append(frame.header, frame.image)
        log.begin_close(sent=5)
    return tmp_path / "cells"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[Any, str, str]:
    return answer_of(capsys, "verify", *arguments)


def damage(folder: Path, name: str, offset: int) -> None:
    with (folder / name).open("r+b") as file:
        file.seek(offset)
        file.write(b"\xa5\x5a\xa5")


def test_all_is_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, folder)
    assert code == 0
    assert err == ""
    assert out.startswith(f"{folder}: all is well; 5 frames, 15.4 kB of pixels, COMPLETE\nproved\n  files: ")
    assert "5 of 5 frames, 15,360 bytes, have the recorded XXH3-64; 5 of these checksums" in out
    assert "problems" not in out


@pytest.mark.skipif(sys.platform == "win32", reason="a command of POSIX shells")
def test_the_root_hash_is_that_of_the_records(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As docs/verify.md says how to check it by hand."""
    command = "tail -c +4097 acqstream.journal | sha256sum"
    digest = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=True).stdout.split()[
        0
    ]
    assert digest in run(capsys, folder)[1]
    assert command in (Path(__file__).parents[2] / "docs" / "verify.md").read_text(encoding="utf-8")


def test_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(folder, "cells_NDTiffStack.tif", 4096 + 192 + 10)
    code, out, _ = run(capsys, "--json", folder)
    document = json.loads(out)
    assert code == 3
    assert (document["ok"], document["frames"], document["hashed_frames"], document["problem_count"]) == (
        False,
        5,
        4,
        1,
    )
    (problem,) = document["problems"]
    assert (problem["path"], problem["frame"]) == (str(folder / "cells_NDTiffStack.tif"), 0)


def test_problems_name_place_and_frame(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(folder, "cells_NDTiffStack.tif", 4096 + 192 + 10)
    code, out, _ = run(capsys, folder)
    assert code == 3
    assert out.startswith(f"{folder}: 1 problem; 5 frames")
    assert "problems\n  cells_NDTiffStack.tif at byte 4288, frame 0: pixels hash to " in out


def test_missing_frames_are_incomplete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = start_log(tmp_path / "cells")
    log.append(frames_of(1)[0].header, frames_of(1)[0].image)
    log.close(sent=4)
    code, out, _ = run(capsys, tmp_path / "cells")
    assert code == 3
    assert "3 frames missing; 1 frame" in out
    assert "missing\n  frames 1 to 3: never arrived\n" in out


def test_long_lists_are_cut_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with start_log(tmp_path / "cells") as log:
        for frame in frames_of(300, (4, 4)):
            log.append(frame.header, frame.image)
    stack = tmp_path / "cells" / "cells_NDTiffStack.tif"
    content = bytearray(stack.read_bytes())
    for page in read_pages(stack):
        content[page.pixels : page.pixels + 32] = bytes(32)
    stack.write_bytes(content)
    code, out, _ = run(capsys, tmp_path / "cells")
    assert code == 3
    assert out.count("pixels hash to") == 100
    assert "  ... and 200 more\n" in out


def test_of_another_writer(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, GOLDEN / "java_uint16" / "data")
    assert code == 0
    assert "another writer's" in out
    assert "not proved\n  pixels: there is no journal" in out


@pytest.mark.parametrize("name", ["v0_uint8/data", "absent", "../ndtiff"])
def test_what_cannot_be_opened_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, GOLDEN / name)
    assert code == 1
    assert out == ""
    assert err.count("\n") == 1


def test_in_a_plain_process(folder: Path) -> None:
    """No terminal: no progress, and nothing that only a test process would have imported."""
    command = [sys.executable, "-W", "error", "-m", "acqstream", "verify", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
    assert (done.returncode, done.stderr) == (0, "")
