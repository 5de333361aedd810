"""`acqstream export`: what it prints and how it ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import tifffile

from acqstream.model.units import shell_word
from tests.command import command
from tests.export.sample_exports import write_cells


def run(*arguments: str) -> int:
    return command("export", *arguments)


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    write_cells(tmp_path / "cells")
    return tmp_path / "cells"


def test_a_report_for_people(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(cells), "--to", "ome-tiff") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    size = cells.with_name("cells.ome.tif").stat().st_size
    lines = captured.out.splitlines()
    assert lines[:-1] == [
        "shape   time 3, channel 2, z 4, y 40, x 70, uint16",
        "missing 1: read as 0",
        f"made {cells}.ome.tif, {size / 1000:.0f} kB",
    ]
    assert lines[-1].startswith("open ")


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("ome-tiff", "o's one.ome.tif", "40x70"),
        ("tiff", "two.tiff", "40x70"),
        ("hdf5", "three.h5", "shape ("),
        ("table", "four.csv", "time"),
        ("table", "five.parquet", "time"),
    ],
)
def test_the_last_line_opens_the_file(
    cells: Path, kind: str, name: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in {"hdf5": ["h5py"], "table": ["pyarrow"] if "parquet" in name else []}.get(kind, []):
        pytest.importorskip(package)
    monkeypatch.setattr("acqstream.cli.view.why_no_window", lambda: "no screen")
    monkeypatch.chdir(cells.parent)
    assert run("cells", name, "--to", kind) == 0
    made, command = capsys.readouterr().out.splitlines()[-2:]
    assert made.startswith((f"made {cells.with_name(name)}, ", f"made {name}, "))
    line, place = command.removeprefix("open "), cells.with_name("elsewhere")
    place.mkdir()
    ended = subprocess.run(line, shell=True, cwd=place, capture_output=True, text=True, check=True)
    assert words in ended.stdout
    if kind.endswith("tiff"):
        monkeypatch.setattr("acqstream.cli.view.why_no_window", lambda: "")
        assert run("cells", name, "--to", kind, "--overwrite") == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"open napari {shell_word(str(cells.with_name(name)))}"


def test_references_are_reported(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("h5py")
    assert run(str(cells), "--to", "hdf5") == 0
    assert "note: references are absolute paths of the stacks" in capsys.readouterr().out
    assert run(str(cells), str(cells.with_name("b.h5")), "--to", "hdf5", "--portable", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["references"] == 0
    assert report["notes"] == []


def test_a_document(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = cells.with_name("part.tif")
    assert run(str(cells), str(out), "--to", "tiff", "--select", "time=0:2 channel=GFP", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["path"] == str(out)
    assert report["shape"] == [2, 1, 4, 40, 70]
    assert report["missing"] == 1
    with tifffile.TiffFile(out) as file:
        assert len(file.pages) == 8


def test_an_existing_file_needs_overwrite(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = cells.with_name("cells.tif")
    out.write_bytes(b"mine")
    assert run(str(cells), "--to", "tiff") == 1
    assert capsys.readouterr().err == f"acqstream: {out} already exists: name another file, or use --overwrite\n"
    assert out.read_bytes() == b"mine"
    assert run(str(cells), "--to", "tiff", "--overwrite") == 0
    with tifffile.TiffFile(out) as file:
        assert len(file.pages) == 24


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "jpeg"], "'jpeg' is not a format of exports"),
        (["--to", "tiff", "--copy"], "--copy is for hdf5"),
        (["--to", "hdf5", "--compression", "zlib"], "needs --copy"),
        (["--to", "tiff", "--select", "time"], "must be AXIS=VALUE"),
    ],
)
def test_wrong_usage(cells: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert run(str(cells), *arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert [entry.name for entry in cells.parent.iterdir()] == ["cells"]


def test_a_choice_that_the_dataset_lacks(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(cells), "--to", "tiff", "--select", "depth=1") == 78
    assert "no axis 'depth'; expected one of time, channel, z, y, x" in capsys.readouterr().err
    assert [entry.name for entry in cells.parent.iterdir()] == ["cells"]


def test_a_missing_dataset_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path / "cells"), "--to", "tiff") == 1
    assert capsys.readouterr().err == f"acqstream: {tmp_path / 'cells'}: no such file or folder\n"


@pytest.mark.parametrize(
    ("python", "start"),
    [
        (r"C:\Python311\python.exe", r"C:\Python311\python.exe -c "),
        (r"C:\Program Files\python.exe", r'"C:\Program Files\python.exe" -c '),
        ("/my lab/bin/python", "'/my lab/bin/python' -c "),
    ],
)
def test_the_python_of_the_last_line_can_be_typed(
    cells: Path, python: str, start: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", python)
    assert run(str(cells), "--to", "table") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"open {start}")
