"""What the check of a container finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from acqstream.formats.check_report import CheckReport
from acqstream.formats.n5 import FORMAT
from acqstream.storage.stores.data_path import data_path_of
from tests.formats.n5.n5_samples import GOLDEN, block, make_dataset, put_block, samples, write_pyramid


def check(folder):
    report = CheckReport()
    return FORMAT.check(data_path_of(folder), report), report


def test_a_container_of_ours_is_well(tmp_path):
    array = samples((2, 6, 20, 30), "uint16")
    write_pyramid(tmp_path / "a.n5", array, ("channel", "z", "y", "x"), levels=2, blocks=[4, 8, 16])
    counts, report = check(tmp_path / "a.n5")
    assert (report.problems, report.notes) == ([], [])
    assert (counts.arrays, counts.missing) == (4, 0)
    assert counts.chunks == 2 * (2 * 3 * 2 + 1 * 2 * 1)
    assert counts.payload_bytes == array.nbytes + 2 * 2 * 3 * 10 * 15


def test_golden_containers_are_well_but_for_the_foreign_lz4():
    for name in ("java.n5", "tensorstore.n5", "zarr2.n5", "z5py.n5", "multiscale_bdv.n5"):
        counts, report = check(GOLDEN / name)
        wrong = {Path(problem.path).relative_to(GOLDEN / name).parts[0] for problem in report.problems}
        assert wrong == {"zarr2.n5": {"u16_lz4_numcodecs"}, "z5py.n5": {"u16_lz4_z5"}}.get(name, set())
        assert counts.chunks > 0


def test_everything_wrong_is_told_with_its_place(tmp_path):
    container = tmp_path / "a.n5"
    good = make_dataset(container / "good", [4, 2], [2, 2])
    put_block(good, (0, 0), block((2, 2), range(4)))
    put_block(good, (7, 0), block((2, 2), range(4)))
    bad = make_dataset(container / "bad", [4, 2], [2, 2])
    put_block(bad, (0, 0), block((1, 2), range(2)))
    put_block(bad, (1, 0), block((2, 2), range(3)))
    make_dataset(container / "worse", [4, 2], [2])
    make_dataset(container / "text", [4, 2], [2, 2], dataType="string")
    counts, report = check(container)
    places = [Path(problem.path).relative_to(container).as_posix() for problem in report.problems]
    told = {(place, problem.offset): problem.text for place, problem in zip(places, report.problems, strict=True)}
    assert told[("bad/0/0", 4)] == "a block of (1, 2) (x first), expected at least (2, 2)"
    assert told[("bad/1/0", 12)] == "raw: holds 6 bytes, expected 8"
    assert told[("worse/attributes.json", None)] == "2 dimensions, but a blockSize of 1"
    assert "dataType string" in told[("text", None)]
    assert len(told) == report.problem_count == 4
    assert report.notes == [f"{good}: block 7/0 lies outside the array"]
    assert (counts.arrays, counts.chunks, counts.missing) == (2, 3, 1)


def test_a_container_without_arrays_is_told(tmp_path):
    (tmp_path / "a.n5").mkdir()
    _, report = check(tmp_path / "a.n5")
    assert [problem.text for problem in report.problems] == ["holds no array"]


def test_a_level_with_one_bit_changed_is_told(tmp_path):
    array = np.arange(4 * 16 * 16, dtype="u2").reshape(4, 16, 16)
    write_pyramid(tmp_path / "a.n5", array, ("z", "y", "x"), layout="array", levels=1, compression="gzip")
    path = tmp_path / "a.n5" / "s0" / "0" / "0" / "0"
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    _, report = check(tmp_path / "a.n5")
    assert [(problem.path, problem.offset) for problem in report.problems] == [(str(path), 16)]
