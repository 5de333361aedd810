from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from PIL import Image

from acqstream.cli import view as view_module
from tests.command import command

DATA = Path(__file__).parents[1] / "golden" / "ndtiff" / "py_uint16" / "data"


def test_a_contact_sheet_goes_where_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sheet.png"
    assert command("view", DATA, "--png", file) == 0
    assert capsys.readouterr().out == f"{file}\n"
    with Image.open(file) as sheet:
        assert sheet.width > 100


def test_without_a_window_a_sheet_in_a_new_file_is_named_and_the_reason_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view_module, "find_spec", lambda name: None if name == "napari" else object())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert command("view", DATA) == 0
    out, err = capsys.readouterr()
    assert Path(out.strip()).parent == tmp_path
    assert Path(out.strip()).stat().st_size > 0
    assert "napari is not installed" in err


@pytest.mark.parametrize(
    ("installed", "variables", "reason"),
    [
        ({"napari"}, {"DISPLAY": ":0"}, "no Qt"),
        ({"napari", "PyQt6"}, {}, "no screen"),
        ({"napari", "PySide6"}, {"WAYLAND_DISPLAY": "wayland-0"}, ""),
    ],
)
def test_what_a_window_needs(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], variables: dict[str, str], reason: str
) -> None:
    monkeypatch.setattr(view_module, "find_spec", lambda name: object() if name in installed else None)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = view_module.why_no_window()
    assert reason in found if reason else not found


def test_with_a_window_it_is_shown_there(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr(view_module, "why_no_window", lambda: "")
    monkeypatch.setattr(view_module, "show_in_napari", lambda *given, **options: shown.append((*given, options)))
    for more in ([], ["--follow-links"], ["--follow"]):
        command("view", DATA, *more)
    options = [(False, False), (True, False), (False, True)]
    assert shown == [(DATA, {"follow_links": links, "follow": follow}) for links, follow in options]


def test_a_file_cannot_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("view", DATA, "--follow", "--png", tmp_path / "sheet.png") == 2
    assert "leave --png out" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_info_writes_one_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("info", DATA, "--png", tmp_path / "sheet.png") == 0
    assert "format  ndtiff" in capsys.readouterr().out
    assert (tmp_path / "sheet.png").exists()


def test_a_file_that_is_no_png_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("view", DATA, "--png", tmp_path / "NDTiff.index") == 78
    assert "ends in .png" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
