"""What earlier daemons left: half-made folders, finished runs, and mirrors that were removed since."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acqstream.daemon.crash_recovery import earlier_runs, growing_datasets, recover_all, unfinished_views
from acqstream.formats.ndtiff.folders import FULL_RESOLUTION, read_records
from acqstream.formats.ndtiff.index_entries import INDEX_NAME
from acqstream.log import journal
from acqstream.model.view_spec import MIRROR_STATES, ViewSpec
from acqstream.storage.platform import FILES
from acqstream.views.checkpoint import CHECKPOINT_NAME
from tests.log.crashed import crash
from tests.log.make_frames import frames_of, write_log
from tests.mirrors.mirror_cases import finish, run_of


def half_made(folder: Path, stack_folder: str = ".") -> Path:
    folder.mkdir()
    (folder / journal.JOURNAL_NAME).write_bytes(journal.encode_journal_header("0" * 32, clean=False))
    (folder / stack_folder).mkdir(exist_ok=True)
    (folder / stack_folder / INDEX_NAME).write_bytes(b"")
    return folder


@pytest.mark.parametrize("stack_folder", [".", FULL_RESOLUTION])
def test_a_folder_that_never_held_a_frame_gives_its_name_back(tmp_path: Path, stack_folder: str) -> None:
    folder = half_made(tmp_path / "cells", stack_folder)
    assert recover_all([folder]) == []
    assert not folder.exists()


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    for name, content in (("notes.txt", b"mine"), (journal.JOURNAL_NAME, b"\0" * (journal.HEADER_BYTES + 64))):
        folder = half_made(tmp_path / name)
        (folder / name).write_bytes(content)
        recover_all([folder])
        assert (folder / name).read_bytes() == content


def test_a_tiled_folder_with_a_stack_file_is_left_alone(tmp_path: Path) -> None:
    folder = half_made(tmp_path / "cells", FULL_RESOLUTION)
    stack = folder / FULL_RESOLUTION / "cells_NDTiffStack.tif"
    stack.write_bytes(b"mine")
    recover_all([folder])
    assert stack.read_bytes() == b"mine"


def test_a_folder_of_another_program_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    recover_all([folder])
    assert folder.is_dir()


def test_a_dataset_that_still_grows_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = crash(tmp_path / "cells", frames_of(3))
    assert growing_datasets([folder]) == set()
    ended = threading.Event()

    def grow() -> None:
        while not ended.wait(0.1):
            with (folder / "NDTiff.index").open("ab") as file:
                file.write(b"x")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        assert growing_datasets([folder, tmp_path]) == {folder}
    finally:
        ended.set()
        thread.join()
    assert "another program still writes it" in caplog.text


def test_a_folder_that_may_not_be_read_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    locked, good = half_made(tmp_path / "locked"), crash(tmp_path / "good", frames_of(3))
    iterdir = Path.iterdir

    def listed(folder: Path) -> Iterator[Path]:
        if folder == locked:
            raise PermissionError(13, "Permission denied", str(folder))
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", listed)
    earlier = earlier_runs([locked, good])
    assert [report.folder for report in recover_all(earlier.crashed)] == [str(good)]
    assert f"cannot recover {locked}: " in caplog.text


def finished(folder: Path, *views: str) -> Path:
    write_log(folder, frames_of(2), name=folder.name, views=tuple(map(ViewSpec, views)))
    return folder


def test_each_state_is_read_once_and_finished_runs_are_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Counter[str] = Counter()
    open_for_reading = FILES.open_for_reading

    def counting(path: str, **more: Any) -> int:
        opened[path] += 1
        return open_for_reading(path, **more)

    monkeypatch.setattr(type(FILES), "open_for_reading", staticmethod(counting))
    plain = finished(tmp_path / "plain")
    for count in (4, 8):
        data = tmp_path / str(count)
        for number in range(count):
            shutil.copytree(plain, data / f"run{number}")
            (data / f"run{number}.n5").mkdir()
        folders = sorted(data.iterdir())
        opened.clear()
        earlier = earlier_runs(folders)
        assert (earlier.crashed, earlier.viewed) == ([], [])
        assert growing_datasets(earlier.crashed) == set()
        assert recover_all(earlier.crashed) == []
        assert list(unfinished_views(earlier.viewed)) == []
        states = {str(folder / "acqstream.json") for folder in folders}  # a mirror has none: one look
        assert (set(opened), max(opened.values())) == (states, 1)


def test_only_what_needs_it_is_recovered_and_asked_for_views(tmp_path: Path) -> None:
    running = crash(tmp_path / "running", frames_of(3))
    half = half_made(tmp_path / "half")
    damaged = finished(tmp_path / "damaged", "null")
    (damaged / "acqstream.json").write_text("{")
    with_view = finished(tmp_path / "with_view", "null")
    finished(tmp_path / "plain")
    (tmp_path / "other").mkdir()
    earlier = earlier_runs(sorted(tmp_path.iterdir()))
    assert earlier.crashed == [damaged, half, running]
    assert earlier.viewed == [with_view]


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = finished(tmp_path_factory.mktemp("mirrored") / "cells", "n5")
    finish(run_of(cells))
    return cells


@pytest.fixture
def cells(mirrored: Path, tmp_path: Path) -> Path:
    shutil.copytree(mirrored.parent, tmp_path / "data")
    return tmp_path / "data" / "cells"


RECORD = "acqstream.mirror.n5.json"


def unfinished_of(cells: Path) -> list[str]:
    return [spec.name for folder, spec in unfinished_views([cells]) if folder == cells]


def set_record(cells: Path, **fields: Any) -> None:
    record = json.loads((cells / RECORD).read_text())
    (cells / RECORD).write_text(json.dumps(record | fields))


@pytest.mark.parametrize("parts", [["cells.n5"], ["cells.n5.view"], ["cells.n5", "cells.n5.view"]])
@pytest.mark.parametrize("state", [state for state in MIRROR_STATES if state != "removed"])
def test_a_mirror_that_had_ended_and_was_removed_stays_removed(cells: Path, state: str, parts: list[str]) -> None:
    set_record(cells, state=state)
    (cells.with_name("cells.n5.view") / CHECKPOINT_NAME).write_text("{")
    assert unfinished_of(cells) == ["n5"]  # it is there, and damaged
    for part in parts:
        shutil.rmtree(cells.with_name(part))
    assert unfinished_of(cells) == (["n5"] if state in ("running", "unfinished") else [])


def test_a_copy_and_a_renamed_run_get_no_mirror_again(cells: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(cells, tmp_path / "archive" / "cells"))
    assert unfinished_of(copy) == []
    assert unfinished_of(cells.rename(cells.with_name("other"))) == []


def test_a_mirror_that_never_ended_or_failed_early_is_made(cells: Path) -> None:
    for part in ("cells.n5", "cells.n5.view"):
        shutil.rmtree(cells.with_name(part))
    (cells / RECORD).write_text("{")  # damage says nothing
    assert unfinished_of(cells) == ["n5"]
    (cells / RECORD).unlink()
    assert unfinished_of(cells) == ["n5"]


def test_a_mirror_that_failed_before_its_first_frame_is_tried_again(cells: Path) -> None:
    set_record(cells, state="failed", frames=0)
    (cells.with_name("cells.n5.view") / CHECKPOINT_NAME).unlink()
    shutil.rmtree(cells.with_name("cells.n5"))
    assert unfinished_of(cells) == ["n5"]


def test_a_complete_mirror_without_its_record_gets_one(cells: Path) -> None:
    before = json.loads((cells / RECORD).read_text())
    (cells / RECORD).unlink()
    assert unfinished_of(cells) == []
    assert json.loads((cells / RECORD).read_text())["frames"] == before["frames"] == 2


def test_a_removed_mirror_is_made_on_request_and_then_continued(cells: Path) -> None:
    for part in ("cells.n5", "cells.n5.view"):
        shutil.rmtree(cells.with_name(part))
    run = run_of(cells)  # as `acqstream mirror`
    run.step()
    run.close()  # it is killed
    assert unfinished_of(cells) == ["n5"]
    finish(run_of(cells))
    assert unfinished_of(cells) == []


@pytest.mark.parametrize("unreadable", ["cells.n5.view", "cells"])
def test_what_cannot_be_read_of_one_run_does_not_end_the_search(
    cells: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, unreadable: str
) -> None:
    other = finished(cells.with_name("other"), "n5")
    listdir, open_for_reading = os.listdir, FILES.open_for_reading
    place = cells.with_name(unreadable)

    def checked(path: Any) -> Any:
        if Path(path) in (place, place / CHECKPOINT_NAME):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return path

    monkeypatch.setattr(os, "listdir", lambda path=".": listdir(checked(path)))
    monkeypatch.setattr(type(FILES), "open_for_reading", staticmethod(lambda path: open_for_reading(checked(path))))
    found = [folder for folder, _ in unfinished_views([cells, other])]
    assert found == ([other] if unreadable == "cells" else [cells, other])
    assert (f"cannot resume views of {cells}: " in caplog.text) == (unreadable == "cells")
    if unreadable != "cells":
        assert read_records(cells)["n5"].state == "complete"
