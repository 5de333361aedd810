"""Copies of images are what the wire wants, and their checksum is that of the copy."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash

from acqstream.client.images import copy_pixels, kind_of_buffer, kind_of_image
from acqstream.model.frame_header import PixelType
from acqstream.storage.page_memory import PageMemory

BASE = np.arange(2048 * 1024 + 7, dtype=np.uint32).astype("<u2") * np.uint16(40503)
IMAGES = {
    "small": BASE[:35].reshape(5, 7),
    "small, every second": BASE[: 64 * 64].reshape(64, 64)[::2, ::-2],
    "small, transposed": BASE[: 60 * 50].reshape(60, 50).T,
    "small, big-endian": BASE[: 60 * 50].reshape(60, 50).astype(">u2"),
    "small, read-only": np.frombuffer(BASE[: 64 * 64].tobytes(), "<u2").reshape(64, 64),
    "small, RGB": BASE.view(np.uint8)[: 50 * 40 * 3].reshape(50, 40, 3),
    "large": BASE[: 2048 * 1024].reshape(1024, 2048),
    "odd": BASE[: 1031 * 1009].reshape(1031, 1009),
    "one row": BASE[: 2**20].reshape(1, 2**20),
    "one column": BASE[: 2**20].reshape(2**20, 1),
    "transposed": BASE[: 1000 * 900].reshape(1000, 900).T,
    "every second": BASE[: 2048 * 1024].reshape(1024, 2048)[::2, ::-2],
    "big-endian": BASE[: 1000 * 900].reshape(1000, 900).astype(">u2"),
    "bytes": BASE.view(np.uint8)[: 1500 * 1300].reshape(1500, 1300),
    "colours": BASE.view(np.uint8)[: 700 * 600 * 3].reshape(3, 700, 600).transpose(1, 2, 0),
}


@pytest.mark.parametrize("image", IMAGES.values(), ids=list(IMAGES))
def test_a_copy_and_its_checksum(image: np.ndarray) -> None:
    memory = PageMemory(8 * 2**20).view
    found = copy_pixels(image, kind_of_image(image.dtype, image.shape, ()).pixel_type, memory, 64)
    expected = np.ascontiguousarray(image).astype(image.dtype.newbyteorder("<")).tobytes()
    assert memory[64 : 64 + len(expected)] == expected
    rest = bytes(memory[:64]) + bytes(memory[64 + len(expected) :])
    assert rest == bytes(len(memory) - len(expected))
    assert found == xxhash.xxh3_64_intdigest(expected)


def test_buffers_of_images_to_come() -> None:
    assert kind_of_buffer((4, 5), np.uint16, ("time",), 12) == (PixelType("<u2", 1, 12), (4, 5), ("time",), 40)
    assert kind_of_buffer([4, 5, 3], "uint8", ()) == (PixelType("|u1", 3, 8), (4, 5, 3), (), 60)
    for shape, dtype in (((4, 5), ">u2"), ((4, 5), "float32"), ((4,), "uint8"), ((4, 5), "nonsense"), ("xy", "uint8")):
        with pytest.raises(ValueError):  # noqa: PT011 - texts are those of the pixel types
            kind_of_buffer(shape, dtype, ())  # type: ignore[arg-type]
