"""A dataset that takes the name of a deleted one: its own pictures, pixels and tags are shown, whoever wrote it."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.formats.ndtiff.ndtiff_bytes import Folder
from tests.log.make_frames import Frame, frame_of, write_log
from tests.mirrors.mirror_cases import finish, run_of
from tests.waiting import until
from tests.web.web_process import Site

LOWER = "/data/cells/ome.zarr/1/c/2/0/0"
SHAPE = (1024, 1024)  # with a lower level


def frame(number: int, value: int) -> Frame:
    """Half of it is the same for all values."""
    found = frame_of(number, SHAPE, checksum=False)
    image = np.full(SHAPE, value, np.uint16)
    image[:512] = 0
    return Frame(found.header, image, found.metadata)


def write_ours(data: Path, value: int) -> None:
    write_log(data / "cells", [frame(number, value) for number in range(3)])


def write_theirs(data: Path, value: int) -> None:
    folder = Folder(data / "cells", {"PixelSizeUm": 1})
    for number in range(3):
        folder.add({"time": number}, frame(number, value).image)


def picture(site: Site, tag: str = '"none"') -> tuple[int, float, str]:
    reply = site.ask("/api/datasets/cells/preview.jpg?max=64&low=0&high=2000", headers={"If-None-Match": tag})
    mean = float(np.asarray(Image.open(io.BytesIO(reply.body))).mean()) if reply.status == 200 else -1.0
    return reply.status, mean, reply.headers.get("etag", "")


@pytest.mark.parametrize("write", [write_ours, write_theirs])
def test_the_new_one_is_shown(data: Path, site: Site, write) -> None:
    write(data, 100)
    status, dark, tag = picture(site)
    assert status == 200
    chunk = site.ask(LOWER)
    assert chunk.status == 200
    shutil.rmtree(data / "cells")
    write(data, 1900)
    until(lambda: picture(site)[1] > dark + 50, "the new picture")
    assert picture(site, tag)[0] == 200
    until(lambda: site.ask(LOWER).status == 200, "the new array")
    newer = site.ask(LOWER, headers={"If-None-Match": chunk.headers["etag"]})
    assert (newer.status, newer.body != chunk.body) == (200, True)


def test_a_mirror_that_is_made_again_shows_its_own_pictures(data: Path, site: Site) -> None:
    old = ""

    def has_another_tag() -> bool:
        reply = site.ask("/api/datasets/cells.n5/preview.jpg?max=64")
        return reply.status == 200 and reply.headers["etag"] != old

    for value in (100, 1900):
        write_ours(data, value)
        finish(run_of(data / "cells", {"format": "n5"}))
        until(has_another_tag, "a picture of its own")
        old = site.ask("/api/datasets/cells.n5/preview.jpg?max=64").headers["etag"]
        for path in data.glob("cells*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
