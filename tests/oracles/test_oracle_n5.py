"""tensorstore, zarr 2 and z5py read what our writer writes, and we read what they write.

Which of them reads which codec is the table of docs/n5.md. No one but Java reads Java's lz4: for it the golden data of
the Java reference stand, and the published streams in tests/codecs.
"""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import acqstream
from acqstream.formats.n5 import FORMAT
from tests.formats.n5.n5_samples import create, plan_levels, samples, spec_of, write_array, write_pyramid
from tests.oracles.webknossos_package import needs_environment, python_of
from tests.storage.unforced_disk import UnforcedDisk

pytestmark = pytest.mark.oracle
ZARR_PYTHON = python_of(".venv-zarr2")
ZARR_PROGRAM = Path(__file__).with_name("zarr2_program.py")
needs_zarr = needs_environment("zarr 2", ZARR_PYTHON)

CODECS: dict[str, Any] = {
    "raw": "raw",
    "gzip": "gzip",
    "zlib": {"type": "gzip", "useZlib": True, "level": 1},
    "bzip2": {"type": "bzip2", "blockSize": 1},
    "xz": {"type": "xz", "preset": 1},
    "blosc": "blosc",
    "blosc-bytes": {"type": "blosc", "shuffle": 1},
    "blosc-zstd": {"type": "blosc", "cname": "zstd", "shuffle": 2},
    "zstd": "zstd",
}
DTYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64")
# Shape and blocks: edges on every axis, a block larger than the array, one plane, a single element.
CASES = [
    (("z", "y", "x"), (5, 9, 11), [2, 4, 8]),
    (("z", "y", "x"), (3, 4, 5), [64, 64, 64]),
    (("z", "y", "x"), (1, 16, 16), [1, 16, 16]),
    (("time", "channel", "z", "y", "x"), (2, 3, 3, 5, 7), [2, 4, 4]),
]


def read_tensorstore(folder: Path) -> NDArray[Any]:
    tensorstore = pytest.importorskip("tensorstore")
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(folder)}}
    return tensorstore.open(spec, read=True).result().read().result().T


def run_zarr(what: str, folder: Path, told: object) -> list[str]:
    """Run zarr 2, in an environment and a process of its own."""
    (folder / "paths.json").write_text(json.dumps(told))
    command = [str(ZARR_PYTHON), "-I", str(ZARR_PROGRAM), what, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout)
    return names


def read_zarr(folders: list[Path], work: Path) -> list[NDArray[Any]]:
    run_zarr("read", work, list(map(str, folders)))
    return [np.load(work / f"{number}.npy") for number in range(len(folders))]


def read_z5py(folder: Path) -> NDArray[Any]:
    z5py = pytest.importorskip("z5py")
    return z5py.File(str(folder.parent), mode="r")[folder.name][...]


READERS = {"tensorstore": read_tensorstore, "z5py": read_z5py}


@pytest.fixture(scope="module", params=CODECS)
def written(request, tmp_path_factory) -> list[tuple[Path, NDArray[Any]]]:
    """Datasets of one codec, of every dtype and case, and what was written into them."""
    made = []
    for dtype in DTYPES:
        for axes, shape, blocks in CASES:
            array = samples(shape, dtype)
            container = tmp_path_factory.mktemp("written") / "a.n5"
            made.append((write_array(container, array, axes, blocks=blocks, compression=CODECS[request.param]), array))
    return made


@pytest.mark.parametrize("reader", READERS)
def test_what_we_write_is_read_by_others(written, reader):
    for folder, array in written:
        found = READERS[reader](folder)
        assert found.dtype == array.dtype
        assert np.array_equal(found, array), (array.dtype, array.shape)


@needs_zarr
def test_what_we_write_is_read_by_zarr(written, tmp_path):
    for (_, array), found in zip(written, read_zarr([folder for folder, _ in written], tmp_path), strict=True):
        assert found.dtype == array.dtype
        assert np.array_equal(found, array), (array.dtype, array.shape)


