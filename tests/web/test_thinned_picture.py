"""Pictures of planes of any size: every n-th pixel, in parts that are bounded, as are all of them together."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acqstream.web import thinned_picture
from acqstream.web.picture_source import ArrayPictures, open_pictures
from acqstream.web.thinned_picture import (
    MAX_BYTES,
    MAX_CHUNKS,
    MAX_PART_BYTES,
    MAX_PART_CHUNKS,
    MAX_SIDE,
    ChunkedPlane,
)
from tests.web.web_process import web_process

sides = st.integers(1, 60)


@given(sides, sides, sides, sides, st.integers(1, 9), st.integers(1, 12), st.integers(1, 64))
def test_parts_are_the_whole_picture(
    height: int, width: int, side_y: int, side_x: int, step: int, most_chunks: int, chunk_bytes: int
) -> None:
    """Each pixel comes once, each chunk is read for one part, and a part keeps the bounds."""
    plane = ChunkedPlane((height, width), (side_y, side_x), chunk_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thinned_picture, "MAX_PART_CHUNKS", most_chunks)
        patch.setattr(thinned_picture, "MAX_PART_BYTES", 256)
        patch.setattr(ChunkedPlane, "step", lambda _: step)
        stored = np.arange(height * width, dtype=np.uint32).reshape(height, width)
        chunks: list[set[tuple[int, int]]] = []

        def read(y: slice, x: slice) -> np.ndarray:
            chunks.append({(row // side_y, column // side_x) for row in range(height)[y] for column in range(width)[x]})
            return stored[y, x]

        drawn = plane.read((), stored.dtype, read)
        costs = list(drawn.parts)
        assert np.array_equal(drawn.pixels, stored[::step, ::step])
        assert sum(map(len, chunks)) == len(set().union(*chunks)), "no chunk is read twice"
        assert max(map(len, chunks)) <= max(1, min(most_chunks, 256 // chunk_bytes))
        assert all(cost >= len(part) * chunk_bytes for cost, part in zip(costs, chunks, strict=True))
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
    assert isinstance(source, ArrayPictures)
    place = source.find({})
    drawn = source.picture(place)
    step, step_x = drawn.steps
    assert step == step_x > 20
    assert np.array_equal(drawn.complete(), stored[::step, ::step])
    assert source.value(place, step, step) == [drawn.pixels[1, 1]]
    source.close()


def test_an_axis_of_any_length(tmp_path: Path) -> None:
    _foreign(tmp_path / "long", [2**40, 8, 8], [1, 8, 8])
    source = open_pictures(tmp_path / "long")
    place = source.find({})
    assert place.key == {"z": 2**39}
    assert not source.picture(place).complete().any()
    source.close()


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
