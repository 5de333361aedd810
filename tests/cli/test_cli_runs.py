"""`acqstream ls`: what a user types and sees."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from acqstream.cli.main import main
from tests.dataset.made_runs import make_run


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    return tmp_path / "data"


def typed(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert (end.value.code or 0) == code


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
