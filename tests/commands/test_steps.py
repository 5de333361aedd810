"""Folders that are made once, and again when their inputs change."""

from __future__ import annotations

from pathlib import Path

import pytest

import steps


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "pins.txt"
    path.write_text("a==1")
    return path


def test_a_folder_is_made_again_when_its_inputs_change_or_its_product_is_missing(tmp_path, source):
    folder, made = tmp_path / "environment", []

    def make(place):
        place.mkdir()
        (place / "python").touch()
        made.append(place)

    def ensure(details: str = "") -> int:
        steps.ensure(folder, folder / "python", [source], make, details)
        return len(made)

    assert [ensure(), ensure()] == [1, 1]
    source.write_text("a==2")
    assert [ensure(), ensure()] == [2, 2]
    (folder / "python").unlink()
    assert [ensure(), ensure()] == [3, 3]
    assert [ensure("other"), ensure("other")] == [4, 4]


def test_a_folder_whose_making_failed_is_made_again(tmp_path, source):
    folder = tmp_path / "environment"

    def fail(place):
        place.mkdir()
        (place / "python").touch()
        raise steps.StepFailed("no network", 5)

    for _ in range(2):
        with pytest.raises(steps.StepFailed):
            steps.ensure(folder, folder / "python", [source], fail)


def test_settings_that_slow_each_process_or_change_what_it_loads_are_left_out(monkeypatch):
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HYPOTHESIS_PROFILE", "ci")
    environment = steps.child_environment()
    assert {name for name in environment if name.startswith("PYTHON")} >= {"PYTHONNOUSERSITE", "PYTHONUTF8"}
    assert not environment.keys() & {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME"}
    assert environment["HYPOTHESIS_PROFILE"] == "ci"
