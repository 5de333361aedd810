"""Repair of datasets that other programs wrote: the index comes back, their stack files stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import acqstream
from acqstream.errors import CorruptDataset, DatasetLocked, UnknownFormat, UnsupportedFeature
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.integrity.index_frames import RepairReport
from acqstream.integrity.index_rebuild import rebuild_index
from acqstream.integrity.repair import BACKUP_NAME, repair
from tests.formats.ndtiff.ndtiff_bytes import GOLDEN, STACK, Folder, entry, image
from tests.formats.ndtiff.test_golden import check_image, check_level
from tests.integrity.repair.damaged_sets import (
    INDEX,
    HastyDisk,
    age,
    contents,
    key_of,
    pixels_of,
    places,
    read_ours,
    read_reference,
    signatures,
    write_ndstorage,
)

SETS = {path.parent.name: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*/expected.json"))}
NEW = [name for name, expected in SETS.items() if expected["major"] >= 2]
DAMAGED = {"zero_tail", "torn_index", "torn_index_prefix", "lost_index", "short_data"}
NO_AXES = {"duplicate_axes", "py_negative_axes"}  # their metadata tell none
GHOSTS = {"real_v3_2_rgb_pyramid"}  # its old writer's lower levels do not follow the rule for tiles
AXES = [{"time": time, "channel": channel} for time in range(3) for channel in ("DAPI", "GFP")]
SPARSE_BYTES = 4 * 2**30


def copy(name: str, to: Path) -> Path:
    folder = shutil.copytree(GOLDEN / name / "data", to / "data")
    age(folder)
    return folder


def again(folder: Path) -> None:
    """A second repair finds nothing to do."""
    age(folder)
    report = repair(folder)
    assert report.is_whole
    assert not any(level.recovered or level.dropped.count for level in report.levels)


@pytest.mark.parametrize("name", [name for name in NEW if name not in DAMAGED])
def test_nothing_is_done_to_what_is_whole(tmp_path: Path, name: str) -> None:
    folder = copy(name, tmp_path)
    before = signatures(folder)
    report = repair(folder)
    assert report.is_whole
    assert report.lost == 0
    frames = [len(level["images"]) for level in SETS[name]["levels"].values()]
    assert [level.kept for level in report.levels] == [3] if name == "duplicate_axes" else frames
    assert signatures(folder) == before


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_damaged_sets_give_what_is_expected(tmp_path: Path, name: str) -> None:
    folder, expected = copy(name, tmp_path), SETS[name]
    stacks = contents(folder, "*.tif")
    had_index = (folder / INDEX).exists()
    old = (folder / INDEX).read_bytes() if had_index else b""
    report = repair(folder)
    recoverable = expected.get("recoverable_from_tiff", [])
    images = [*(expected["levels"]["0"]["images"] if expected["levels"] else []), *recoverable]
    (reader,) = open_readers(folder)
    check_level(reader, images, [])
    reader.close()
    assert report.levels[0].recovered == len(recoverable)
    assert report.lost == len(expected.get("unreadable", []))
    assert contents(folder, "*.tif") == stacks
    assert report.levels[0].backup == (BACKUP_NAME if had_index else "")
    assert not had_index or (folder / BACKUP_NAME).read_bytes() == old
    assert read_reference(folder) == read_ours(folder)
    again(folder)


@pytest.mark.parametrize("name", [name for name in NEW if name not in DAMAGED | NO_AXES])
def test_deleted_indexes_come_back(tmp_path: Path, name: str) -> None:
    folder, expected = copy(name, tmp_path), SETS[name]
    levels = [folder / level["folder"] for level in expected["levels"].values()]
    before = [places(level) if name != "java_latin1_index" else None for level in levels]
    stacks = contents(folder, "*.tif")
    for level in levels:
        (level / INDEX).unlink()
    report = repair(folder)
    assert [level.guessed.count for level in report.levels] == [0] * len(levels)
    assert contents(folder, "*.tif") == stacks
    for number, level in enumerate(levels):
        if before[number] is not None and (number == 0 or name not in GHOSTS):
            assert places(level) == before[number]
    readers = open_readers(folder)
    for number, (reader, level) in enumerate(zip(readers, expected["levels"].values(), strict=True)):
        if number == 0 or name not in GHOSTS:
            check_level(reader, level["images"], [])
        reader.close()
    again(folder)


@pytest.mark.parametrize("name", ["java_10bit", "java_rgb", "java_rollover", "py_uint8", "lost_index", "py_12bit"])
def test_indexes_come_back_byte_for_byte_where_axes_are_written_in_one_order(tmp_path: Path, name: str) -> None:
    folder = copy(name, tmp_path)
    source = GOLDEN / ("empty_stack_file" if name == "lost_index" else name) / "data"
    (folder / INDEX).unlink(missing_ok=True)
    repair(folder)
    assert (folder / INDEX).read_bytes() == (source / INDEX).read_bytes()


@pytest.mark.parametrize("name", sorted(NO_AXES))
def test_frames_without_any_axes_are_counted(tmp_path: Path, name: str) -> None:
    folder = copy(name, tmp_path)
    rows = [numbers for _, numbers in places(folder).values()]
    (folder / INDEX).unlink()
    report = repair(folder)
    (level,) = report.levels
    assert level.guessed.count == level.recovered > 0
    found = places(folder)
    assert set(found) == {key_of({"image": number}) for number in range(level.recovered)}
    assert {numbers for _, numbers in found.values()} >= set(rows)
    again(folder)


def test_a_single_axis_that_counts_goes_on_counting(tmp_path: Path) -> None:
    """The reference writer buffers its index: a killed one lacks the last entries, and the metadata tell nothing."""
    folder = write_ndstorage(tmp_path, [{"time": time} for time in range(5, 11)], metadata=False)
    whole = places(folder)
    data = (folder / INDEX).read_bytes()
    (folder / INDEX).write_bytes(data[: len(data) // 2 - 10])
    age(folder)
    report = repair(folder)
    assert report.levels[0].guessed.count == report.levels[0].recovered == 4
    assert places(folder) == whole


@pytest.mark.parametrize("name", ["java_pyramid_u16", "java_pyramid_rgb_odd"])
def test_a_level_alone(tmp_path: Path, name: str) -> None:
    folder = copy(name, tmp_path)
    level = folder / "Downsampled_x4"
    whole = places(level)
    (level / INDEX).unlink()
    report = repair(next(level.glob("*.tif")))
    assert [Path(one.folder) for one in report.levels] == [level]
    assert places(level) == whole


def test_index_of_the_reference_writer_deleted_or_cut_at_every_byte(tmp_path: Path) -> None:
    folder = write_ndstorage(tmp_path, AXES)
    whole, content, stacks = places(folder), (folder / INDEX).read_bytes(), contents(folder, "*.tif")
    pixels = read_reference(folder)
    assert pixels == {key_of(axes): pixels_of(number).tobytes() for number, axes in enumerate(AXES)}
    for cut in range(len(content)):
        (folder / INDEX).write_bytes(content[:cut])
        report = repair(folder, force=True, disk=HastyDisk())
        assert (report.levels[0].kept + report.levels[0].recovered, report.lost) == (len(AXES), 0)
        assert places(folder) == whole, cut
        for backup in folder.glob(BACKUP_NAME + "*"):
            backup.unlink()
    (folder / INDEX).unlink()
    repair(folder, force=True)
    assert places(folder) == whole
    assert read_reference(folder) == read_ours(folder) == pixels
    assert contents(folder, "*.tif") == stacks


def test_a_cut_stack_loses_its_last_frames_and_says_which(tmp_path: Path) -> None:
    folder = write_ndstorage(tmp_path, AXES)
    (stack,) = folder.glob("*.tif")
    whole = places(folder)
    for lost, before in ((1, 0), (3, 1)):
        pixels = whole[key_of(AXES[-lost])][1][0]
        os.truncate(stack, pixels + 10)
        report = repair(folder, force=True)
        assert report.lost == lost - before
        assert {finding.file for finding in report.levels[0].lost} == {stack.name}
        assert places(folder) == {key_of(axes): whole[key_of(axes)] for axes in AXES[:-lost]}
        assert len(read_reference(folder)) == len(AXES) - lost


@pytest.mark.parametrize("reserved", [False, True])
def test_a_husk_of_the_java_writer(tmp_path: Path, reserved: bool) -> None:
    """Killed in mid-write: stack of 4 GiB with zeros behind the data, index of 25 MiB with zeros behind the entries."""
    folder = copy("java_rollover", tmp_path)
    whole = places(folder)
    last = folder / "jr_NDTiffStack_2.tif"
    content = last.read_bytes()
    end = len(content)
    torn = {key for key, (name, numbers) in whole.items() if name == last.name and numbers[0] > end // 2}
    with last.open("r+b") as file:  # the last frame is half written, and its page points behind itself
        file.truncate(end - 500)
        file.truncate(SPARSE_BYTES)
    if reserved:
        (folder / INDEX).write_bytes((folder / INDEX).read_bytes().ljust(25 * 2**20, b"\0"))
    else:
        (folder / INDEX).unlink()
    age(folder)
    report = repair(folder)
    assert report.lost == len(torn) == 1
    assert places(folder) == {key: place for key, place in whole.items() if key not in torn}
    assert last.stat().st_size == SPARSE_BYTES
    assert len(read_reference(folder)) == len(read_ours(folder)) == 5
    again(folder)


_WRITER = """
import sys, numpy, ndstorage
from tests.integrity.repair.damaged_sets import pixels_of
dataset = ndstorage.NDTiffDataset(sys.argv[1], name="acq", summary_metadata={}, writable=True)
dataset.initialize({"k": 1})
for number in range(10**6):
    dataset.put_image({"time": number}, pixels_of(number, (64, 80)), {"Axes": {"time": number}})
    print(number, flush=True)
