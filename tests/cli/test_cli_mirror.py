from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import acqstream
from acqstream.dataset.run_list import disk_bytes
from acqstream.formats.ndtiff.reader import open_readers
from acqstream.model.acquisition_spec import TileSpec
from acqstream.model.units import shell_word, size_text
from acqstream.storage.files.directory_lock import DirectoryLock
from tests.command import command
from tests.log.make_frames import frame_of, write_log
from tests.views.view_sums import sums_of

GOLDEN = Path(__file__).parents[1] / "golden" / "ndtiff"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "java_rgb" / "data", tmp_path / "data"))


def run(*arguments: str) -> int:
    return command("mirror", *arguments)


def test_the_view_lies_beside_the_dataset(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = open_readers(data)[0]
    sums = sums_of(reader.read_pixels(row) for row in range(len(reader)))
    reader.close()
    assert run(str(data), "--to", "null") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{data}.null: complete, 3 frames"
    assert dict(line.split() for line in lines[1:]) == {name: str(value) for name, value in sums.items()}
    assert run(str(data / "NDTiff.index"), "--to", "null", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "path": f"{data}.null",
        "state": "complete",
        "frames": 3,
        "of": 3,
        "reason": "",
        "warning": "",
        "result": sums,
    }


def test_it_says_why_it_began_anew(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(str(data), "--to", "null")
    (data.with_name("data.null") / "view.json").write_text("{}")
    capsys.readouterr()
    assert run(str(data), "--to", "null") == 0
    assert capsys.readouterr().out.startswith("restarted: ")


def test_an_unknown_view_is_wrong_usage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(data), "--to", "n6") == 2
    assert "'n6' is not known; pyramid, n5" in capsys.readouterr().err
    assert not data.with_name("data.n6").exists()


def test_one_that_somebody_else_makes(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.with_name("data.null").mkdir()
    with DirectoryLock(f"{data}.null"):
        assert run(str(data), "--to", "null") == 75
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "is in use by acqstream pid" in error
    assert "wait until it is done" in error
    assert "data directory" not in error


def test_nothing_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path / "cells"), "--to", "null") == 1
    assert capsys.readouterr().err == f"acqstream: {tmp_path / 'cells'}: no such file or folder\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_has_no_name(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(data), tmp_path.anchor, "--to", "n5") == 2
    assert "is no folder of a mirror" in capsys.readouterr().err
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run(str(data), ".", "--to", "n5") == 0
    assert (tmp_path / "here.view" / "mirror.json").exists()
    (tmp_path / "here" / "own").mkdir()
    monkeypatch.chdir(tmp_path / "here" / "own")
    assert run(str(data), "..", "--to", "n5") == 0  # the same mirror


def test_levels_are_added_and_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(shutil.copytree(GOLDEN / "java_pyramid_u16" / "data", tmp_path / "data"))
    before = (data / "Downsampled_x2" / "NDTiff.index").read_bytes()
    assert run(str(data), "--to", "pyramid") == 1
    assert "--rebuild" in capsys.readouterr().err
    assert (data / "Downsampled_x2" / "NDTiff.index").read_bytes() == before
    assert run(str(data), "--to", "pyramid", "--rebuild", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["frames"]) == ("complete", told["of"])
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == [
        "Downsampled_x2",
        "Downsampled_x4",
        "Downsampled_x8",
        "Full resolution",
    ]
    assert told["result"]["Downsampled_x8"] == len(open_readers(data)[3]) > 0
    assert (data / "Downsampled_x2" / "NDTiff.index").read_bytes() != before
    assert run(str(data), "--to", "pyramid") == 0
    assert f"\nDownsampled_x8 {told['result']['Downsampled_x8']}\n" in capsys.readouterr().out


def test_only_pyramids_are_made_again(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(data), "--to", "null", "--rebuild") == 2
    assert "mirrors and pyramids" in capsys.readouterr().err


def test_flat_datasets_get_no_levels(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(data), "--to", "pyramid") == 1
    assert "data is flat: resolution levels are made of tiles" in capsys.readouterr().err


def golden(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "py_uint16" / "data", tmp_path / "cells"))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--to", "n5", "--processes", "2", "--follow"), "a dataset that grows is followed by one process"),
        (("--to", "n5", "--scheduler", "tcp://localhost:1", "--follow"), "followed by one process"),
        (("--to", "n5", "--processes", "2", "--scheduler", "tcp://localhost:1"), "a cluster has its own number"),
        (("--to", "null", "--processes", "2"), "null is made by one process"),
    ],
)
def test_what_several_processes_cannot_do_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], text: str
) -> None:
    assert run(str(golden(tmp_path)), *more) == 2
    assert text in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert [path.name for path in tmp_path.iterdir()] == ["cells"]


def test_one_process_is_the_usual_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(golden(tmp_path)), "--to", "n5", "--processes", "1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["different"], told["compared"]) == ("complete", 0, told["frames"])


