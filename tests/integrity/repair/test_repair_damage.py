"""Repair after any damage: it yields no wrong frame, loses none that is whole, raises none but its own errors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ndstorage.ndtiff_file
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acqstream.errors import AcqStreamError
from acqstream.formats.ndtiff.index_entries import parse_entries
from acqstream.integrity.index_frames import LevelReport, RepairReport
from acqstream.integrity.repair import repair
from acqstream.log import journal
from tests.integrity.repair.damaged_sets import INDEX, HastyDisk, Key, age, contents, key_of, places, write_ndstorage
from tests.log.make_frames import frames_of, write_log

JOURNAL = journal.JOURNAL_NAME
FRAMES = 6
AXES = [{"time": time, "channel": channel} for time in range(3) for channel in ("DAPI", "GFP")]
Place = tuple[str, tuple[int, ...]]  # stack file, numbers of the index entry
SHARES = st.floats(0, 1, exclude_max=True)


@dataclass(frozen=True)
class Damage:
    """What happens to one file: a flipped bit, zeros, a cut, or zeros from a cut to the old end. Places are shares."""

    file: int
    kind: str
    at: float
    bit: int

    def apply(self, path: Path) -> None:
        if not path.exists() or not path.stat().st_size:
            return
        content = bytearray(path.read_bytes())
        at = int(self.at * len(content))
        if self.kind == "flip":
            content[at] ^= 1 << self.bit
        elif self.kind == "zeros":
            content[at : at + 2 ** (self.bit + 2)] = bytes(len(content[at : at + 2 ** (self.bit + 2)]))
        elif self.kind == "cut":
            del content[at:]
        elif self.kind == "zero end":
            content[at:] = bytes(len(content) - at)
        else:
            path.unlink()
            return
        path.write_bytes(content)


damages = st.builds(
    Damage,
    st.integers(0, 3),
    st.sampled_from(["flip", "flip", "flip", "zeros", "cut", "zero end", "delete"]),
    SHARES,
    st.integers(0, 7),
)


class Whole:
    """A dataset without damage: its folder, where each key's frame lies, and all its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places = places(folder)
        self.files = contents(folder)

    def pixels(self, place: Place, files: dict[str, bytes]) -> bytes:
        name, (offset, width, height, *_) = place
        return files[name][offset : offset + 2 * width * height]


def is_same(found: Place | None, expected: Place) -> bool:
    """Whether both name the same pixels and metadata. A flipped bit can make 0 to 1 where both mean no compression."""
    if found is None:
        return False
    return found[0] == expected[0] and all(found[1][i] == expected[1][i] for i in (0, 1, 2, 5, 6))


def metadata_at(place: Place, files: dict[str, bytes]) -> bytes:
    name, numbers = place
    return files[name][numbers[5] : numbers[5] + numbers[6]]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Six frames of the reference writer in three stack files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndstorage.ndtiff_file, "MAX_FILE_SIZE", 5_000_900)
        return Whole(write_ndstorage(tmp_path_factory.mktemp("foreign"), AXES))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("ours") / "cells"
    write_log(folder, frames_of(FRAMES, (6, 7)))
    return Whole(folder)


def repaired(source: Whole, names: Sequence[str], found: Sequence[Damage]) -> tuple[RepairReport | None, Path]:
    """The report, None if it was refused in the project's own words; and the folder."""
    folder = source.folder.with_name("damaged")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source.folder, folder)
    for damage in found:
        damage.apply(folder / names[damage.file % len(names)])
    age(folder)
    before = contents(folder, "*.tif")
    try:
        report = repair(folder, disk=HastyDisk(), force=True)
    except AcqStreamError:
        report = None
    if not (folder / JOURNAL).exists() and not (folder / "acqstream.json").exists():
        assert contents(folder, "*.tif") == before, "stack files of other writers are never touched"
    return report, folder


