"""Runs that are moved, copied and removed with all their parts: complete before, complete after, and killed between."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import acqstream
from acqstream.dataset.run_files import JOURNAL_NAME, RunFiles, fingerprint, same_frames
from acqstream.dataset.run_transfer import copy_run, finish_removal, interrupted_in, move_run, remove_run
from acqstream.errors import ConfigError, CorruptDataset, DatasetError, DatasetExists, DatasetLocked, StorageError
from acqstream.integrity.verify import verify
from acqstream.log.journal import JOURNAL_NAME as LOG_JOURNAL_NAME
from acqstream.mirrors.mirror_container import read_note
from acqstream.mirrors.run_end import mirror_results
from acqstream.storage.files.directory_lock import DirectoryLock
from acqstream.storage.files.disk import LocalDisk
from acqstream.storage.platform import FILES
from tests.dataset.killing_disk import Killed, KillingDisk
from tests.dataset.made_runs import content, make_run
from tests.host_system import make_link
from tests.log.make_frames import write_log

BDV = {"format": "n5", "layout": "bdv", "compression": "raw"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "archive").mkdir()
    make_run(tmp_path / "data" / "other")
    return tmp_path / "data"


@pytest.fixture
def cells(data: Path) -> Path:
    return make_run(data / "cells", settings=BDV)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("other"))


def frames(run: Path) -> dict[str, bytes]:
    """The files of a dataset but the records, whose paths may differ."""
    return {name: data for name, data in content(run).items() if "acqstream.mirror" not in name}


def check_run(run: Path, old: dict[str, bytes]) -> None:
    """A complete run with its mirror, whose notes name the place where it is."""
    assert frames(run) == old
    assert verify(run).ok
    (result,) = mirror_results(run)
    assert (result.state, result.path) == ("complete", f"../{run.name}.n5")
    note = read_note(run.with_name(f"{run.name}.n5.view"))
    assert note is not None
    assert note.container == str(run.with_name(f"{run.name}.n5"))
    with acqstream.open(run) as ds, ds.open_mirror("n5") as mirror:
        assert mirror.path == run.with_name(f"{run.name}.n5")
        assert mirror.levels[0].read().sum() == ds.levels[0].read().sum()
    with acqstream.open(run.with_name(f"{run.name}.xml")) as listed:
        assert listed.levels[0].read().any()


PARTS = ["cells", "cells.n5", "cells.n5.view", "cells.xml"]


def test_the_journal_is_the_one_of_the_log() -> None:
    assert JOURNAL_NAME == LOG_JOURNAL_NAME


def test_removed_with_all_parts_and_nothing_else(cells: Path, data: Path) -> None:
    before = content(data)
    assert names(data) == PARTS
    remove_run(cells)
    assert names(data) == []
    assert content(data) == {name: data for name, data in before.items() if name.startswith("other")}


def test_moved_to_a_folder_and_renamed(cells: Path, data: Path, tmp_path: Path) -> None:
    old = frames(cells)
    move_run(cells, tmp_path / "archive" / "cells")
    assert names(data) == []
    check_run(tmp_path / "archive" / "cells", old)
    move_run(tmp_path / "archive" / "cells", data / "worms 2")
    assert names(tmp_path / "archive") == []
    assert names(data) == sorted(name.replace("cells", "worms 2", 1) for name in PARTS)
    check_run(data / "worms 2", old)


def test_copied_and_both_are_complete(cells: Path, data: Path, tmp_path: Path) -> None:
    old, copied = frames(cells), 0

    def count(size: int) -> None:
        nonlocal copied
        copied += size

    copy_run(cells, data / "worms", on_bytes=count)
    check_run(cells, old)
    check_run(data / "worms", old)
    assert copied >= sum(map(len, old.values()))
    assert same_frames(cells, data / "worms")
    copy_run(cells, tmp_path / "archive" / "cells")
    check_run(tmp_path / "archive" / "cells", old)


def test_a_mirror_alone_can_go_and_stays_recorded(cells: Path, data: Path) -> None:
    remove_run(data / "cells.n5")
    assert names(data) == ["cells"]
    assert verify(cells).ok


def test_an_orphaned_mirror_moves_with_its_notes(cells: Path, data: Path) -> None:
    shutil.rmtree(cells)
    move_run(data / "cells.n5", data / "worms.n5")
    assert names(data) == ["worms.n5", "worms.n5.view", "worms.xml"]
    for name in ("worms.n5", "worms.xml"):
        with acqstream.open(data / name) as ds:
            assert ds.levels[0].read().any()


def move(source: Path, target: Path, disk: LocalDisk) -> None:
    move_run(source, target, disk=disk)


def copy(source: Path, target: Path, disk: LocalDisk) -> None:
    copy_run(source, target, disk=disk)


def remove(source: Path, target: Path, disk: LocalDisk) -> None:
    assert target
    remove_run(source, disk=disk)


def move_to_another_disk(source: Path, target: Path, disk: LocalDisk) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("acqstream.dataset.run_transfer._is_on_another_disk", lambda one, _other: one.exists())
        move_run(source, target, disk=disk)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("act", [move, copy, remove, move_to_another_disk])
def test_killed_at_any_call_the_same_call_finishes(
    data: Path, tmp_path: Path, act: Callable[[Path, Path, LocalDisk], None]
) -> None:
    (tmp_path / "kept").mkdir()
    kept = make_run(tmp_path / "kept" / "cells", settings=BDV)
    old, target = frames(kept), tmp_path / "archive" / "worms"
    for calls in range(10_000):
        for folder in (data, tmp_path / "archive"):
            shutil.rmtree(folder)
            folder.mkdir()
        for part in PARTS:
            one = kept.parent / part
            shutil.copytree(one, data / part) if one.is_dir() else shutil.copy(one, data / part)
        disk = KillingDisk(calls)
        try:
            act(data / "cells", target, disk)
        except Killed:
            # A dataset that can be seen is complete, wherever it is.
            for run in (data / "cells", target):
                assert not run.exists() or frames(run) == old, calls
            act(data / "cells", target, LocalDisk())
        if act is not remove:
            check_run(target, old)
            assert names(target.parent) == sorted(name.replace("cells", "worms", 1) for name in PARTS)
        assert names(data) == (PARTS if act is copy else []), calls
        if disk.left >= 0:
            break
    assert calls > 5


def test_a_mirror_by_reference_moves_with_its_frames_and_keeps_its_name(data: Path, tmp_path: Path) -> None:
    cells = make_run(data / "frames", settings={"format": "hsds", "pixels": "reference"}, mirror_name="hsds")
    with acqstream.open(cells) as ds:
        pixels = ds.levels[0].read()
    for act in (move, copy):
        with pytest.raises(DatasetError, match="keep the name"):
            act(cells, data / "worms", LocalDisk())
    for act in (copy, move):
        target = tmp_path / act.__name__
        target.mkdir()
        act(cells, target / "frames", LocalDisk())
        with acqstream.open(target / "frames") as ds, ds.open_mirror("hsds") as mirror:
            assert np.array_equal(np.squeeze(mirror.levels[0].read()), np.squeeze(pixels))
    assert not cells.exists()


class FailingDisk(LocalDisk):
    """Cannot rename the dataset itself: a viewer on Windows has one of its files open."""

    def replace(self, source: str, target: str) -> None:
        if source.endswith("cells"):
            raise PermissionError(errno.EACCES, "a program has a file of the folder open", source)
        super().replace(source, target)


@pytest.mark.parametrize("act", [move, remove])
def test_what_cannot_be_moved_stays_as_it_was(
    cells: Path, data: Path, tmp_path: Path, act: Callable[[Path, Path, LocalDisk], None]
) -> None:
    before = content(data)
    with pytest.raises(StorageError, match="a program has a file"):
        act(cells, tmp_path / "archive" / "cells", FailingDisk())
    assert content(data) == before
    assert names(tmp_path / "archive") == []


class FullDisk(LocalDisk):
    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        raise OSError(errno.ENOSPC, "no space left")


def test_a_full_disk_leaves_no_part_of_a_copy(cells: Path, data: Path, tmp_path: Path) -> None:
    before = content(data)
    with pytest.raises(StorageError):
        copy_run(cells, tmp_path / "archive" / "cells", disk=FullDisk())
    assert list((tmp_path / "archive").iterdir()) == []
    assert content(data) == before


class LyingDisk(LocalDisk):
    def pwritev(self, fd: int, buffers: Sequence[memoryview | bytes], offset: int) -> int:
        (first, *_) = buffers
        return super().pwritev(fd, [b"\0" * len(first)], offset)


class FillingDisk(LocalDisk):
    """Takes so many new files, and has no space after that."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def open(self, path: str, *, create: bool, direct: bool = False) -> int:
        self.left -= create
        if create and self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().open(path, create=create, direct=direct)


