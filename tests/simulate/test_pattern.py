from __future__ import annotations

import numpy as np
import pytest

from acqstream.bench.workload import camera_frames
from acqstream.simulate.pattern import fill, frame


@pytest.mark.parametrize(("shape", "dtype"), [((31, 40), "uint8"), ((31, 40), "uint16"), ((10, 11, 3), "uint8")])
@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 256), (3, 65536 + 3), (7, 256 * 5 + 9), (999_999, 0)])
def test_two_numbers_differ_nearly_everywhere(shape: tuple[int, ...], dtype: str, first: int, second: int) -> None:
    a, b = frame(first, shape, dtype), frame(second, shape, dtype)
    assert a.shape == shape
    assert a.dtype == dtype
    assert np.count_nonzero(a == b) <= 0.03 * a.size


def test_pixels_depend_on_position() -> None:
    image = frame(5, (64, 64), "uint16")
    assert np.unique(image).size > 0.9 * image.size


def test_content_never_changes() -> None:
    assert frame(3, (2, 3), "uint16").tolist() == [[38202, 60300, 25120], [60347, 2069, 52222]]
    assert frame(300, (2, 3), "uint8").tolist() == frame(300, (2, 3), "uint8").tolist()


def test_bits_bound_the_values() -> None:
    image = frame(4095, (64, 64), "uint16", bits=12)
    assert image.max() < 4096
    assert np.count_nonzero(image == frame(4094, (64, 64), "uint16", bits=12)) == 0


def test_fill_writes_in_place() -> None:
    out = np.zeros((9, 7), dtype="uint16")
    fill(out, 12)
    assert np.array_equal(out, frame(12, (9, 7), "uint16"))


@pytest.mark.parametrize(
    ("out", "bits"),
    [(np.zeros((4, 4), "float32"), None), (np.zeros((4, 4), "uint8"), 12), (np.zeros((4, 8), "uint8")[:, ::2], None)],
)
def test_fill_refuses(out: np.ndarray, bits: int | None) -> None:
    with pytest.raises(ValueError, match=r"pattern|bits|contiguous"):
        fill(out, 0, bits)


def test_camera_frames_stay_within_bits() -> None:
    images = camera_frames(2, (40, 50, 3), "uint8") + camera_frames(1, (40, 50), "uint16", 10)
    assert [image.dtype.str for image in images] == ["|u1", "|u1", "<u2"]
    assert images[2].max() < 1024
    assert not np.array_equal(images[0], images[1])
