"""HDF5's own tools read our exports: another version of the library, without Python."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.export.sample_exports import export, write_cells

h5py = pytest.importorskip("h5py")

H5DUMP, H5LS = shutil.which("h5dump"), shutil.which("h5ls")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(H5DUMP is None or H5LS is None, reason="h5dump and h5ls (hdf5-tools) are not on the PATH"),
]
COPIES = pytest.mark.parametrize("is_copy", [False, True], ids=["reference", "copy"])


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    path = tmp_path_factory.mktemp("tools") / "cells"
    return path, write_cells(path)


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@COPIES
def test_h5dump_reads_every_pixel(cells: tuple[Path, np.ndarray], tmp_path: Path, is_copy: bool) -> None:
    path, array = cells
    report = export(path, "hdf5", tmp_path / "a.h5", is_copy=is_copy)
    raw = tmp_path / "pixels"
    run(H5DUMP, "-d", "/image", "-b", "LE", "-o", raw, report.path)
    np.testing.assert_array_equal(np.fromfile(raw, "<u2").reshape(array.shape), array)


@COPIES
def test_h5ls_lists_axes_and_stacks(cells: tuple[Path, np.ndarray], tmp_path: Path, is_copy: bool) -> None:
    report = export(cells[0], "hdf5", tmp_path / "a.h5", is_copy=is_copy)
    listed = dict(line.split(maxsplit=1) for line in run(H5LS, "-r", report.path).splitlines())
    assert listed["/image"] == "Dataset {3, 2, 4, 40, 70}"
    assert listed["/z_um"] == "Dataset {4}"
    assert listed["/metadata/Exposure"] == "Dataset {3, 2, 4}"
    assert ("/frames/00000" in listed) is not is_copy
    if not is_copy:
        text = run(H5LS, "-v", f"{report.path}/frames/00000")
        assert "23 external files" in text
        assert len(re.findall(re.escape(str(cells[0])), text)) == 23


def test_h5dump_shows_the_scales(cells: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    report = export(cells[0], "hdf5", tmp_path / "a.h5")
    text = run(H5DUMP, "-d", "/z_um", report.path)
    assert "(0): 7, 9, 11, 13" in text
    assert '"um"' in text
    assert "DIMENSION_SCALE" in run(H5DUMP, "-A", "-d", "/z", report.path)
