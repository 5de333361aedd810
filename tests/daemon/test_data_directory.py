"""The data directory: plain names, one holder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from acqstream.daemon import data_directory
from acqstream.daemon.data_directory import DataDirectory, check_name, own_process
from acqstream.errors import AcquisitionRefused, ConfigError, DatasetExists, DatasetLocked
from acqstream.model.daemon_note import DaemonNote, parse_daemon_note
from acqstream.storage.files import folder_tree
from acqstream.storage.files.directory_lock import LOCK_NAME, holder_of
from acqstream.storage.platform import FILES
from tests.host_system import make_link
from tests.waiting import until


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    opened = DataDirectory(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "name",
    ["a", "_a", "9", "cells.n5", "a-b_c.d", "A" * 100, "concert", "com", "nul_", "a b", "é", "Zellen am Rand 細胞 é"],
)
def test_plain_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["a/b", "anna/2026-11-29/embryo", "/".join(["A" * 100] * 6), "細胞/1"])
def test_names_with_folders(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-rf",
        "/etc",
        "a/",
        "a//b",
        "a/../b",
        "../a",
        "a/./b",
        "a/.hidden/b",
        ".hidden/a",
        "a/nul/b",
        "COM1.x/b",
        "a /b",
        "a./b",
        "a\\b/c",
        "C:/a",
        "a/b\0/c",
        "cells.n5.view/a",
        "a/b.VIEW/c",
        "a/Full resolution",
        "Downsampled_x2",
        "1/2/3/4/5/6/7",
        f"a/{'x' * 101}/b",
        "a\\b",
        " a",
        "a ",
        "a\n",
        "a\0",
        "a:",
        "a.",
        "x" * 101,
        "con",
        "NUL",
        "Aux.txt",
        "com1",
        "LPT9.tif",
        "a" * 5000,
    ],
)
def test_other_names_are_refused(directory: DataDirectory, name: str) -> None:
    with pytest.raises(AcquisitionRefused) as info:
        directory.choose(name, number_if_taken=True, in_use=set())
    assert info.value.code == "bad_name"
    assert repr(name)[:100] in str(info.value)
    assert len(str(info.value)) < 400


def choose(directory: DataDirectory, name: str, *in_use: str) -> str:
    path = directory.choose(name, number_if_taken=True, in_use=set(in_use))
    assert directory.name_of(path) == path.relative_to(directory.path).as_posix()
    return directory.name_of(path)


def test_a_name_with_folders(directory: DataDirectory) -> None:
    (directory.path / "Anna" / "day" / "cells").mkdir(parents=True)
    (directory.path / "Anna" / "day" / "cells" / "NDTiff.index").touch()
    assert choose(directory, "Anna/other/cells") == "Anna/other/cells"
    assert choose(directory, "Anna/day/cells") == "Anna/day/cells_1"
    assert choose(directory, "anna/DAY/Cells") == "Anna/day/Cells_1", "one folder on Windows and macOS"
    assert choose(directory, "Anna/day/cells", "anna/DAY/CELLS_7", "other/cells_9") == "Anna/day/cells_8"
    assert choose(directory, "Anna") == "Anna_1"
    assert directory.find("anna/day/cells") == directory.path / "Anna" / "day" / "cells"
    assert directory.find("bob/day/cells") == directory.path / "bob" / "day" / "cells"


def test_folders_that_no_log_has_made_yet(directory: DataDirectory) -> None:
    """A plan is made before the folders of the runs that were opened before it."""
    assert choose(directory, "anna", "anna/day/cells") == "anna_1"
    with pytest.raises(AcquisitionRefused, match="anna is a dataset that is being recorded; expected a folder"):
        choose(directory, "Anna/day/cells", "anna")


def refused(directory: DataDirectory, name: str) -> str:
    errors = []
    for where in (directory.find, lambda name: choose(directory, name)):
        with pytest.raises(AcquisitionRefused) as info:
            where(name)
        assert info.value.code == "bad_name"
        errors.append(str(info.value))
    assert errors[0] == errors[1]
    return errors[0]


def test_a_link_is_no_folder_for_runs(directory: DataDirectory, tmp_path_factory: pytest.TempPathFactory) -> None:
    make_link(directory.path / "link", tmp_path_factory.mktemp("elsewhere"))
    text = f"{directory.path / 'link'} is a link; expected a folder for datasets: use another name"
    assert refused(directory, "link/cells") == text


def test_a_folder_that_runs_cannot_be_in(directory: DataDirectory) -> None:
    top = directory.path
    for name in ("run", "half", "run.n5", "run.n5.view", "run.pyramid", "alone.wkw", "alone.wkw.view", "foreign.zarr"):
        (top / name).mkdir()
    (top / "run" / "NDTiff.index").touch()
    (top / "half" / "acqstream.journal").touch()
    (top / "foreign.zarr" / "zarr.json").write_text("{}")
    (top / "file").write_text("")
    before = sorted(top.rglob("*"))
    for name in ("run", "half", "run.n5", "RUN", "run.pyramid", "alone.wkw", "foreign.zarr"):
        assert "is a dataset, a part of one, or a container of another format" in refused(directory, f"{name}/cells")
    assert "file is a file; expected a folder for datasets" in refused(directory, "file/cells")
    assert sorted(top.rglob("*")) == before, "nothing was made or removed"


def test_datasets_in_folders_are_found_but_not_in_runs_mirrors_and_links(
    directory: DataDirectory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    top, elsewhere = directory.path, tmp_path_factory.mktemp("elsewhere")
    datasets = ["flat", "anna/day/cells", "anna/more", "a/b/c/d/e/f", "half"]
    for name in (*datasets, "flat/inside", "flat.n5/inside", "foreign/inside", "anna/.stage/cells", "a/b/c/d/e/g/h"):
        (top / name).mkdir(parents=True)
        (top / name / "NDTiff.index").touch()
    (top / "half" / "NDTiff.index").rename(top / "half" / "acqstream.journal")
    (top / "flat.n5.view").mkdir()
    (top / "foreign" / "attributes.json").write_text("{}")
    (elsewhere / "cells").mkdir()
    (elsewhere / "cells" / "NDTiff.index").touch()
    make_link(top / "anna" / "link", elsewhere)
    found = [directory.name_of(path) for path in directory.folders()]
    assert sorted({*datasets} - {*found}) == []
    assert not [name for name in found if "inside" in name or name.endswith("h") or "link" in name]
    assert "anna/.stage/cells" not in found


def begun(folder: Path) -> Path:
    """A dataset as a log begins it."""
    folder.mkdir(parents=True)
    (folder / "acqstream.json").touch()
    return folder


def found_in(directory: DataDirectory) -> list[str]:
    return [directory.name_of(path) for path in directory.folders()]


@pytest.mark.parametrize("name", ["info", "attributes.json", "acqstream_demo", "acqstream.json", "NDTiff.index"])
def test_a_run_may_have_a_name_that_containers_give_to_files(directory: DataDirectory, name: str) -> None:
    run = begun(directory.path / "anna" / name)
    begun(directory.path / "anna" / "crashed")
    (directory.path / "anna" / "acqstream.log").touch()
    assert choose(directory, "anna/next") == "anna/next"
    assert directory.find(f"anna/{name}") == run
    assert sorted(found_in(directory)) == sorted([f"anna/{name}", "anna/crashed"])


@pytest.mark.parametrize("name", ["info", "acqstream.notes.jsonl", "zarr.json"])
def test_a_file_as_of_a_container_locks_no_run_out(directory: DataDirectory, name: str) -> None:
    run = begun(directory.path / "anna" / "crashed")
    half = directory.path / "anna" / "half"
    half.mkdir()
    (half / "acqstream.journal").touch()
    (directory.path / "anna" / name).touch()
    assert directory.find("anna/crashed") == run
    assert {"anna/crashed", "anna/half"} <= {*found_in(directory)}
    assert "or a container of another format" in refused(directory, "anna/next")


def test_no_folder_is_made_under_the_name_of_a_part(directory: DataDirectory) -> None:
    top = directory.path
    begun(top / "cells")
    (top / "cells" / "acqstream.mirror.n5.json").touch()
    (top / "left.view").mkdir()
    for name in ("cells.pyramid", "cells.n5", "left"):
        text = f"{top / name} is named as a part of a dataset; expected a folder for datasets: use another name"
        assert refused(directory, f"{name}/x") == refused(directory, f"{name}/day/x") == text
    assert choose(directory, "cells.2026/x") == "cells.2026/x"
    for run in ("anna/run", "ANNA/Run"):
        with pytest.raises(AcquisitionRefused, match=r"named as a part of .*un, which is being recorded") as info:
            choose(directory, "anna/run.n5/x", run, "anna/other")
        assert info.value.code == "bad_name"
    assert choose(directory, "bob/run.n5/x", "anna/run") == "bob/run.n5/x"
    (top / "anna" / "run.2026").mkdir(parents=True)
    assert choose(directory, "anna/run.2026/x", "anna/run") == "anna/run.2026/x", "it was there before"
    assert choose(directory, "anna/runs/x", "anna/run", "anna.b", "anna/runs/x/more") == "anna/runs/x_1"


def test_a_run_that_lies_in_a_part_is_found(directory: DataDirectory) -> None:
    begun(directory.path / "cells")
    run = begun(directory.path / "cells.pyramid" / "x")
    assert directory.find("cells.pyramid/x") == run
    for name in ("y", "x/y"):
        assert f"{run.parent} is a dataset, a part of one" in refused(directory, f"cells.pyramid/{name}")


def test_the_data_directory_of_another_daemon_is_left_alone(
    directory: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    inner = directory.path / "anna" / "data"
    begun(inner / "run")
    begun(inner / "day" / "run")
    other = DataDirectory(inner)
    for name in ("anna/data/run", "anna/data/new", "anna/data/day/new"):
        assert f"{inner} is the data directory of another daemon, acqstream pid" in refused(directory, name)
    assert found_in(directory) == []
    assert [one.getMessage() for one in caplog.records if "another daemon" in one.getMessage()] != []
    (inner / "info").touch()
    assert found_in(directory) == ["anna/data"]
    (inner / "info").unlink()
    other.close()
    assert sorted(found_in(directory)) == ["anna/data/day/run", "anna/data/run"]
    assert choose(directory, "anna/data/new") == "anna/data/new"


def test_a_lock_file_that_cannot_be_read_is_told(directory: DataDirectory, tmp_path: Path) -> None:
    folder = begun(tmp_path / "anna" / "run").parent
    (folder / LOCK_NAME).mkdir()
    (folder / LOCK_NAME / "more").touch()
    if not os.lstat(folder / LOCK_NAME).st_size:
        pytest.skip("folders have no size here")
    assert "another daemon, or its lock file is damaged" in refused(directory, "anna/run")
    assert found_in(directory) == []


def test_a_daemon_elsewhere_that_has_ended_is_waited_for_once(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock shows on other machines, but a heartbeat does."""
    begun(directory.path / "anna" / "run")
    lock, waits = directory.path / "anna" / LOCK_NAME, []
    lock.write_text("acqstream pid 7 on other\n\nboot space 7 1.00 00000000000000000001\n")

    def look(seconds: float) -> None:
        waits.append(seconds)
        if is_alive:
            lock.write_text(f"acqstream pid 7 on other\n\nboot space 7 1.00 {len(waits):020d}\n")

    monkeypatch.setattr(data_directory, "WATCH_S", 0.01)
    monkeypatch.setattr(time, "sleep", look)
    is_alive = True
    assert "another daemon, acqstream pid 7 on other" in refused(directory, "anna/x")
    is_alive = False
    assert choose(directory, "anna/x") == "anna/x"
    waits.clear()
    assert choose(directory, "anna/x") == "anna/x"
    assert not waits