def listed(folder: Path) -> list[tuple[Key, Place]]:
    content = (folder / INDEX).read_bytes()
    entries = parse_entries(content)
    assert entries.consumed == len(content)
    rows = zip(entries.axes, entries.names, entries.numbers.tolist(), strict=True)
    return [(key_of(axes), (name.decode(), tuple(numbers))) for axes, name, numbers in rows]


def check_nothing_wrong(source: Whole, folder: Path, level: LevelReport) -> None:
    """Every entry is as it was, or the report says that something about it was guessed.

    Damaged metadata that still are JSON, and alone tell a frame's axes, are taken as they are: nothing can tell.
    """
    doubted = {(finding.file, finding.offset) for finding in level.guessed}
    files = contents(folder, "*.tif")
    for place in source.places.values():
        if place[0] in files and metadata_at(place, files) != metadata_at(place, source.files):
            doubted.add((place[0], place[1][0]))
    for key, place in listed(folder):
        assert is_same(source.places.get(key), place) or (place[0], place[1][0]) in doubted, (key, place)


def test_the_sets_are_what_the_tests_think(foreign: Whole, ours: Whole) -> None:
    assert len({name for name, _ in foreign.places.values()}) == 3
    assert len(foreign.places) == len(ours.places) == FRAMES
    for source in (foreign, ours):
        report, folder = repaired(source, [INDEX], [])
        assert report is not None
        assert report.is_whole
        assert contents(folder) == source.files


@settings(max_examples=int(os.environ.get("DAMAGE_EXAMPLES", "80")))
@given(found=st.lists(damages, min_size=1, max_size=3))
def test_foreign_sets(foreign: Whole, found: list[Damage]) -> None:
    stacks = sorted(name for name in foreign.files if name.endswith(".tif"))
    report, folder = repaired(foreign, [INDEX, *stacks], found)
    if report is None:
        assert any(damage.file > 0 for damage in found), "with whole stack files there is nothing to refuse"
        return
    check_nothing_wrong(foreign, folder, report.levels[0])
    kept = dict(listed(folder))
    harmed = {name for name, content in contents(folder).items() if foreign.files.get(name) != content}
    gone = {name for name in stacks if not (folder / name).exists()}
    doubted = {(finding.file, finding.offset) for finding in report.levels[0].guessed}
    for key, place in foreign.places.items():
        if place[0] not in harmed | gone:
            assert is_same(kept.get(key), place) or (place[0], place[1][0]) in doubted, "its stack file is whole"
    level = report.levels[0]
    assert len(kept) == FRAMES or gone or report.lost or level.dropped.count or level.notes, "what is missing is told"


@settings(max_examples=int(os.environ.get("DAMAGE_EXAMPLES", "80")))
@given(found=st.lists(damages, min_size=1, max_size=3))
def test_our_sets(ours: Whole, found: list[Damage]) -> None:
    (stack,) = (name for name in ours.files if name.endswith(".tif"))
    report, folder = repaired(ours, [INDEX, stack, JOURNAL, "acqstream.json"], found)
    if report is None:
        assert any(damage.file == 1 for damage in found), "with a whole stack file there is nothing to refuse"
        return
    check_nothing_wrong(ours, folder, report.levels[0])
    kept, files = dict(listed(folder)), contents(folder)
    doubted = {(finding.file, finding.offset) for finding in report.levels[0].guessed}
    if report.levels[0].changed and (folder / JOURNAL).exists():
        for place in kept.values():
            if (place[0], place[1][0]) not in doubted:
                assert ours.pixels(place, files) == ours.pixels(place, ours.files), "proved by its checksum"
    level = report.levels[0]
    assert len(kept) == FRAMES or report.lost or level.dropped.count or level.notes, "what is missing is told"
    if all(damage.file % 4 != 1 for damage in found):
        assert doubted or all(is_same(kept.get(key), place) for key, place in ours.places.items())
        assert report.lost == 0
