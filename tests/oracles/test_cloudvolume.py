"""cloud-volume reads our precomputed volumes, in files and in shards, and we read those that it writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from tests.formats.precomputed.precomputed_data import write_container
from tests.log.make_frames import write_log
from tests.mirrors.mirror_cases import array_of, declared, finish, frames_at, halved, places_of, run_of
from tests.oracles.webknossos_package import PYTHON, needs_environment

pytestmark = [
    pytest.mark.oracle,
    needs_environment("cloud-volume"),
]
PROGRAM = Path(__file__).with_name("cloudvolume_program.py")
SHARDS: Mapping[str, Any] = {
    "identity": {},
    "identity, raw index, gzip data": {"minishard_index_encoding": "raw", "data_encoding": "gzip"},
    "murmur": {"hash": "murmurhash3_x86_128", "minishard_bits": 2, "preshift_bits": 1},
    "murmur, gzip": {"hash": "murmurhash3_x86_128", "minishard_bits": 1, "data_encoding": "gzip"},
    "identity, some minishards": {"minishard_bits": 2, "preshift_bits": 1, "shard_bits": 5},
}


def ask(*words: object) -> dict[str, Any]:
    command = [str(PYTHON), "-I", "-W", "ignore", str(PROGRAM), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def read_theirs(folder: Path, scale: int, work: Path) -> tuple[NDArray[Any], dict[str, Any]]:
    """(c, z, y, x), and what the package says."""
    told = ask("read", folder, scale, work / "voxels.npy")
    return np.load(work / "voxels.npy"), told


def samples(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return np.random.default_rng(9).integers(0, np.iinfo(dtype).max, shape, np.dtype(dtype), endpoint=True)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("dtype", "components", "options"),
    [
        ("uint8", 1, {}),
        ("uint16", 3, {}),
        ("uint32", 1, {"encoding": "compressed_segmentation"}),
        ("uint64", 1, {"encoding": "compressed_segmentation", "shards": True}),
        ("uint8", 1, {"encoding": "png"}),
        *(("uint16", 1, {"shards": shards}) for shards in SHARDS.values()),
    ],
    ids=str,
)
def test_it_reads_our_volumes(tmp_path: Path, dtype: str, components: int, options: Mapping[str, Any]) -> None:
    array = samples((5, 70, 41, components), dtype)
    if options.get("encoding") == "compressed_segmentation":
        array //= 2**27 if dtype == "uint32" else 2**59
    form: dict[str, Any] = {"chunks": [2, 32, 16], "levels": 2, **options}
    space = {"scale": (2.0, 0.5, 0.5, 1.0), "units": ("um", "um", "um", "")}
    levels = write_container(tmp_path / "a", array, ("z", "y", "x", "c"), **form, **space)
    for number, expected in enumerate(levels):
        found, told = read_theirs(tmp_path / "a", number, tmp_path)
        assert told["resolution"] == [500 * 2**number, 500 * 2**number, 2000]
        assert (told["scales"], told["dtype"]) == (len(levels), dtype)
        assert np.array_equal(found, np.moveaxis(expected, -1, 0) if expected.shape[-1] == components else expected)


@pytest.mark.parametrize("shards", [False, True])
def test_it_reads_our_mirrors(tmp_path: Path, shards: bool) -> None:
    sizes = {"time": 2, "channel": 2, "z": 5}
    frames = frames_at(places_of(tuple(sizes), sizes), (96, 128))
    write_log(tmp_path / "cells", frames, axes=declared(tuple(sizes), sizes))
    settings = {"format": "precomputed", "chunks": [1, 32, 64], "levels": 2, "shards": shards}
    finish(run_of(tmp_path / "cells", settings, name="precomputed"))
    array = array_of(frames, tuple(sizes))
    for number, expected in enumerate([array, halved(array, (1, 1, 1, 2, 2))]):
        found, _ = read_theirs(tmp_path / "cells.precomputed" / "time1" / "channel0", number, tmp_path)
        assert np.array_equal(found[0], expected[1, 0])


@pytest.mark.parametrize(
    ("dtype", "components", "encoding"),
    [
        ("uint8", 1, "raw"),
        ("uint16", 3, "raw"),
        ("float32", 1, "raw"),
        ("uint8", 1, "png"),
        ("uint32", 1, "compressed_segmentation"),
        ("uint64", 1, "compressed_segmentation"),
    ],
)
def test_we_read_its_volumes(tmp_path: Path, dtype: str, components: int, encoding: str) -> None:
    array = samples((components, 6, 64, 96), "uint8" if dtype == "float32" else dtype).astype(dtype)
    np.save(tmp_path / "in.npy", array)
    ask("write", tmp_path / "a", tmp_path / "in.npy", encoding, 32, 32, 2)
    with acqstream.open(tmp_path / "a") as ds:
        assert np.array_equal(ds.levels[0].read().reshape(array.shape), array)
