"""The Java libraries read what our N5 writer writes: datasets of every codec, and BigDataViewer its XML and levels.

Not asked for blosc: its add-on needs a library of the system. tests/oracles/test_oracle_n5.py has other readers for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.formats.n5.n5_samples import samples, write_array, write_pyramid
from tests.oracles.java_program import JavaUnavailable, run_java

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.timeout_s(400)]  # the first one may fetch the libraries

CODECS: dict[str, Any] = {
    "raw": "raw",
    "gzip": "gzip",
    "zlib": {"type": "gzip", "useZlib": True, "level": 1},
    "bzip2": {"type": "bzip2", "blockSize": 1},
    "xz": {"type": "xz", "preset": 1},
    "lz4": "lz4",
    "zstd": "zstd",
}
DTYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64")
# Shape and blocks: edges on every axis, a block larger than the array, several axes.
CASES = [
    (("z", "y", "x"), (5, 9, 11), [2, 4, 8]),
    (("z", "y", "x"), (3, 4, 5), [64, 64, 64]),
    (("time", "channel", "z", "y", "x"), (2, 3, 3, 5, 7), [2, 4, 4]),
]
PYRAMIDS = {"finished": True, "growing": False}


def digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("n5")


@pytest.fixture(scope="module")
def written(folder: Path) -> Mapping[tuple[str, str], Sequence[tuple[Path, NDArray[Any]]]]:
    """By codec and dtype: datasets, and what was written into them."""
    return {
        (codec, dtype): [
            (
                write_array(folder / f"{codec}-{dtype}-{number}.n5", array, axes, blocks=blocks, compression=options),
                array,
            )
            for number, (axes, shape, blocks) in enumerate(CASES)
            for array in [samples(shape, dtype)]
        ]
        for codec, options in CODECS.items()
        for dtype in DTYPES
    }


@pytest.fixture(scope="module")
def pyramid(folder: Path) -> NDArray[Any]:
    """(time, channel, z, y, x), written for BigDataViewer."""
    array = samples((2, 2, 7, 30, 40), "uint16")
    space = {"scale": (1, 1, 0.5, 0.1, 0.1), "units": ("", "", "um", "um", "um")}
    labels = {"channel": ("DAPI", "GFP")}
    axes = ("time", "channel", "z", "y", "x")
    for name, is_finished in PYRAMIDS.items():
        options = {"layout": "bdv", "levels": 3, "blocks": [4, 8, 16], "compression": "zstd"}
        write_pyramid(folder / f"{name}.n5", array, axes, is_finished=is_finished, labels=labels, **space, **options)
    return array


@pytest.fixture(scope="module")
def found(
    written, pyramid, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, list[dict[str, Any]]]:
    """By path: the lines that `ReadN5.java` prints."""
    datasets = [path for entries in written.values() for path, _ in entries]
    paths = [*datasets, *(folder / f"{name}.xml" for name in PYRAMIDS)]
    try:
        output = run_java("ReadN5", "n5.xml", paths, tmp_path_factory.mktemp("classes"), charset="UTF-8", timeout_s=120)
    except JavaUnavailable as error:
        pytest.skip(str(error))
    lines: dict[str, list[dict[str, Any]]] = {}
    for text in output.splitlines():
        line = json.loads(text)
        lines.setdefault(line["path"], []).append(line)
    return lines


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec", CODECS)
def test_java_reads_every_block(codec: str, dtype: str, written, found) -> None:
    for path, array in written[codec, dtype]:
        (line,) = found[str(path)]
        assert "error" not in line, line
        assert line["compression"] == ("gzip" if codec == "zlib" else codec)
        assert (line["type"], line["dimensions"]) == (dtype, [*array.shape[::-1]])
        assert line["sha256"] == digest(array)


@pytest.mark.parametrize("name", PYRAMIDS)
def test_bigdataviewer_opens_the_xml_and_reads_every_level(name: str, pyramid, folder: Path, found) -> None:
    factors = [[1.0, 1.0, 1.0], [2.0, 2.0, 1.0], [4.0, 4.0, 1.0]]
    lines = found[str(folder / f"{name}.xml")]
    assert not [line["error"] for line in lines if "error" in line]
    assert [(line["setup"], line["timepoint"], line["level"]) for line in lines] == list(np.ndindex(2, 2, 3))
    for line in lines:
        assert line["name"] == ("DAPI", "GFP")[line["setup"]]
        assert line["factors"] == factors[line["level"]]
        assert line["voxel_size"] == pytest.approx([0.1, 0.1, 0.5])
        assert line["unit"] in {"um", "µm", "micrometer"}
        x, y, z = map(int, line["factors"])
        full = pyramid[line["timepoint"], line["setup"]]
        level = full[::z, ::y, ::x][: full.shape[0] // z, : full.shape[1] // y, : full.shape[2] // x]
        assert line["dimensions"] == [*level.shape[::-1]]
        assert line["sha256"] == digest(level)
