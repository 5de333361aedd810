"""Every frame that is not in the mirror is found, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from acqstream.mirrors.comparison import Comparison, compare
from acqstream.views.view_run import ViewRun
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import PLAIN, finish, frames_at, places_of, run_of

FRAMES = frames_at(places_of(("time", "z"), {"time": 2, "z": 7}))
BLOCK = "0/0/1/1"  # x, y, z, time: z from 3 to 5


@pytest.fixture
def run(tmp_path: Path) -> ViewRun:
    write_log(tmp_path / "cells", FRAMES)
    return finish(run_of(tmp_path / "cells", {**PLAIN, "blocks": [3, 8, 10], "levels": 1}))


def compared(run: ViewRun, seen: list[tuple[int, int]] | None = None) -> Comparison:
    return compare(run.path, run.folder, len(FRAMES), lambda *news: (seen if seen is not None else []).append(news))


def block_of(run: ViewRun) -> Path:
    (block,) = (path for path in run.path.with_name("cells.n5").rglob("*") if path.as_posix().endswith(f"/{BLOCK}"))
    return block


def cut(block: Path) -> None:
    block.write_bytes(block.read_bytes()[:-1])


def change(block: Path) -> None:
    content = bytearray(block.read_bytes())
    content[-(8 * 10 + 1) * 2] ^= 1  # the last item of its second plane
    block.write_bytes(content)


def test_all_equal(run: ViewRun) -> None:
    seen: list[tuple[int, int]] = []
    assert (compared(run, seen).text, compared(run).frames) == ("all equal", len(FRAMES))
    assert seen[-1] == (14, 14)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize(("damage", "z"), [(change, [4]), (cut, [3, 4, 5]), (Path.unlink, [3, 4, 5])])
def test_what_differs_is_counted_and_named(run: ViewRun, damage: Callable[[Path], None], z: list[int]) -> None:
    damage(block_of(run))
    found = compared(run)
    assert (found.frames, found.different) == (len(FRAMES), len(z))
    assert found.named == tuple(f"frame {7 + at} ({{'time': 1, 'z': {at}}})" for at in z)


def test_no_more_than_some_are_named(run: ViewRun) -> None:
    for path in run.path.with_name("cells.n5").rglob("0/0/*/*"):
        path.unlink()
    found = compared(run)
    assert (found.different, len(found.named)) == (14, 10)
    assert found.text.endswith(" ...")


def test_frames_that_are_larger_than_the_array_are_different(run: ViewRun) -> None:
    (path,) = run.path.with_name("cells.n5").rglob("s0/attributes.json")
    attributes = json.loads(path.read_text())
    attributes["dimensions"][0] -= 6  # the last blocks lie outside now
    path.write_text(json.dumps(attributes))
    assert compared(run).different == len(FRAMES)
