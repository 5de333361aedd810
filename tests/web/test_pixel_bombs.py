"""Datasets that claim huge frames: no memory in proportion to what a file says."""

from __future__ import annotations

import json
import os
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.formats.ndtiff.ndtiff_bytes import STACK, Folder, entry, image
from tests.log.make_frames import frame_of, write_log
from tests.web.web_process import web_thread

MIB = 2**20


@pytest.mark.parametrize(
    ("height", "width", "compression", "status"),
    [(4, 10**9, 0, 404), (60_000, 60_000, 8, 404), (60_000, 60_000, 0, 200)],
)
def test_a_pixel_bomb_takes_no_memory(tmp_path: Path, height: int, width: int, compression: int, status: int) -> None:
    """A sparse file really is as long as the frame; compressed zeros are short. A chunk is cut from a band of rows."""
    folder = Folder(tmp_path / "bomb", {})
    path = folder.path / STACK
    start = path.stat().st_size
    path.write_bytes(path.read_bytes() + zlib.compress(bytes(64 * MIB), 9))
    os.truncate(path, start + height * width)
    folder.publish(entry({"time": 0}, (start, width, height, 0, compression, start, 2, 0)))
    with web_thread(tmp_path) as site:
        tracemalloc.start()
        try:
            document = json.loads(site.ask("/data/bomb/ome.zarr/zarr.json").body)
            (multiscale,) = document["attributes"]["ome"]["multiscales"]
            assert len(multiscale["datasets"]) == 1
            assert site.ask("/data/bomb/ome.zarr/0/c/0/0/0").status == status
            assert tracemalloc.get_traced_memory()[1] < 150 * MIB
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("code", [8, 32946])
def test_compressed_frames_are_decoded(tmp_path: Path, code: int) -> None:
    folder = Folder(tmp_path / "packed", {})
    path = folder.path / STACK
    start = path.stat().st_size
    packed = zlib.compress(image(1).tobytes())
    path.write_bytes(path.read_bytes() + packed + b"{}")
    folder.publish(entry({"time": 0}, (start, 4, 3, 1, code, start + len(packed), 2, 0)))
    with web_thread(tmp_path) as site:
        key = json.loads(site.ask("/data/packed/ome.zarr/0/zarr.json").body)
        chunk = "/".join("0" for _ in key["shape"])
        assert site.ask(f"/data/packed/xarray.zarr/image/c/{chunk}").body == image(1).tobytes()


def test_big_endian_frames_are_swapped_where_they_must_be(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "big", {}, order=">")
    folder.add({"time": 0}, image(0))
    with web_thread(tmp_path) as site:
        assert site.ask("/data/big/xarray.zarr/image/c/0/0/0").body == image(0).astype("<u2").tobytes()
        block = site.ask("/data/big/n5/s0/0/0/0/0").body  # big-endian as the file: it goes out as it is
        assert block.endswith(np.asarray(image(0)).astype(">u2").tobytes())


def test_chunks_are_made_within_the_memory_of_answers(tmp_path: Path) -> None:
    """A large one reserves what it takes; small ones never wait for slow clients of large ones."""
    frame = frame_of(0, (1024, 1536), axes={"time": 0})
    write_log(tmp_path / "cells", [frame], memory_bytes=2**24)
    for key, expected in (("@chunk=256/n5/s0/0/0/0/0", 0), ("/n5/s0/0/0/0/0", frame.image.nbytes)):
        with web_thread(tmp_path) as site:
            assert site.ask(f"/data/cells{key}").status == 200
            assert site.context is not None
            assert site.context.gate.in_memory.peak_bytes == expected