@pytest.mark.parametrize("act", [move, remove])
def test_on_a_full_disk_a_run_goes_or_stays(
    data: Path, tmp_path: Path, act: Callable[[Path, Path, LocalDisk], None]
) -> None:
    cells, target = make_run(data / "cells", settings=BDV), tmp_path / "archive" / "worms"
    before, n_files, is_done = content(tmp_path), 0, False
    while not is_done:
        try:
            act(cells, target, FillingDisk(n_files))
        except StorageError as error:
            assert "all of the run is where it was" in str(error)  # noqa: PT017 - or no error
            assert str(cells) in str(error)  # noqa: PT017
            assert content(tmp_path) == before
            assert interrupted_in(data) == interrupted_in(tmp_path / "archive") == []
            n_files += 1
        else:
            is_done = True
    assert n_files >= (4 if act is move else 1)
    assert [one.name for one in data.iterdir() if one.name.startswith("cells")] == []
    assert [one.state for one in mirror_results(target)] == (["complete"] if act is move else [])


def test_a_copy_whose_original_cannot_be_removed_is_named(cells: Path, data: Path, tmp_path: Path) -> None:
    target, before = tmp_path / "archive" / "worms", content(data)

    class FullAtTheEnd(LocalDisk):
        def open(self, path: str, *, create: bool, direct: bool = False) -> int:
            if create and ".removing-" in path and ".checked" in path:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return super().open(path, create=create, direct=direct)

    with pytest.raises(StorageError, match="could not be removed, repeat the command") as caught:
        move_to_another_disk(cells, target, FullAtTheEnd())
    assert f"the copy at {target} is complete" in str(caught.value)
    assert "nothing" not in str(caught.value)
    assert content(data) == before
    assert frames(target) == frames(cells)
    move_to_another_disk(cells, target, LocalDisk())
    assert (cells.exists(), target.exists()) == (False, True)