def test_a_dataset_that_was_cut_off_is_made_by_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = golden(tmp_path)
    index = cells / "NDTiff.index"
    content = index.read_bytes()
    index.write_bytes(content[: len(content) // 2])
    assert run(str(cells), "--to", "n5", "--processes", "2") == 2
    assert "is being written, or was cut off" in " ".join(capsys.readouterr().err.replace("│", "").split())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_mirror_is_gone_on_with_as_it_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells, out = golden(tmp_path), tmp_path / "cells.n5"
    assert run(str(cells), "--to", "n5", "--compression", "raw", "--option", "layout=array") == 0
    capsys.readouterr()
    for more in [(), ("--option", "layout=array", "--compression", "raw")]:
        assert run(str(cells), "--to", "n5", *more) == 0
        assert "anew" not in capsys.readouterr().out
        assert json.loads((out / "s0" / "attributes.json").read_bytes())["compression"] == {"type": "raw"}


@pytest.mark.parametrize("others", [("--to", "n5", "--compression", "bzip2"), ("--to", "wkw")])
def test_a_mirror_that_was_made_in_another_way_is_replaced_by_rebuild_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], others: tuple[str, ...]
) -> None:
    cells, out = golden(tmp_path), tmp_path / "copy"
    assert run(str(cells), str(out), "--to", "n5") == 0
    before = contents(out)
    capsys.readouterr()
    assert run(str(cells), str(out), *others) == 2
    told = " ".join(capsys.readouterr().err.replace("│", "").split())
    assert 'copy exists, made with {"format": "n5"}; --rebuild replaces it' in told
    assert contents(out) == before
    assert run(str(cells), str(out), *others, "--rebuild") == 0
    assert contents(out) != before
    shutil.rmtree(out)
    assert run(str(cells), str(out), "--to", "n5", "--compression", "raw") == 0
    assert "attributes.json" in contents(out)  # there was nothing to be lost


def test_a_mirror_in_jpeg_is_not_compared_but_proved_by_its_checksums(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--to", "precomputed", "--option", "encoding=jpeg", "--option", "jpeg_quality=80"
    assert run(str(data), *options, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["frames"], told["compared"], told["different"]) == ("complete", 3, 0, 0)
    assert "acqstream verify" in told["not_compared"]
    mirror = Path(told["result"]["container"])
    assert run(str(data), *options) == 0
    assert "not compared: its encoding loses detail" in capsys.readouterr().out
    copy = mirror.with_name("copy.precomputed")
    assert run(str(mirror), str(copy), "--to", "precomputed", "--option", "encoding=jpeg", "--json") == 0
    assert "acqstream verify" in json.loads(capsys.readouterr().out)["not_compared"]
    for folder in (mirror, copy):
        assert command("verify", folder, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["ok"], told["missing"]) == (True, 0)
    chunk = next(path for path in mirror.rglob("*-*_*-*_*-*"))
    chunk.write_bytes(chunk.read_bytes()[:-2] + b"\0\0")
    assert command("verify", mirror, "--json") == 3
    assert chunk.name in str(json.loads(capsys.readouterr().out)["problems"])


def test_a_mirror_inside_its_dataset_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in data.iterdir())
    assert run(str(data), str(data / "inside.n5"), "--to", "n5") != 0
    assert "is inside the dataset" in capsys.readouterr().err
    assert not (data / "inside.n5").exists()
    assert set(before) <= {path.name for path in data.iterdir()}


def test_tiles_become_images_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = [frame_of(n, (20, 30), axes={"row": n // 2, "column": n % 2}) for n in range(4)]
    write_log(tmp_path / "slide", frames, tiles=TileSpec((2, 4), 0, None))
    assert run(str(tmp_path / "slide"), "--to", "n5", "--tiles", "separate") == 0
    assert "all equal" in capsys.readouterr().out
    with acqstream.open(tmp_path / "slide.n5") as found:
        assert found.levels[0].shape == (2, 2, 20, 30)
    assert run(str(tmp_path / "slide"), str(tmp_path / "other.n5"), "--to", "n5", "--tiles", "joined") == 2
    assert "stitched" in capsys.readouterr().err
    assert run(str(tmp_path / "slide.n5"), "--to", "wkw", "--tiles", "separate") == 2
    assert "as it is stored" in capsys.readouterr().err


def opened(out: str, folder: Path) -> str:
    """What the last line of a verb prints, run in `folder`."""
    made, command = out.splitlines()[-2:]
    assert made.startswith("made ")
    line = command.removeprefix("open ").replace("acqstream", f"{shell_word(sys.executable)} -m acqstream", 1)
    folder.mkdir(exist_ok=True)
    no_screen = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    ended = subprocess.run(line, shell=True, cwd=folder, env=no_screen, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def test_a_mirror_ends_with_its_size_and_a_line_that_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "-o's $HOME" if os.name != "nt" else "o's 100% & co"
    (tmp_path / "data").mkdir()
    write_log(tmp_path / "data" / name, [frame_of(n) for n in range(3)], name=name)
    monkeypatch.chdir(tmp_path / "data")
    for source, kind, made in ((name, "n5", f"{name}.n5"), (f"{name}.n5", "wkw", f"{name}.wkw")):
        assert run("--to", kind, "--", source) == 0
        out = capsys.readouterr().out
        size = size_text(disk_bytes(tmp_path / "data" / made))
        assert out.splitlines()[-2].endswith(f"{made}, {size}")
        picture = Path(opened(out, tmp_path / "elsewhere"))
        assert picture.read_bytes()[:4] == b"\x89PNG"
        picture.unlink()


def test_levels_end_with_the_dataset_that_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(shutil.copytree(GOLDEN / "java_pyramid_u16" / "data", tmp_path / "data"))
    assert run(str(data), "--to", "pyramid", "--rebuild") == 0
    size = size_text(sum(disk_bytes(level) for level in data.glob("Downsampled_x*")))
    assert capsys.readouterr().out.splitlines()[-2:] == [f"made {data}, {size}", f"open acqstream view {data}"]