@pytest.mark.parametrize("layout", ["bdv", "multiscale"])
def test_the_levels_of_every_layout_are_read_by_others(tmp_path, layout):
    array = samples((2, 6, 20, 30), "uint16")
    axes = ("channel", "z", "y", "x")
    write_pyramid(
        tmp_path / "a.n5", array, axes, layout=layout, levels=3, blocks=[4, 8, 8], units=("", "um", "um", "um")
    )
    folders, arrays = [], []
    with acqstream.open(tmp_path / "a.n5") as ds:
        for number, level in enumerate(ds.levels):
            for channel in (0, 1):
                group = f"setup{channel}/timepoint0" if layout == "bdv" else f"c{channel}"
                folders.append(tmp_path / "a.n5" / group / f"s{number}")
                arrays.append(level.read(channel))
                assert np.array_equal(read_tensorstore(folders[-1]), arrays[-1])
    if ZARR_PYTHON.exists():
        for found, array in zip(read_zarr(folders, tmp_path), arrays, strict=True):
            assert np.array_equal(found, array)


def test_tensorstore_takes_our_axes_and_units(tmp_path):
    tensorstore = pytest.importorskip("tensorstore")
    array = samples((2, 3, 4, 5), "uint16")
    space = {"scale": (2.0, 0.5, 0.1, 0.1), "units": ("s", "um", "um", "um")}
    write_pyramid(tmp_path / "a.n5", array, ("time", "z", "y", "x"), layout="array", **space)
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path / "a.n5" / "s0")}}
    opened = tensorstore.open(spec, read=True).result()
    assert opened.domain.labels == ("x", "y", "z", "time")
    assert [(unit.multiplier, unit.base_unit) for unit in opened.dimension_units] == [
        (0.1, "um"),
        (0.1, "um"),
        (0.5, "um"),
        (2.0, "s"),
    ]


TENSORSTORE = {
    name: FORMAT.parse_options({"compression": given}).compression.to_json() for name, given in CODECS.items()
}


@pytest.mark.parametrize("codec", CODECS)
def test_what_tensorstore_writes_is_read_by_us(tmp_path, codec):
    tensorstore = pytest.importorskip("tensorstore")
    for dtype in DTYPES:
        array = samples((5, 9, 11), dtype)
        metadata = {
            "dimensions": [11, 9, 5],
            "blockSize": [8, 4, 2],
            "dataType": dtype,
            "compression": TENSORSTORE[codec],
        }
        spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path / dtype)}, "metadata": metadata}
        tensorstore.open(spec, create=True).result().write(array.T).result()
        with acqstream.open(tmp_path / dtype) as ds:
            assert ds.dtype == array.dtype
            assert np.array_equal(ds.levels[0].read(), array)


@needs_zarr
def test_what_zarr_writes_is_read_by_us(tmp_path):
    arrays = {dtype: samples((5, 9, 11), dtype) for dtype in DTYPES}
    for dtype, array in arrays.items():
        np.save(tmp_path / f"{dtype}.npy", array)
    names = run_zarr("write", tmp_path, str(tmp_path / "a.n5"))
    assert len(names) == 7
    for name in names:
        for dtype, array in arrays.items():
            with acqstream.open(tmp_path / "a.n5" / f"{name}_{dtype}") as ds:
                assert np.array_equal(ds.levels[0].read(), array), (name, dtype)


def test_a_block_that_is_written_again_is_never_read_in_part(tmp_path):
    """Two contents in turn, of different lengths once compressed; readers see the one or the other."""
    contents = [np.zeros((8, 64, 64), "uint16"), samples((8, 64, 64), "uint16")]
    options = FORMAT.parse_options({"layout": "array", "levels": 1, "blocks": [8, 64, 64], "compression": "gzip"})
    (level,) = plan_levels(spec_of(contents[0], ("z", "y", "x")), options)
    writer = create(tmp_path / "a.n5", [level], options, UnforcedDisk())
    blocks = [writer.encode(0, (0, 0, 0), content) for content in contents]
    writer.store(0, [((0, 0, 0), blocks[0])])
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for one in blocks:
                writer.store(0, [((0, 0, 0), one)])

    thread = threading.Thread(target=write)
    thread.start()
    seen = set()
    try:
        for _ in range(60):
            for read in (read_tensorstore, lambda folder: acqstream.open(folder).levels[0].read()):
                found = read(tmp_path / "a.n5" / "s0")
                seen.add(next(number for number, content in enumerate(contents) if np.array_equal(found, content)))
    finally:
        stop.set()
        thread.join()
    assert seen == {0, 1}