"""


@pytest.mark.promise("repair")
@pytest.mark.slow
@pytest.mark.parametrize("frames", [1, 40, 200])
def test_a_killed_reference_writer(tmp_path: Path, frames: int) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=GOLDEN.parents[2]) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if line.split()[-1] == str(frames):
                writer.kill()
                break
        written = frames + 1 + sum(line.endswith("\n") for line in writer.stdout)
    (folder,) = tmp_path.iterdir()
    assert next(folder.glob("*.tif")).stat().st_size == SPARSE_BYTES
    age(folder)
    report = repair(folder)
    pixels = read_reference(folder)
    assert written <= len(pixels) <= written + 1
    assert report.lost <= 1
    assert pixels == read_ours(folder)
    assert pixels == {key_of({"time": t}): pixels_of(t, (64, 80)).tobytes() for t in range(len(pixels))}
    again(folder)


def test_bad_entries_are_dropped_and_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    good = [folder.add({"time": t}, image(t), publish=False) for t in range(3)]
    numbers = [int.from_bytes(one[-32 + 4 * i :][:4], "little") for one in good for i in range(8)]
    bad = {
        "another folder": entry({"time": 7}, tuple(numbers[:8]), "../" + STACK),
        "no such file": entry({"time": 7}, tuple(numbers[:8]), "b_NDTiffStack.tif"),
        "outside the file": entry({"time": 7}, (10**9, *numbers[1:8]), STACK),
        "wrong size": entry({"time": 7}, (numbers[0], 3, *numbers[2:8]), STACK),
        "again": good[0],
        "noise": b"\x07\0\0\0noise" * 3,
    }
    for name, data in bad.items():
        folder.path.joinpath(INDEX).write_bytes(good[0] + data + good[1] + good[2])
        report = repair(folder.path, force=True)
        assert report.levels[0].dropped.count == 1, name
        assert report.levels[0].dropped.first[0].offset == len(good[0])
        assert report.lost == (name in ("another folder", "no such file", "outside the file")), name
        assert (folder.path / INDEX).read_bytes() == b"".join(good), name


def test_an_entry_whose_page_is_damaged_is_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    entries = [folder.add({"time": t}, image(t)) for t in range(3)]
    directory = int.from_bytes(entries[1][-32:-28], "little") - 178
    with (folder.path / STACK).open("r+b") as file:
        file.seek(directory)
        file.write(b"\xff" * 100)
    report = repair(folder.path, force=True)
    assert report.is_whole
    assert report.lost == 0
    assert [finding.text for finding in report.levels[0].guessed] == [
        "the page's directory is damaged: the place is that of the old index"
    ]


def test_axes_named_unlike_the_others_are_doubted(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    for t in range(4):
        folder.add({"time": t}, image(t), metadata={"Axes": {"tile" if t == 2 else "time": t}})
    (folder.path / INDEX).unlink()
    (level,) = repair(folder.path, force=True).levels
    assert [finding.text for finding in level.guessed] == ["tile=2: axes unlike those of the others"]


def test_a_frame_placed_unlike_the_others_is_lost(tmp_path: Path) -> None:
    """With an index its entry tells the place; without, nothing does."""
    folder = Folder(tmp_path / "data")
    pixels = [int.from_bytes(folder.add({"time": t}, image(t, (30, 40)))[-32:-28], "little") for t in range(3)]
    with (folder.path / STACK).open("r+b") as file:
        file.seek(pixels[1] - 178 + 2 + 5 * 12 + 8)
        file.write((pixels[0] - 4).to_bytes(4, "little"))
    report = repair(folder.path, force=True)
    assert (report.is_whole, report.lost, report.levels[0].guessed.count) == (True, 0, 1)
    (folder.path / INDEX).unlink()
    report = repair(folder.path, force=True)
    assert [finding.offset for finding in report.levels[0].lost] == [pixels[1] - 178]
    assert set(places(folder.path)) == {key_of({"time": 0}), key_of({"time": 2})}


@pytest.mark.parametrize(("listed", "told", "taken"), [(9, 1, 9), (2, 1, 1), (1, 2, 1)])
def test_axes_that_index_and_page_tell_differently(tmp_path: Path, listed: int, told: int, taken: int) -> None:
    """The index counts, unless another frame has its axes."""
    folder = Folder(tmp_path / "data")
    for t in range(4):
        axes = {"time": listed if t == 1 else t}
        folder.add(axes, image(t), metadata={"Axes": {"time": told if t == 1 else t}})
    report = repair(folder.path, force=True)
    assert report.levels[0].guessed.count == 1
    assert {key_of({"time": t}) for t in (0, taken, 2, 3)} == set(places(folder.path))


def test_a_writer_whose_metadata_tell_other_axes_is_believed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    for t in range(4):
        folder.add({"time": t}, image(t), metadata={"Axes": {"time": t + 100}})
    report = repair(folder.path, force=True)
    assert report.is_whole
    assert report.levels[0].guessed.count == 0


def test_an_order_of_its_own_stays_and_what_was_lost_comes_behind(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    entries = [folder.add({"time": t}, image(t), publish=False) for t in range(4)]
    (folder.path / INDEX).write_bytes(entries[3] + entries[1])
    repair(folder.path, force=True)
    assert list(places(folder.path)) == [key_of({"time": t}) for t in (3, 1, 0, 2)]


def test_other_tiff_files_are_left_out(tmp_path: Path) -> None:
    folder = write_ndstorage(tmp_path, AXES)
    (folder / "overview.tif").write_bytes(b"II*\0" + b"\0" * 100)
    (folder / INDEX).unlink()
    age(folder)
    report = repair(folder)
    assert report.levels[0].notes == [
        "overview.tif does not belong to the dataset and is left alone: it is not a stack file"
    ]
    assert len(read_ours(folder)) == len(AXES)


def test_missing_stack_files_and_hidden_frames_are_noted(tmp_path: Path) -> None:
    folder = copy("java_rollover", tmp_path)
    (folder / "jr_NDTiffStack_1.tif").rename(folder / "jr_NDTiffStack_7.tif")
    (folder / "jr_NDTiffStack.tif").write_bytes((folder / "jr_NDTiffStack_2.tif").read_bytes())
    (folder / INDEX).unlink()
    notes = repair(folder, force=True).levels[0].notes
    assert notes == [
        "stack files 1 to 1 of jr_NDTiffStack are not there",
        "stack files 3 to 6 of jr_NDTiffStack are not there",
        "2 frames have the axes of a later one, which readers show instead",
    ]


def test_empty_stack_files_are_named(tmp_path: Path) -> None:
    folder = copy("empty_stack_file", tmp_path)
    report = repair(folder)
    assert "acq_NDTiffStack_1.tif: is empty" in report.levels[0].notes[0]


@pytest.mark.parametrize("name", ["lost_index", "torn_index", "zero_tail", "java_pyramid_u16"])
def test_a_dry_run_tells_the_same_and_writes_nothing(tmp_path: Path, name: str) -> None:
    folder = copy(name, tmp_path)
    if name == "java_pyramid_u16":
        for index in folder.rglob(INDEX):
            index.unlink()
    before = signatures(folder)
    dry = repair(folder, dry_run=True)
    assert signatures(folder) == before
    real = repair(folder)
    assert (dry.dry_run, real.dry_run) == (True, False)
    assert dry.levels == real.levels
    assert signatures(folder) != before


def test_what_is_being_written_is_refused(tmp_path: Path) -> None:
    folder = copy("torn_index", tmp_path)
    before = contents(folder)
    for path in (folder / INDEX, folder / "acq_NDTiffStack.tif"):
        os.utime(path)
        with pytest.raises(DatasetLocked, match=f"{path.name} changed 0 s ago.*--force"):
            repair(folder)
        os.utime(path, (time.time() - 11, time.time() - 11))
    assert contents(folder) == before
    repair(folder)
    assert contents(folder) != before


def test_what_grows_while_it_is_looked_at_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy("torn_index", tmp_path)

    def grow(*args: Any, **kinds: Any) -> Any:
        with (folder / "acq_NDTiffStack.tif").open("ab") as file:
            file.write(b"more")
        return rebuild_index(*args, **kinds)

    monkeypatch.setattr("acqstream.integrity.repair.rebuild_index", grow)
    before = (folder / INDEX).read_bytes()
    with pytest.raises(DatasetLocked, match="changed while it was looked at"):
        repair(folder)
    assert (folder / INDEX).read_bytes() == before


def test_backups_are_numbered_and_never_overwritten(tmp_path: Path) -> None:
    folder = write_ndstorage(tmp_path, AXES)
    content = (folder / INDEX).read_bytes()
    reports: list[RepairReport] = []
    for cut in (10, 20, 30, 20):
        (folder / INDEX).write_bytes(content[:cut])
        reports.append(repair(folder, force=True))
    names = [report.levels[0].backup for report in reports]
    assert names == [BACKUP_NAME, f"{BACKUP_NAME}-2", f"{BACKUP_NAME}-3", f"{BACKUP_NAME}-2"]
    assert [(folder / name).stat().st_size for name in names] == [10, 20, 30, 20]
    assert len(read_reference(folder)) == len(AXES)


def test_what_is_no_dataset_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match="nothing"):
        repair(tmp_path / "absent")
    with pytest.raises(UnknownFormat, match=r"neither NDTiff\.index nor"):
        repair(tmp_path)
    (tmp_path / INDEX).write_bytes(entry({"time": 0}))
    age(tmp_path)
    with pytest.raises(CorruptDataset, match="no stack file"):
        repair(tmp_path)
    with pytest.raises(UnsupportedFeature, match="versions 0 and 1"):
        repair(copy("v1_0_uint16", tmp_path))


def test_images_are_those_of_the_golden_sets(tmp_path: Path) -> None:
    """An oracle for the oracle: pixels by their published hashes, through the public reader."""
    folder = copy("lost_index", tmp_path)
    repair(folder)
    with acqstream.open(folder) as dataset:
        for expected in SETS["lost_index"]["recoverable_from_tiff"]:
            pixels = dataset.read_frame(expected["axes"])
            assert hashlib.sha256(pixels.tobytes()).hexdigest() == expected["sha256"]
    (reader,) = open_readers(folder)
    check_image(reader, SETS["lost_index"]["recoverable_from_tiff"][0])
    reader.close()
