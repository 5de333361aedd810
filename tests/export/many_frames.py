"""A dataset of very many small frames, written at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.formats.ndtiff.ndtiff_bytes import Folder, entry


def write_many(path: Path, count: int, shape: tuple[int, int]) -> NDArray[Any]:
    """Frames of a time axis whose pixels follow each other in the stack, as indexes of packed frames have them."""
    folder = Folder(path)
    pixels = np.arange(count * shape[0] * shape[1], dtype="<u2").reshape(count, *shape)
    numbers = folder.add_page(pixels[0], b"{}")
    stack = path / folder.stack
    with stack.open("ab") as file:
        start = file.tell()
        file.write(pixels.tobytes() + b"{}")
    end = start + pixels.nbytes
    size = pixels[0].nbytes
    entries = [
        entry({"time": at}, (start + at * size, shape[1], shape[0], 1, 0, end, 2, 0), folder.stack)
        for at in range(count)
    ]
    assert len(numbers) == 8
    folder.publish(b"".join(entries))
    return pixels