def test_a_note_that_cannot_be_read_leaves_no_run_in_a_hidden_folder(cells: Path, data: Path, tmp_path: Path) -> None:
    listing, target, before = data / "cells.xml", tmp_path / "archive" / "worms", names(data)
    os.truncate(listing, 2**31)  # more than is read
    with pytest.raises(DatasetError, match=r"all of the run is where it was: .*worms\.xml"):
        move_run(cells, target)
    assert names(data) == before
    assert interrupted_in(tmp_path / "archive") == []
    listing.write_text("<SpimData/>")
    move_run(cells, target)
    assert (cells.exists(), target.exists()) == (False, True)


def test_a_copy_that_differs_is_no_copy(cells: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptDataset, match="the copy differs"):
        copy_run(cells, tmp_path / "archive" / "cells", disk=LyingDisk())
    assert list((tmp_path / "archive").iterdir()) == []


@pytest.mark.parametrize("act", [move, copy, remove])
def test_what_is_open_is_refused(
    cells: Path, data: Path, tmp_path: Path, act: Callable[[Path, Path, LocalDisk], None]
) -> None:
    before, target = content(data), tmp_path / "archive" / "cells"
    with DirectoryLock(str(data / "cells.n5.view")), pytest.raises(DatasetLocked, match="being made"):
        act(cells, target, LocalDisk())
    journal = FILES.open_for_reading(str(cells / JOURNAL_NAME))
    assert FILES.try_lock(journal)
    with pytest.raises(DatasetLocked, match="being recorded"):
        act(cells, target, LocalDisk())
    FILES.close(journal)
    state = cells / "acqstream.json"
    text = state.read_text()
    state.write_text(text.replace("COMPLETE", "RUNNING"))
    with pytest.raises(DatasetLocked, match="RUNNING"):
        act(cells, target, LocalDisk())
    state.write_text(text)
    assert content(data) == before
    act(cells, target, LocalDisk())