def test_of_too_many_folders_those_that_changed_last_are_looked_into(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    top = directory.path
    monkeypatch.setattr(data_directory, "MAX_BRANCHES", 4)
    for number in range(6):
        begun(top / "anna" / f"day{number}" / "run")
        os.utime(top / "anna" / f"day{number}", (number, number))
    for number in range(20):
        (top / "anna" / f"plain{number}").mkdir()
        (top / "anna" / f"plain{number}" / "image.tif").touch()
    assert found_in(directory) == ["anna/day5/run", "anna/day4/run", "anna/day3/run"]
    assert [one.getMessage() for one in caplog.records] == [
        f"{top} has more than 4 folders without a dataset: what is in further ones is not recovered"
    ]
    caplog.clear()
    monkeypatch.setattr(data_directory, "MAX_BRANCHES", 7)
    assert len(found_in(directory)) == 6
    assert not caplog.records


def test_names_are_compared_without_regard_to_case(directory: DataDirectory) -> None:
    (directory.path / "Cells" / "Full resolution").mkdir(parents=True)  # empty, it may be the same folder
    for name, in_use in (("cells", set()), ("CELLS", set()), ("other", {"OTHER"})):
        with pytest.raises(DatasetExists, match=name):
            directory.choose(name, number_if_taken=False, in_use=in_use)
    assert directory.choose("cells2", number_if_taken=False, in_use={"a"}) == directory.path / "cells2"


def test_names_are_compared_without_regard_to_the_form_of_unicode(directory: DataDirectory) -> None:
    composed, apart = "Zellen \u00e9", "Zellen e\u0301"
    (directory.path / apart / "Full resolution").mkdir(parents=True)
    with pytest.raises(DatasetExists):
        directory.choose(composed, number_if_taken=False, in_use=set())
    assert directory.choose(composed, number_if_taken=True, in_use=set()).name == f"{composed}_1"
    assert directory.find(composed) == directory.path / apart
    assert directory.find("other \u00e9") == directory.path / "other \u00e9"
    for upper in ("ZELLEN \u00c9", "ZELLEN E\u0301"):
        with pytest.raises(DatasetExists):
            directory.choose(upper, number_if_taken=False, in_use=set())


def test_a_locale_that_cannot_name_files_is_told(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
    assert directory.choose("cells", number_if_taken=False, in_use=set()).name == "cells"
    with pytest.raises(AcquisitionRefused, match="are in iso8859-1; start the daemon in a UTF-8 locale"):
        directory.choose("細胞", number_if_taken=False, in_use=set())


def test_a_taken_name_gets_the_next_free_number(directory: DataDirectory) -> None:
    for name in ("cells", "cells_1"):
        (directory.path / name / "Full resolution").mkdir(parents=True)
    (directory.path / "cells_2").write_text("a file takes a name too")
    assert directory.choose("cells", number_if_taken=True, in_use=set()).name == "cells_3"
    assert directory.choose("Cells", number_if_taken=True, in_use={"cells_3"}).name == "Cells_4"
    assert directory.choose("free", number_if_taken=True, in_use=set()).name == "free"


def test_an_empty_folder_takes_no_name(directory: DataDirectory) -> None:
    """A daemon leaves one that is killed right after it has made it."""
    (directory.path / "cells").mkdir()
    assert directory.choose("cells", number_if_taken=False, in_use=set()) == directory.path / "cells"
    assert not (directory.path / "cells").exists()


def test_an_empty_folder_that_is_being_filled_takes_its_name(directory: DataDirectory) -> None:
    (directory.path / "cells").mkdir()
    with pytest.raises(DatasetExists):
        directory.choose("cells", number_if_taken=False, in_use={"Cells"})
    assert (directory.path / "cells").is_dir()


@pytest.mark.skipif(sys.platform != "linux", reason="names are Unicode elsewhere")
def test_a_directory_that_no_message_can_name_is_refused(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/M\xfcller"
    os.mkdir(folder)
    with pytest.raises(ConfigError, match=r"M\\xfcller has a name that is not UTF-8"):
        DataDirectory(Path(os.fsdecode(folder)))


def test_a_number_that_makes_a_name_too_long_is_refused(directory: DataDirectory) -> None:
    (directory.path / ("x" * 100) / "notes").mkdir(parents=True)
    with pytest.raises(AcquisitionRefused) as info:
        directory.choose("x" * 100, number_if_taken=True, in_use=set())
    assert info.value.code == "bad_name"


@pytest.mark.parametrize("has_content", [True, False])
def test_a_link_to_a_folder_is_not_removed(
    directory: DataDirectory,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    has_content: bool,
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if has_content:
        (elsewhere / "image.tif").touch()
    make_link(directory.path / "link", elsewhere)
    monkeypatch.setattr(os, "rmdir", os.unlink)  # of a link, as RemoveDirectoryW does
    with pytest.raises(DatasetExists):
        directory.choose("link", number_if_taken=False, in_use=set())
    assert (directory.path / "link").is_symlink()


def test_a_dangling_link_takes_a_name_and_is_no_dataset(directory: DataDirectory, tmp_path: Path) -> None:
    make_link(directory.path / "link", tmp_path / "nowhere")
    (directory.path / "folder").mkdir()
    (directory.path / "folder" / "NDTiff.index").touch()
    make_link(directory.path / "other", directory.path / "folder")
    with pytest.raises(DatasetExists):
        directory.choose("link", number_if_taken=False, in_use=set())
    assert [path.name for path in directory.folders()] == ["folder"]


@pytest.mark.promise("one-writer")
def test_a_second_holder_is_refused_and_told_who_is_there(directory: DataDirectory) -> None:
    with pytest.raises(DatasetLocked, match=str(os.getpid())):
        DataDirectory(directory.path)


def test_it_may_be_had_again_after_its_end(tmp_path: Path) -> None:
    for _ in range(2):
        DataDirectory(tmp_path).close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        DataDirectory(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file"):
        DataDirectory(tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "fixed").mkdir(mode=0o500)
    with pytest.raises(ConfigError, match="not writable"):
        DataDirectory(tmp_path / "fixed")


def test_a_junction_is_no_dataset(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reports it as a folder; where it leads, another daemon may record."""
    (directory.path / "cells").mkdir()
    (directory.path / "cells" / "NDTiff.index").touch()
    assert [folder.name for folder in directory.folders()] == ["cells"]
    monkeypatch.setattr(folder_tree, "is_junction", lambda status: True)
    assert list(directory.folders()) == []


def test_a_name_that_makes_paths_too_long_is_refused(directory: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows hides files with longer paths from Python: recovery would miss them."""
    longest = len(str(directory.path / "cells" / "Full resolution" / "cells_NDTiffStack_1000.tif.part"))
    monkeypatch.setattr(data_directory, "max_path_characters", lambda: longest - 1)
    with pytest.raises(AcquisitionRefused, match="LongPathsEnabled") as caught:
        directory.choose("cells", number_if_taken=False, in_use=set())
    assert caught.value.code == "bad_name"
    monkeypatch.setattr(data_directory, "max_path_characters", lambda: longest + 40)
    assert directory.choose("cells", number_if_taken=False, in_use=set()).name == "cells"
    with pytest.raises(AcquisitionRefused, match="LongPathsEnabled"):
        directory.choose("cells" * 5, number_if_taken=False, in_use=set())


def test_a_daemon_names_its_endpoints_in_the_lock_file_and_starts_without_that_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note = DaemonNote(endpoints=("tcp://127.0.0.1:1",), boot="b", log="/data/.acqstream.log")
    directory = DataDirectory(tmp_path)
    try:
        directory.announce(note)
        holder = holder_of(str(tmp_path))
        assert holder is not None
        assert parse_daemon_note(holder.note) == note

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(FILES, "pwritev", full)
        directory.announce(note)
        assert "cannot find this daemon by its data directory" in caplog.text
    finally:
        directory.close()


def lock_text(process: str, beats: int) -> str:
    return f"acqstream pid 7 on other\n\n{process} {beats:020d}\n"


@pytest.mark.parametrize("beats", [True, False])
def test_a_daemon_that_cannot_be_seen_is_known_by_its_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beats: bool
) -> None:
    monkeypatch.setattr(data_directory, "WATCH_S", 2.0)
    lock, ended = tmp_path / LOCK_NAME, threading.Event()
    lock.write_text(lock_text("another-boot - 7 1.00", 1))

    def beat() -> None:
        while not ended.wait(0.1):
            lock.write_text(lock_text("another-boot - 7 1.00", time.monotonic_ns()))

    thread = threading.Thread(target=beat)
    try:
        if beats:
            thread.start()
            with pytest.raises(DatasetLocked, match=r"pid 7 on other; .*its heartbeat in the directory goes on"):
                DataDirectory(tmp_path)
        else:
            directory = DataDirectory(tmp_path)
            assert not directory.is_predecessor_dead
            directory.close()
    finally:
        ended.set()
        if beats:
            thread.join()


def test_a_process_that_may_not_be_looked_at_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(_number: int) -> None:
        raise psutil.AccessDenied

    boot, space, _, started = own_process().split()
    monkeypatch.setattr(psutil, "Process", hidden)
    monkeypatch.setattr(data_directory, "own_process", lambda: f"{boot} {space} 7 {started}")
    assert data_directory.is_running(f"{boot} {space} 8 {started}") is None


@pytest.mark.parametrize("number", ["dead", "given again"])
def test_a_dead_daemon_of_this_machine_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    boot, space, pid, started = own_process().split()
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    pid, started = (str(dead.pid), started) if number == "dead" else (str(os.getppid()), "1.00")
    (tmp_path / LOCK_NAME).write_text(lock_text(f"{boot} {space} {pid} {started}", 1))
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    directory = DataDirectory(tmp_path)
    monkeypatch.undo()
    assert directory.is_predecessor_dead
    directory.close()


def test_a_lock_file_that_vanishes_is_made_and_locked_again(tmp_path: Path, directory: DataDirectory) -> None:
    directory.announce(DaemonNote(endpoints=("tcp://127.0.0.1:1",)))
    for vanish in (
        Path.unlink,
        lambda path: path.rename(path.with_name("elsewhere")),
        lambda path: path.write_text(""),
    ):
        vanish(tmp_path / LOCK_NAME)
        until(lambda: "tcp://127.0.0.1:1" in _text(tmp_path / LOCK_NAME), "the note")
        with pytest.raises(DatasetLocked):
            DataDirectory(tmp_path)


def test_two_that_start_at_one_moment_do_not_both_run(tmp_path: Path, directory: DataDirectory) -> None:
    (tmp_path / LOCK_NAME).write_text(lock_text("another-boot - 7 1.00", 1))  # by another mount
    with pytest.raises(DatasetLocked, match=r"pid 7 on other; .*it has taken the directory"):
        directory.announce(DaemonNote(endpoints=("tcp://127.0.0.1:1",)))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
