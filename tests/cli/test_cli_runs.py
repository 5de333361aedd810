"""`acqstream ls`, `mv`, `cp`, `rm`: what a user types and sees."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from acqstream.dataset.run_transfer import remove_run
from tests.command import command
from tests.dataset.killing_disk import Killed, KillingDisk
from tests.dataset.made_runs import make_run


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    return tmp_path / "data"


def typed(*arguments: str, code: int = 0) -> None:
    assert command(*arguments) == code


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    capsys.readouterr()
    typed("ls", *arguments, "--json")
    return [run["name"] for run in json.loads(capsys.readouterr().out)]


def test_a_run_takes_two_lines_of_80_columns(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells")
    typed("ls")
    first, second, total = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"cells +complete  n5", first)
    assert re.fullmatch(r"    \d{4}-\d\d-\d\d \d\d:\d\d +2 frames +[\d.]+ kB  time 2, channel DAPI", second)
    assert total.startswith("1 run, ")
    assert max(map(len, (first, second))) <= 80


def test_a_long_name_has_a_line_of_its_own(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / ("c" * 79), mirror=False)
    typed("ls")
    first, state, *_ = capsys.readouterr().out.splitlines()
    assert (first, state) == ("c" * 79, "    complete")


def test_words_and_options_choose_runs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells", summary={"Sample": "HeLa"})
    (data / "anna").mkdir()
    make_run(data / "anna" / "worms", mirror=False)
    assert listed(capsys) == ["anna/worms", "cells"]
    assert listed(capsys, "HELA") == ["cells"]
    assert listed(capsys, "anna/wo") == ["anna/worms"]
    assert listed(capsys, "anna") == ["worms"]
    assert listed(capsys, "cells") == ["cells"]  # a run, and so a word
    assert listed(capsys, str(data), "hela", "dapi") == ["cells"]
    assert listed(capsys, "--channel", "dapi") == ["anna/worms", "cells"]
    assert listed(capsys, "--channel", "gfp") == []
    assert listed(capsys, "--since", "1h") == ["anna/worms", "cells"]
    assert listed(capsys, "--since", "2999-01-01") == []
    assert listed(capsys, "--size", "1MB") == []
    assert listed(capsys, "--size", "<1 MB") == ["anna/worms", "cells"]


@pytest.mark.parametrize("option", [("--since", "yesterday"), ("--size", "big"), ("--since", "999999w")])
def test_a_bad_option_is_wrong_usage(data: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str]) -> None:
    typed("ls", *option, code=2)
    assert option[1] in capsys.readouterr().err
    assert list(data.iterdir()) == []


def test_json_has_all_of_a_run(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells")
    typed("ls", str(data), "--json")
    [run] = json.loads(capsys.readouterr().out)
    assert run["path"] == str(data / "cells")
    assert run["parts"] == ["cells.n5", "cells.n5.view"]
    assert run["mirrors"] == {"n5": "complete"}
    assert run["channels"] == ["DAPI"]
    assert run["size_bytes"] > 0


def test_an_abandoned_run_and_an_unfinished_mirror_are_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells")
    state = data / "cells" / "acqstream.json"
    state.write_text(state.read_text().replace("COMPLETE", "RUNNING"))
    (data / "cells" / "acqstream.mirror.n5.json").unlink()
    for part in ("cells.n5", "cells.n5.view"):
        shutil.rmtree(data / part)
    typed("ls")
    first = capsys.readouterr().out.splitlines()[0]
    assert re.fullmatch(r"cells +abandoned  n5 \(unfinished\)", first)


def test_moved_copied_and_removed_by_their_names(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells")
    (data / "anna").mkdir()
    typed("mv", "cells", "anna")
    typed("cp", "anna/cells", "worms")
    assert "compared all files" in capsys.readouterr().out
    assert sorted(listed(capsys)) == ["anna/cells", "worms"]
    typed("rm", "worms", "--copy", "anna/cells", "--yes")
    assert listed(capsys) == ["anna/cells"]
    typed("rm", "anna/cells.n5", "--yes")
    assert [path.name for path in (data / "anna").iterdir()] == ["cells"]


def test_the_only_copy_goes_by_force_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells")
    make_run(data / "other", mirror=False, count=3)
    typed("rm", "cells", "--yes", code=1)
    assert "may be the only copy" in capsys.readouterr().err
    for copy in ("other", "cells", "missing"):
        typed("rm", "cells", "--yes", "--copy", copy, code=1)
        assert "is no copy of" in capsys.readouterr().err
    assert sorted(listed(capsys)) == ["cells", "other"]
    typed("rm", "cells", "--yes", "--force")
    typed("rm", "cells", "--yes", "--force", code=1)
    assert listed(capsys) == ["other"]


def test_rm_asks(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(data / "cells")
    asked: list[str] = []

    def confirm(text: str) -> bool:
        asked.append(text)
        return len(asked) > 1

    monkeypatch.setattr("typer.confirm", confirm)
    typed("rm", "cells", "--force", code=1)
    assert (data / "cells").exists()
    assert asked[0].startswith("Remove cells with cells.n5, cells.n5.view, ")
    typed("rm", "cells", "--force")
    assert not (data / "cells").exists()


def test_a_mirror_without_its_dataset_is_the_only_copy(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells")
    shutil.rmtree(data / "cells")
    typed("rm", "cells.n5", "--yes", code=1)
    assert "may be the only copy" in capsys.readouterr().err
    typed("rm", "cells.n5", "--yes", "--force")
    assert list(data.iterdir()) == []


def test_a_run_without_frames_and_an_abandoned_one(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "empty", mirror=False, count=0)
    typed("rm", "empty", "--yes")
    make_run(data / "cells", mirror=False)
    state = data / "cells" / "acqstream.json"
    state.write_text(state.read_text().replace("COMPLETE", "RUNNING"))
    typed("mv", "cells", "worms", code=75)
    assert "is RUNNING by its acqstream.json" in capsys.readouterr().err
    typed("rm", "cells", "--yes", "--force")
    assert list(data.iterdir()) == []


def test_an_interrupted_removal_is_shown_and_finished(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells")
    with pytest.raises(Killed):
        remove_run(data / "cells", disk=KillingDisk(9))
    typed("ls")
    assert re.search(r"\.cells\.removing-\w+ is of a command that was interrupted", capsys.readouterr().out)
    typed("rm", "cells")
    assert list(data.iterdir()) == []


def test_info_of_a_directory_lists_its_runs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "anna").mkdir()
    for name in ("anna/cells", "anna/worms"):
        make_run(data / name)
    (data / "empty").mkdir()
    for place in (data, data / "anna"):
        typed("ls", str(place))
        lines = capsys.readouterr().out
        typed("info", str(place))
        assert capsys.readouterr().out == lines
        assert "worms" in lines
    typed("info", str(data / "empty"), code=1)
    typed("info", str(data / "anna" / "cells"))
    assert "format  ndtiff" in capsys.readouterr().out


def test_inside_a_run_and_with_dots_and_slashes(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(data / "cells")
    make_run(data / "worms")
    monkeypatch.chdir(data / "cells")
    assert listed(capsys) == ["cells"]
    assert listed(capsys, "../worms/") == ["worms"]
    monkeypatch.chdir(data / "cells.n5")
    typed("mv", "../cells/.", "../worms/../cells_2/")
    assert sorted(path.name for path in data.iterdir() if path.name.startswith("cells")) == [
        *("cells_2", "cells_2.n5", "cells_2.n5.view")
    ]
    monkeypatch.chdir(data / "worms")
    typed("rm", ".", "--yes", "--force")
    assert sorted(path.name for path in data.iterdir()) == ["cells_2", "cells_2.n5", "cells_2.n5.view"]


def test_info_of_a_run_that_begins_lists_no_level_of_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(data / "cells", mirror=False, count=0)
    (data / "cells" / "Full resolution").mkdir()
    state = data / "cells" / "acqstream.json"
    state.write_text(state.read_text().replace("COMPLETE", "RUNNING"))
    typed("info", str(data / "cells"), code=1)
    assert not capsys.readouterr().out
