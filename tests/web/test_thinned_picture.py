"""Pictures of planes of any size: every n-th pixel, in parts that are bounded, as are all of them together."""

from __future__ import annotations

import json
import math
import os
import threading
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.model.acquisition_spec import TileSpec
from acqstream.web.page import picture_source
from acqstream.web.page import picture_source as thinned_picture
from acqstream.web.page.picture_source import (
    MAX_BYTES,
    MAX_CHUNKS,
    MAX_PART_BYTES,
    MAX_PART_CHUNKS,
    MAX_SIDE,
    ChunkedPlane,
    FramePictures,
    PictureSource,
)
from tests.formats.ndtiff.ndtiff_bytes import STACK, Folder, entry
from tests.log.make_frames import frame_of, write_log
from tests.web.test_picture_source import open_pictures
from tests.web.web_process import web_process, web_thread

sides = st.integers(1, 60)


starts = st.tuples(st.integers(0, 150), st.integers(0, 150))


@given(sides, sides, sides, sides, st.integers(1, 9), st.integers(1, 12), st.integers(1, 64), starts)
def test_parts_are_the_whole_picture(
    height: int, width: int, side_y: int, side_x: int, step: int, most_chunks: int, chunk_bytes: int, start: Any
) -> None:
    """Each pixel comes once, each chunk is read for one part, and a part keeps the bounds."""
    plane = ChunkedPlane((height, width), (side_y, side_x), chunk_bytes, start)
    end_y, end_x = start[0] + height, start[1] + width
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thinned_picture, "MAX_PART_CHUNKS", most_chunks)
        patch.setattr(thinned_picture, "MAX_PART_BYTES", 256)
        patch.setattr(ChunkedPlane, "step", lambda _: step)
        stored = np.arange(end_y * end_x, dtype=np.uint32).reshape(end_y, end_x)
        chunks: list[set[tuple[int, int]]] = []

        def read(y: slice, x: slice) -> np.ndarray:
            chunks.append({(row // side_y, column // side_x) for row in range(end_y)[y] for column in range(end_x)[x]})
            return stored[y, x]

        drawn = plane.read((), stored.dtype, read)
        costs = list(drawn.parts)
        assert np.array_equal(drawn.pixels, stored[start[0] :: step, start[1] :: step])
        assert sum(map(len, chunks)) == len(set().union(*chunks)), "no chunk is read twice"
        assert max(map(len, chunks)) <= max(1, min(most_chunks, 256 // chunk_bytes))
        assert costs == [len(part) * chunk_bytes for part in chunks]
        assert sum(map(len, chunks)) <= plane.cost(step)[0]


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [
        ((300_000, 300_000), (64, 64)),
        ((2**31, 2**31), (4, 4)),
        ((200_000, 200_000), (200_000, 1)),
        ((2**40, 3), (1, 1)),
        ((20_000, 20_000), (512, 512)),
        ((1, 1), (1, 1)),
    ],
)
def test_bounds(shape: tuple[int, int], chunk: tuple[int, int]) -> None:
    plane = ChunkedPlane(shape, chunk, 2 * math.prod(chunk))
    step = plane.step()
    count, count_bytes = plane.cost(step)
    assert count <= MAX_CHUNKS
    assert count_bytes <= MAX_BYTES
    assert max(shape) <= MAX_SIDE * step
    parts = list(plane.parts(step))
    assert len(parts) <= 2 * MAX_CHUNKS
    for rows, columns in parts:
        assert min(len(rows), -(-len(rows) * step // chunk[0]) + 1) <= MAX_PART_CHUNKS
        assert len(rows) * len(columns) <= MAX_SIDE**2
    assert chunk[0] * chunk[1] * 2 <= MAX_PART_BYTES


def test_a_chunk_above_the_bound_is_read_alone() -> None:
    plane = ChunkedPlane((100_000, 100_000), (30_000, 30_000), MAX_BYTES + 1)
    assert plane.cost(plane.step())[0] == 1


def _foreign(folder: Path, shape: list[int], chunks: list[int], dtype: str = "|u1") -> Path:
    """An OME-Zarr 0.4 of which nothing is stored."""
    array = folder / "0"
    array.mkdir(parents=True)
    axes = [{"name": name, "type": "time" if name == "t" else "space"} for name in "tzyx"[-len(shape) :]]
    scale = {"type": "scale", "scale": [1] * len(shape)}
    levels = [{"path": "0", "coordinateTransformations": [scale]}]
    (folder / ".zgroup").write_text('{"zarr_format":2}')
    (folder / ".zattrs").write_text(json.dumps({"multiscales": [{"version": "0.4", "axes": axes, "datasets": levels}]}))
    document: dict[str, Any] = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": 0}
    document |= {"compressor": None, "order": "C", "filters": None, "dimension_separator": "."}
    (array / ".zarray").write_text(json.dumps(document))
    return array


def test_pixels_of_a_thinned_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinned_picture, "MAX_CHUNKS", 16)
    array = _foreign(tmp_path / "cells", [100, 90], [10, 10])
    stored = np.arange(9000, dtype=np.uint32).astype(np.uint8).reshape(100, 90)
    for y in range(10):
        for x in range(9):
            (array / f"{y}.{x}").write_bytes(stored[10 * y : 10 * y + 10, 10 * x : 10 * x + 10].tobytes())
    source = open_pictures(tmp_path / "cells")
    assert not isinstance(source, FramePictures)
    place = source.find({})
    drawn = source.picture(place)
    step, step_x = drawn.steps
    assert step == step_x > 20
    assert np.array_equal(drawn.complete(), stored[::step, ::step])
    assert source.value(place, step, step) == [drawn.pixels[1, 1]]


def test_an_axis_of_any_length(tmp_path: Path) -> None:
    _foreign(tmp_path / "long", [2**40, 8, 8], [1, 8, 8])
    source = open_pictures(tmp_path / "long")
    place = source.find({})
    assert place.key == {"z": 2**39}
    assert not source.picture(place).complete().any()


def test_a_picture_of_a_lower_level(tmp_path: Path) -> None:
    """Its steps count stored pixels of the full resolution."""
    folder = tmp_path / "levels"
    _foreign(folder, [4096, 4096], [512, 512])
    lower = folder / "1"
    lower.mkdir()
    document = json.loads((folder / "0" / ".zarray").read_text())
    (lower / ".zarray").write_text(json.dumps({**document, "shape": [1024, 1024]}))
    attributes = json.loads((folder / ".zattrs").read_text())
    scale = {"type": "scale", "scale": [4, 4]}
    attributes["multiscales"][0]["datasets"].append({"path": "1", "coordinateTransformations": [scale]})
    (folder / ".zattrs").write_text(json.dumps(attributes))
    source = open_pictures(folder)
    drawn = source.picture(source.find({}))
    assert (drawn.pixels.shape, drawn.steps) == ((1024, 1024), (4, 4))


def test_a_large_mosaic_is_read_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole tiles would be too much; of their rows it takes those that it shows."""
    frames = [
        frame_of(number, (64, 48), axes={"row": row, "column": column})
        for number, (row, column) in enumerate((row, column) for row in range(3) for column in range(2))
    ]
    write_log(tmp_path / "tiles", frames, tiles=TileSpec((0, 0)))
    monkeypatch.setattr(thinned_picture, "MAX_SIDE", 64)
    monkeypatch.setattr(thinned_picture, "MAX_BYTES", 96 * 2 * 64)
    monkeypatch.setattr(picture_source, "MAX_BYTES", 96 * 2 * 64)
    source = open_pictures(tmp_path / "tiles")
    drawn = source.picture(source.find({}))
    assert drawn.steps == (3, 3)
    tiles = np.block([[frames[2 * row + column].image for column in range(2)] for row in range(3)])
    assert np.array_equal(drawn.complete(), tiles[::3, ::3])


@pytest.mark.parametrize(
    ("compression", "status"), [(0, 200), (8, 500)], ids=["rows of a raw one", "a compressed one whole"]
)
def test_a_frame_of_gigabytes(tmp_path: Path, compression: int, status: int) -> None:
    side = 30_000
    folder = Folder(tmp_path / "bomb", {})
    path = folder.path / STACK
    start = path.stat().st_size
    path.write_bytes(path.read_bytes() + zlib.compress(bytes(2**26), 9))
    os.truncate(path, start + side * side)
    folder.publish(entry({"time": 0}, (start, side, side, 0, compression, start, 2, 0)))
    with web_thread(tmp_path) as site:
        tracemalloc.start()
        try:
            reply = site.ask("/api/datasets/bomb/preview.jpg?max=512")
            assert reply.status == status
            assert tracemalloc.get_traced_memory()[1] < 150 * 2**20
        finally:
            tracemalloc.stop()


def test_chunks_of_gigabytes_are_not_drawn(tmp_path: Path) -> None:
    side = 11_600
    array = _foreign(tmp_path / "bomb", [side, side], [side, side])
    document = json.loads((array / ".zarray").read_text())
    (array / ".zarray").write_text(json.dumps({**document, "compressor": {"id": "zlib", "level": 1}}))
    (array / "0.0").write_bytes(zlib.compress(bytes(side * side)))
    with web_thread(tmp_path) as site:
        tracemalloc.start()
        try:
            assert site.ask("/api/datasets/bomb").status == 200
            assert site.ask("/api/datasets/bomb/preview.jpg").status == 500
            assert site.ask("/api/datasets/bomb/values?y=1&x=1&frame=%7B%7D").status == 500
            assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
        finally:
            tracemalloc.stop()


def test_no_memory_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    _foreign(tmp_path / "cells", [8, 8], [8, 8])

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(PictureSource, "value", fail)
    with web_thread(tmp_path) as site:
        assert site.ask("/api/datasets/cells/values?y=1&x=1&frame=%7B%7D").status == 503
    assert "MemoryError" in caplog.text
    assert "Traceback" not in caplog.text


def test_others_are_answered_meanwhile(tmp_path: Path) -> None:
    """As many thumbnails as there are reading threads, of arrays in 22 million chunks; and they end."""
    for name in "abcd":
        _foreign(tmp_path / name, [300_000, 300_000], [64, 64])
    with web_process(tmp_path) as site:
        statuses: list[int] = []

        def look(name: str) -> None:
            statuses.append(site.ask(f"/api/datasets/{name}/preview.jpg?max=96").status)

        threads = [threading.Thread(target=look, args=(name,)) for name in "abcd"]
        for one in threads:
            one.start()
        slowest = 0.0
        while any(one.is_alive() for one in threads):
            begin_s = time.monotonic()
            assert site.ask("/api/datasets").status == 200
            slowest = max(slowest, time.monotonic() - begin_s)
            time.sleep(0.01)
        for one in threads:
            one.join()
        assert statuses == [200] * 4
        assert slowest < 10, "held up for as long as a picture of all chunks takes: minutes"