def test_opened_while_it_was_moved_it_is_moved_back(
    cells: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(data)
    checked = RunFiles.check_closed

    def check_closed(run: RunFiles, folder: Path, name: str, *, is_forced: bool = False) -> None:
        if folder != data:
            raise DatasetLocked("a daemon was faster")
        checked(run, folder, name, is_forced=is_forced)

    monkeypatch.setattr(RunFiles, "check_closed", check_closed)
    for act in (move, remove):
        with pytest.raises(DatasetLocked, match="faster"):
            act(cells, tmp_path / "archive" / "worms", LocalDisk())
        assert content(data) == before
        assert names(data) == PARTS


def test_names_that_are_taken_bad_or_inside(cells: Path, data: Path) -> None:
    before = content(data)
    for act in (move, copy):
        for name in ("other", "OTHER", "cells"):
            with pytest.raises(DatasetExists):
                act(cells, data / name, LocalDisk())
        for name in (".hidden", "a:b", "con", "a."):
            with pytest.raises(ConfigError, match="cannot be called"):
                act(cells, data / name, LocalDisk())
        with pytest.raises(DatasetError, match="inside"):
            act(cells, cells / "worms", LocalDisk())
        with pytest.raises(StorageError, match="no such folder"):
            act(cells, data / "missing" / "cells", LocalDisk())
        (data / "worms.n5").mkdir()
        with pytest.raises(DatasetExists, match=r"worms\.n5"):
            act(cells, data / "worms", LocalDisk())
        (data / "worms.n5").rmdir()
    assert content(data) == before


def test_what_is_no_run_or_a_part_is_refused(cells: Path, data: Path, tmp_path: Path) -> None:
    (data / "notes").mkdir()
    for name in ("notes", "missing", "cells.n5.view"):
        for act in (move, copy, remove):
            with pytest.raises(DatasetError):
                act(data / name, tmp_path / "archive" / "x", LocalDisk())
    with pytest.raises(DatasetError, match="a part of"):
        move_run(data / "cells.n5", tmp_path / "archive" / "cells.n5")
    assert names(data) == ["cells", "cells.n5", "cells.n5.view", "cells.xml", "notes"]


def test_a_mirror_of_another_dataset_is_not_taken_along(cells: Path, data: Path) -> None:
    view = data / "cells.n5.view" / "view.json"
    view.write_text(json.dumps({**json.loads(view.read_text()), "dataset_id": "f" * 32}))
    with pytest.raises(DatasetError, match="of another dataset"):
        remove_run(cells)
    assert names(data) == PARTS


def test_links_are_refused_and_what_they_lead_to_stays(cells: Path, data: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    make_link(data / "link", cells)
    for act in (move, copy, remove):
        with pytest.raises(StorageError, match="link"):
            act(data / "link", tmp_path / "archive" / "x", LocalDisk())
    make_link(cells / "inside", elsewhere)
    with pytest.raises(DatasetError, match="link out of the run"):
        copy_run(cells, data / "worms")
    assert not same_frames(cells, cells)
    remove_run(cells)
    assert (elsewhere / "file").exists()


def test_a_new_run_of_the_same_name_survives_the_end_of_an_old_removal(cells: Path, data: Path) -> None:
    with pytest.raises(Killed):
        remove_run(cells, disk=KillingDisk(9))
    assert not cells.exists()
    new = make_run(data / "cells", mirror=False)
    old = frames(new)
    with pytest.raises(DatasetExists, match="is newer"):
        remove_run(cells)
    assert frames(new) == old
    assert names(data) == ["cells"]


def test_a_copy_without_all_parts_does_not_let_a_move_remove_them(
    cells: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acqstream.dataset.run_transfer._is_on_another_disk", lambda one, _other: one.exists())
    copy_run(cells, tmp_path / "archive" / "cells")
    shutil.rmtree(tmp_path / "archive" / "cells.n5")
    with pytest.raises(DatasetExists):
        move_run(cells, tmp_path / "archive" / "cells")
    assert names(data) == PARTS


def test_same_frames_sees_each_difference(cells: Path, data: Path) -> None:
    copy_run(cells, data / "worms")
    stack = next((data / "worms").glob("*.tif"))
    whole = stack.read_bytes()
    for changed in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
        stack.write_bytes(changed)
        assert not same_frames(cells, data / "worms")
    stack.unlink()
    assert not same_frames(cells, data / "worms")


def test_one_command_at_a_time(cells: Path, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "archive" / "cells"
    others: list[str] = []

    def another(_count: int) -> None:
        if not others:
            assert interrupted_in(target.parent) == []
            with pytest.raises(DatasetLocked, match="another command") as info:
                copy_run(cells, target)
            others.append(str(info.value))

    old = frames(cells)
    copy_run(cells, target, on_bytes=another)
    assert len(others) == 1
    check_run(target, old)
    assert names(data) == PARTS


@pytest.mark.parametrize("act", [copy_run, move_run])
def test_what_changes_while_it_is_copied_is_not_lost(
    cells: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[..., None]
) -> None:
    monkeypatch.setattr("acqstream.dataset.run_transfer._is_on_another_disk", lambda one, _other: one.exists())
    seen = 0

    def change(count: int) -> None:
        nonlocal seen
        seen += count
        (cells / "NDTiffStack_1.tif").write_bytes(bytes(seen))

    with pytest.raises(DatasetError, match="changed while it was copied"):
        act(cells, tmp_path / "archive" / "cells", on_bytes=change)
    assert names(data) == PARTS
    assert (cells / "NDTiffStack_1.tif").stat().st_size == seen
    assert list((tmp_path / "archive").iterdir()) == []


def test_a_copy_that_waited_for_its_name_is_made_again_if_the_run_has_changed(
    cells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acqstream.dataset.run_transfer._is_on_another_disk", lambda one, _other: one.exists())
    target = tmp_path / "archive" / "cells"

    def take_name(_count: int) -> None:
        target.mkdir(exist_ok=True)

    with pytest.raises(DatasetExists, match="repeat"):
        copy_run(cells, target, on_bytes=take_name)
    target.rmdir()
    (cells / "late").write_bytes(b"frames")
    move_run(cells, target)
    assert (target / "late").read_bytes() == b"frames"
    assert not cells.exists()


def test_changed_between_the_comparison_and_the_removal(cells: Path, data: Path, tmp_path: Path) -> None:
    copy_run(cells, tmp_path / "archive" / "cells")
    known = fingerprint(data, RunFiles(cells).names)
    (cells / "late").write_bytes(b"frames")
    before = content(data)
    with pytest.raises(DatasetError, match="was changed"):
        remove_run(cells, known=known)
    assert content(data) == before


def test_a_run_is_no_copy_of_itself(cells: Path, data: Path, tmp_path: Path) -> None:
    before, stand_in = content(data), tmp_path / "archive" / "cells"
    shutil.copytree(cells, stand_in)
    shutil.rmtree(stand_in)
    make_link(stand_in, cells)  # as another mount of the same disk
    with pytest.raises(DatasetError, match=r"changes with|is no copy"):
        remove_run(cells, copy=stand_in)
    assert content(data) == before
    stand_in.unlink()
    copy_run(cells, stand_in)
    remove_run(cells, copy=stand_in)
    assert names(data) == []
    assert verify(stand_in).ok


@pytest.mark.parametrize("calls", range(1, 8))
def test_a_removal_that_was_not_sure_is_undone(cells: Path, data: Path, calls: int) -> None:
    before = content(data)
    with pytest.raises(Killed):
        remove_run(cells, disk=KillingDisk(calls))
    assert not finish_removal(cells)
    assert content(data) == before
    with pytest.raises(Killed):
        remove_run(cells, disk=KillingDisk(calls))
    (stage,) = [path for path in data.iterdir() if path.name.startswith(".")]
    journal = FILES.open_for_reading(str((stage / "cells" if (stage / "cells").exists() else cells) / JOURNAL_NAME))
    assert FILES.try_lock(journal)
    with pytest.raises(DatasetLocked):
        remove_run(cells)
    FILES.close(journal)
    assert content(data) == before


def test_a_killed_removal_of_a_mirror_is_finished(cells: Path, data: Path) -> None:
    for calls in range(100):
        disk = KillingDisk(calls)
        try:
            remove_run(data / "cells.n5", disk=disk)
            break
        except Killed:
            if not finish_removal(data / "cells.n5"):
                assert names(data) == PARTS
                continue
            break
    assert names(data) == ["cells"]
    assert verify(cells).ok


@pytest.mark.parametrize("damage", ["no index", "empty index"])
def test_frames_without_an_index_are_frames(cells: Path, damage: str) -> None:
    for file in ("acqstream.receipt.json", "NDTiff.index"):
        (cells / file).unlink(missing_ok=True)
    if damage == "empty index":
        (cells / "NDTiff.index").touch()
    assert RunFiles(cells).is_only_copy


def test_a_run_without_frames_is_no_loss(data: Path) -> None:
    write_log(data / "empty", [])
    assert not RunFiles(data / "empty").is_only_copy


@pytest.mark.parametrize("name", ["x", "day/x"])
def test_runs_in_a_folder_that_has_the_name_of_a_part_are_not_removed(tmp_path: Path, name: str) -> None:
    cells = make_run(tmp_path / "cells", mirror=False)
    (tmp_path / "cells.pyramid" / name).parent.mkdir(parents=True)
    other = make_run(tmp_path / "cells.pyramid" / name, mirror=False)
    before = content(tmp_path)
    text = f"{other} is a run of its own in {tmp_path / 'cells.pyramid'}, a part of {cells}: move it out first"
    for change in (lambda: remove_run(cells), lambda: move_run(cells, tmp_path / "moved")):
        with pytest.raises(DatasetError) as info:
            change()
        assert str(info.value) == text
    assert content(tmp_path) == before
    move_run(other, tmp_path / "out")
    remove_run(cells)
    assert (tmp_path / "out" / "NDTiff.index").is_file()
