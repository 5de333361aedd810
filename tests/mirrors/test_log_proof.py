"""A mirror is compared with the dataset beside it, wherever both lie now."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acqstream.mirrors.comparison import LogProof, prove_by_log
from acqstream.views.checkpoint import read_checkpoint, write_checkpoint
from tests.command import command
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import PLAIN, finish, frames_at, places_of, run_of
from tests.storage.unforced_disk import UnforcedDisk

FRAMES = frames_at(places_of(("time", "z"), {"time": 2, "z": 7}))
SETTINGS = {**PLAIN, "blocks": [3, 8, 10], "levels": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a dataset, its mirror and the view's folder, moved after they were made."""
    made = tmp_path / "made"
    made.mkdir()
    write_log(made / "cells", FRAMES)
    assert finish(run_of(made / "cells", SETTINGS)).reason == ""
    return made.rename(tmp_path / "moved")


def change_frame(folder: Path, number: int) -> None:
    """Change a pixel of a frame in the log, not in the mirror."""
    (stack,) = folder.joinpath("cells").rglob("*.tif")
    content = stack.read_bytes()
    pixels = FRAMES[number].image.tobytes()
    assert content.count(pixels) == 1
    stack.write_bytes(content.replace(pixels, pixels[:-1] + bytes([pixels[-1] ^ 1])))


def test_a_mirror_that_was_moved_with_its_dataset_is_compared(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = prove_by_log(folder / "cells.n5", lambda *news: seen.append(news))
    assert found.dataset == folder / "cells"
    assert found.proved == [f"14 frames have the pixels that they have in {folder / 'cells'}"]
    assert found.not_proved == []
    assert seen[-1] == (14, 14)


def test_frames_that_differ_are_named(folder: Path) -> None:
    change_frame(folder, 9)
    found = prove_by_log(folder / "cells.n5")
    assert (found.proved, found.compared.different) == ([], 1)
    assert found.compared.named == ("frame 9 ({'time': 1, 'z': 2})",)


def test_no_dataset_no_claim(folder: Path) -> None:
    shutil.rmtree(folder / "cells")
    found = prove_by_log(folder / "cells.n5")
    assert (found.proved, found.dataset) == ([], None)
    assert found.not_proved == ["that its pixels are those of the dataset: the dataset is not beside its mirror"]


def test_another_dataset_of_that_name_is_not_compared(folder: Path) -> None:
    shutil.rmtree(folder / "cells")
    write_log(folder / "cells", FRAMES)
    state = folder / "cells" / "acqstream.json"
    fields = json.loads(state.read_text())
    state.write_text(json.dumps(fields | {"dataset_id": "another"}))
    assert prove_by_log(folder / "cells.n5").dataset is None


def test_what_is_no_mirror_is_not_spoken_of(folder: Path) -> None:
    shutil.rmtree(folder / "cells.n5.view")
    assert prove_by_log(folder / "cells.n5") == LogProof()


def test_a_mirror_that_is_not_complete_is_not_compared(folder: Path) -> None:
    saved = read_checkpoint(folder / "cells.n5.view")
    assert saved is not None
    write_checkpoint(UnforcedDisk(), folder / "cells.n5.view", replace(saved, is_complete=False))
    assert prove_by_log(folder / "cells.n5").not_proved == [
        "that its pixels are those of the dataset: the mirror is not complete"
    ]


def test_a_shorter_dataset_is_told(folder: Path) -> None:
    saved = read_checkpoint(folder / "cells.n5.view")
    assert saved is not None
    write_checkpoint(UnforcedDisk(), folder / "cells.n5.view", replace(saved, cursor=15))
    assert "has fewer frames than the 15 that were mirrored" in prove_by_log(folder / "cells.n5").reason


def test_a_damaged_note_is_the_reason(folder: Path) -> None:
    (folder / "cells.n5.view" / "mirror.json").write_text("{")
    found = prove_by_log(folder / "cells.n5")
    assert "it cannot be read: " in found.reason
    assert "mirror.json" in found.reason


def places_in(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value in a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*above, key)
        yield from places_in(item, (*above, key))


def test_a_note_with_anything_in_it_gives_a_reason_or_a_comparison(folder: Path) -> None:
    """Every value of the note is replaced by others, or left out: nothing is raised, and nothing is proved wrongly."""
    path = folder / "cells.n5.view" / "mirror.json"
    right = json.loads(path.read_text())
    reasons = 0
    for place in list(places_in(right)):
        wrong: Any
        for wrong in (None, 0, -1, 10**9, "x", [], {}, [1, 2]):
            note = json.loads(json.dumps(right))
            inner = note
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            path.write_text(json.dumps(note))
            found = prove_by_log(folder / "cells.n5")
            reasons += bool(found.reason)
            assert found.compared.frames in (0, len(FRAMES))
    assert reasons > 100


def test_a_mirror_with_a_name_of_its_own_is_compared(tmp_path: Path) -> None:
    write_log(tmp_path / "cells", FRAMES)
    finish(run_of(tmp_path / "cells", SETTINGS, name="second.copy"))
    assert len(prove_by_log(tmp_path / "cells.second.copy.n5").proved) == 1


def test_verify_compares_with_the_dataset(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for differs in (False, True):
        if differs:
            change_frame(folder, 9)
        assert command("verify", folder / "cells.n5", "--json") == (3 if differs else 0)
        told = json.loads(capsys.readouterr().out)
        assert any("14 frames have the pixels" in line for line in told["proved"]) != differs
        assert told["problem_count"] == int(differs)
        assert [one["text"] for one in told["problems"]] == (
            [f"frame 9 ({{'time': 1, 'z': 2}}) differs from {folder / 'cells'}"] if differs else []
        )
